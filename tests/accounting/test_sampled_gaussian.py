"""The loss distribution of a DP-SGD step: dp-accounting's, without its loop."""

from __future__ import annotations

import numpy as np
import pytest
from dp_accounting import NeighboringRelation, dp_event
from dp_accounting.pld import pld_pmf, privacy_loss_distribution

from optuna_dp.accounting import sampled_gaussian

CASES = [
    (0.0128, 0.86, 1e-3),
    pytest.param(6.4e-5, 0.5, 1e-3, marks=pytest.mark.slow),
    pytest.param(0.5, 1.0, 1e-3, marks=pytest.mark.slow),
    (0.99, 0.3, 1e-2),
    (1e-9, 0.3, 1e-2),
    (1e-3, 50.0, 1e-6),
    (0.2, 0.02, 3.0),
]
RELATIONS = {
    "add_or_remove_one": NeighboringRelation.ADD_OR_REMOVE_ONE,
    "replace_one": NeighboringRelation.REPLACE_ONE,
}


def event_of(rate: float, noise: float) -> dp_event.DpEvent:
    return dp_event.PoissonSampledDpEvent(rate, dp_event.GaussianDpEvent(noise))


@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize(("rate", "noise", "interval"), CASES)
def test_it_is_the_one_that_dp_accounting_makes(
    rate: float, noise: float, interval: float, relation: str
) -> None:
    found = sampled_gaussian.loss_distribution(event_of(rate, noise), relation, interval)
    theirs = privacy_loss_distribution.from_gaussian_mechanism(
        noise,
        value_discretization_interval=interval,
        sampling_prob=rate,
        neighboring_relation=RELATIONS[relation],
    )
    epsilons = np.linspace(-2.0, 12.0, 200)
    for name in ("_pmf_remove", "_pmf_add"):
        own, other = getattr(found, name), getattr(theirs, name)
        assert own.size == other.size
        assert own.get_delta_for_epsilon(epsilons) == pytest.approx(
            other.get_delta_for_epsilon(epsilons), rel=1e-9, abs=1e-14
        )
        assert own.get_delta_for_epsilon(np.inf) == pytest.approx(
            other.get_delta_for_epsilon(np.inf), rel=1e-6, abs=1e-25
        )


def test_a_few_losses_are_composed_a_million_times() -> None:
    """A sparse distribution's size to the power of a million took half a minute."""
    one = sampled_gaussian.loss_distribution(event_of(1e-5, 5.0), "add_or_remove_one", 1e-5)
    assert one._pmf_remove.size < 20
    assert isinstance(one._pmf_remove, pld_pmf.DensePLDPmf)
    assert isinstance(one._pmf_add, pld_pmf.DensePLDPmf)
    all_of_them = one.self_compose(1_000_000)
    assert 0.0 < all_of_them.get_delta_for_epsilon(0.01) < 0.01
