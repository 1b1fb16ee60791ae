"""The shipped contract, on the shipped samplers; and that it can fail."""

from __future__ import annotations

import optuna
import pytest
from sampler_contract import RUN, SamplerContract, exactly

import optuna_dp as odp

X = {"x": optuna.distributions.FloatDistribution(-1.0, 1.0)}


class TestRandTune(SamplerContract):
    def make(self, trials, seed=None):
        return odp.RandTuneSampler(trials=trials, run=RUN, seed=seed)

    def make_different(self, trials):
        return odp.RandTuneSampler(X, trials=trials, run=RUN)


class TestDPHyPO(SamplerContract):
    def make(self, trials, seed=None):
        return odp.DPHyPOSampler(X, trials=trials, run=RUN, candidates=8, batch_size=3, seed=seed)

    def make_different(self, trials):
        return odp.DPHyPOSampler(
            X, trials=trials, run=RUN, candidates=8, density_bounds=(0.5, 3.0)
        )


class Forgetful(odp.RandTuneSampler):
    """Makes the whole loop again when resumed: each start allows one trial more."""

    def __init__(self, *args, **settings):
        super().__init__(*args, **settings)
        has_slot, is_beyond = self.strategy.has_slot, self.strategy.is_beyond
        self.strategy.has_slot = lambda slot, check: has_slot(slot, check) or slot.number == 5
        self.strategy.is_beyond = lambda slot: is_beyond(slot) and slot.number != 5


def test_the_contract_can_fail() -> None:
    class Broken(SamplerContract):
        def make(self, trials, seed=None):
            return Forgetful(trials=trials, run=RUN, seed=seed)

        def make_different(self, trials):
            return Forgetful(X, trials=trials, run=RUN)

    assert exactly(3).pmf(3) == pytest.approx(1.0)
    with pytest.raises(AssertionError):
        Broken().test_resuming_adds_no_run()
