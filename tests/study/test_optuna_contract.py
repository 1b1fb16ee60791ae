"""Optuna's own sampler test cases (pinned: they ship with Optuna but are not documented)."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from optuna.samplers import BaseSampler
from samplers.budget.budget_support import budget
from samplers.choice.utility_support import LOOP, K
from support import exactly

import optuna_dp as odp

cases = pytest.importorskip(
    "optuna.testing.pytest_samplers", reason="newer than the oldest Optuna"
)

# Optuna's cases run up to twenty trials, so T must not be in the way.
MANY = exactly(1000)


class TestRandTuneSampler(cases.BasicSamplerTestCase, cases.SingleOnlySamplerTestCase):
    @pytest.fixture
    def sampler(self) -> Callable[[], BaseSampler]:
        return lambda: odp.RandTuneSampler(trials=MANY)


class TestDPHyPOSamplerBatch(cases.BasicSamplerTestCase, cases.SingleOnlySamplerTestCase):
    @pytest.fixture
    def sampler(self) -> Callable[[], BaseSampler]:
        return lambda: odp.DPHyPOSampler(trials=MANY, candidates=32)


# Optuna's relative cases leave trials running for ever, so a schedule that waits for them would
# wait for ever.
class TestDPHyPOSamplerAny(
    cases.BasicSamplerTestCase, cases.RelativeSamplerTestCase, cases.SingleOnlySamplerTestCase
):
    @pytest.fixture
    def sampler(self) -> Callable[[], BaseSampler]:
        return lambda: odp.DPHyPOSampler(trials=MANY, schedule="any", candidates=32)


PLAN = budget(1000)


class TestBudgetSampler(cases.BasicSamplerTestCase, cases.SingleOnlySamplerTestCase):
    @pytest.fixture
    def sampler(self) -> Callable[[], BaseSampler]:
        return lambda: odp.BudgetSampler(PLAN, pilot_batch_size=1000)


def taking_any_value(sampler: odp.NoisyMaxSampler | odp.ProposeTestSampler) -> BaseSampler:
    """The sampler without its refusal of utilities outside [0, 1], which Optuna's cases return."""
    sampler.strategy.after_trial = lambda slot, state, values: None  # type: ignore[method-assign]
    return sampler


class TestNoisyMaxSampler(cases.BasicSamplerTestCase, cases.SingleOnlySamplerTestCase):
    @pytest.fixture
    def sampler(self) -> Callable[[], BaseSampler]:
        return lambda: taking_any_value(
            odp.NoisyMaxSampler(candidates=1000, n_partitions=K, epsilon=1.0)
        )


class TestProposeTestSampler(cases.BasicSamplerTestCase, cases.SingleOnlySamplerTestCase):
    @pytest.fixture
    def sampler(self) -> Callable[[], BaseSampler]:
        return lambda: taking_any_value(odp.ProposeTestSampler(candidates=1000, **LOOP))
