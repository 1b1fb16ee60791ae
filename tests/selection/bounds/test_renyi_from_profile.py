"""The Renyi curve from profile and trade-off curve against exact selections and known curves."""

from __future__ import annotations

import numpy as np
import pytest
from dp_accounting import dp_event
from selection.bounds.discrete_runs import pair_of_laws, random_laws
from selection.bounds.selection_reference import LAWS, fixed_selections

import optuna_dp as odp
from optuna_dp.accounting.profile_rdp import pair_rdp
from optuna_dp.accounting.rdp_curves import DEFAULT_ORDERS, pure_rdp
from optuna_dp.accounting.run_profile import pair_of
from optuna_dp.accounting.run_rdp import rdp_of
from optuna_dp.core.arrays import FloatArray
from optuna_dp.selection.bounds.curve_bound import curve_bound
from optuna_dp.selection.bounds.rank_profile import RankProfile
from optuna_dp.selection.event import PrivateSelectionDpEvent

ORDERS = np.array([1.02, 1.5, 2.0, 3.0, 8.0, 32.0, 200.0])


def divergences(p: FloatArray, q: FloatArray) -> FloatArray:
    """The larger of D_a(P || Q) and D_a(Q || P), from their masses."""
    found = []
    for on, off in ((p, q), (q, p)):
        if np.any((on > 0.0) & (off == 0.0)):
            return np.full(ORDERS.shape, np.inf)
        both = on > 0.0
        logs = ORDERS[:, None] * np.log(on[both]) + (1.0 - ORDERS[:, None]) * np.log(off[both])
        found.append(np.logaddexp.reduce(logs, axis=1) / (ORDERS - 1.0))
    return np.maximum(*found)


def test_a_gaussian_is_met_from_above() -> None:
    orders, exact = np.array(DEFAULT_ORDERS), np.array(DEFAULT_ORDERS) / 2.0
    found = pair_rdp(orders, pair_of(odp.gaussian(noise_multiplier=1.0)), np.inf, 1.5 * exact)
    assert np.all(found >= exact * (1.0 - 1e-13))
    low = orders <= 3.0
    assert np.all(found[low] <= exact[low] * 1.0001)


@pytest.mark.parametrize("epsilon", [0.01, 0.8, 3.0, 20.0])
def test_randomised_response_is_met_from_above(epsilon: float) -> None:
    # With few points: a chord in epsilon in place of e^epsilon would be below.
    exact = pure_rdp(epsilon, ORDERS)
    unknown = np.full(ORDERS.shape, np.inf)
    found = pair_rdp(ORDERS, pair_of(odp.pure_dp(epsilon)), epsilon, unknown)
    assert np.all(found >= exact * (1.0 - 1e-12))
    assert np.all(found <= exact * (1.0 + 1e-6))


def test_no_exact_selection_is_above_either_bound() -> None:
    rng = np.random.default_rng(1)
    compared = 0
    for i in range(36):
        on, off = random_laws(rng, int(rng.integers(2, 5)))
        trials, pair = LAWS[i % len(LAWS)], pair_of_laws(on, off)
        run = divergences(on, off)
        closed = curve_bound(ORDERS, run, pair, trials, (1.0, 1.0))
        profile = RankProfile(pair, trials), RankProfile(pair.reversed(), trials)
        grid = np.linspace(0.0, 12.0, 300)
        from_profile = pair_rdp(
            ORDERS,
            type(pair).from_profile(grid, profile[0].delta(grid), profile[1].delta(grid)),
            np.inf,
            closed,
        )
        for selection in fixed_selections(on, off, trials, rng):
            alone = selection.single >= 0
            outputs = [np.append(law[alone], selection.none) for law in selection.events]
            exact = divergences(*outputs)
            assert np.all(closed >= exact * (1.0 - 1e-11))
            assert np.all(from_profile >= exact * (1.0 - 1e-11))
            compared += int(np.isfinite(exact).sum())
    assert compared > 500


@pytest.mark.parametrize("bounds", [(1.0, 1.0), (0.75, 2.0)])
def test_it_is_never_above_the_curve_of_theorem_9(bounds: tuple[float, float]) -> None:
    run = odp.dp_sgd(noise_multiplier=1.0, sample_rate=0.05, steps=100)
    event = PrivateSelectionDpEvent(run, odp.Geometric(20.0), bounds)
    known = rdp_of(event)
    found = odp.Guarantee(event).rdp()
    assert np.all(found <= known)
    assert np.all(np.diff(found) >= 0.0)
    at = np.searchsorted(DEFAULT_ORDERS, 2.0)
    assert found[at] < 0.75 * known[at]


def test_reference_values() -> None:
    """Papernot and Steinke's Theorem 2 says 1.805, 1.805 and 3.21 here."""
    event = PrivateSelectionDpEvent(odp.gaussian(noise_multiplier=4.0), odp.Geometric(20.0))
    found = odp.Guarantee(event).rdp([2.0, 8.0, 64.0])
    assert found == pytest.approx([0.3367, 0.8673, 2.594], rel=2e-3)


def test_a_capped_law_has_a_curve() -> None:
    event = PrivateSelectionDpEvent(
        odp.gaussian(noise_multiplier=4.0), odp.Geometric(20.0).capped(60)
    )
    assert odp.Guarantee(event).rdp([2.0])[0] < 0.4


@pytest.mark.parametrize(
    "event",
    [
        odp.dp_sgd(noise_multiplier=1.0, sample_rate=0.1, steps=1),
        PrivateSelectionDpEvent(odp.gaussian(noise_multiplier=4.0), odp.Geometric(20.0)),
    ],
)
def test_an_order_does_not_depend_on_the_others_asked(event: dp_event.DpEvent) -> None:
    guarantee = odp.Guarantee(event)
    alone = [guarantee.rdp([order])[0] for order in (1.5, 2.0, 8.0)]
    assert guarantee.rdp([1.5, 2.0, 8.0]).tolist() == alone
