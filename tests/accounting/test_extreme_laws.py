"""The accountant answers whatever it accepts: soon, within memory, finitely where it can.

How long and how much: ``examples/benchmarks/accountant_limits.py``.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from dp_accounting import dp_event

import optuna_dp as odp
from optuna_dp.accounting.dominating_pairs import DominatingPair
from optuna_dp.accounting.rdp_curves import DEFAULT_ORDERS, rdp_to_delta, rdp_to_epsilon
from optuna_dp.accounting.run_profile import pair_of
from optuna_dp.errors import UnsupportedEventError
from optuna_dp.selection.bounds.pointwise_bound import PointwiseProfile
from optuna_dp.selection.bounds.pointwise_grid import LossGrid

RUN = odp.gaussian(4.0)
BOUNDS = (0.75, 2.0)


@pytest.mark.parametrize(
    "law",
    [
        odp.NegativeBinomial(shape=-0.5, mean=1e6),
        pytest.param(odp.Geometric(1e6).capped(10**6), marks=pytest.mark.slow),
    ],
    ids=repr,
)
def test_laws_too_long_for_the_history_bound_leave_it_out_and_say_so(law: odp.TrialCount) -> None:
    guarantee = odp.selection_guarantee(RUN, law, density_bounds=BOUNDS)
    assert guarantee.epsilon(1e-5) < math.inf
    assert guarantee.by_method(1e-5)["history_profile"] == math.inf
    assert guarantee.reasons(1e-5)["history_profile"]


@pytest.mark.slow
def test_a_heavy_tail_is_cut_and_charged() -> None:
    """T above 2000 has probability 1.1e-4: known at a delta of 1e-3, not at 1e-5."""
    law = odp.NegativeBinomial(shape=-0.9, mean=20)
    profile = PointwiseProfile(pair_of(RUN), law, BOUNDS, cells=24)
    assert profile.epsilon(1e-3) < math.inf
    assert profile.epsilon(1e-5) == math.inf
    assert profile.missing >= law.tail(2000)
    assert np.all(profile.delta([1.0, 30.0]) >= law.tail(2000))


def test_what_gives_up_claims_nothing() -> None:
    profile = PointwiseProfile(pair_of(RUN), odp.Poisson(1e6), BOUNDS)
    assert profile.gave_up
    assert np.all(profile.delta([-1.0, 0.0, 10.0, 1e5]) == 1.0)


@pytest.mark.slow
def test_a_cap_that_is_hardly_ever_reached_costs_no_time() -> None:
    """min(T, n) with P[T >= n] = e^-1000 is T, and takes the recursion of T."""
    pair, epsilons = pair_of(RUN), np.linspace(0.0, 100.0, 201)
    free = PointwiseProfile(pair, odp.Geometric(10), BOUNDS)
    capped = PointwiseProfile(pair, odp.Geometric(10).capped(10_000), BOUNDS)
    assert capped.shape[1:] == free.shape[1:]
    # A reserve for what the cap may change is charged, and is held up to every epsilon.
    assert 0.0 < capped.missing < 1e-15
    assert capped.delta(1.0) == pytest.approx(float(free.delta(1.0)), rel=1e-2)
    assert np.all(np.diff(capped.delta(epsilons)) <= 0.0)
    assert np.all(capped.delta(epsilons) >= capped.missing)


@pytest.mark.slow
def test_a_cap_within_reach_is_another_law() -> None:
    pair = pair_of(RUN)
    near = PointwiseProfile(pair, odp.Geometric(10).capped(12), BOUNDS)
    assert near.delta(2.0) != PointwiseProfile(pair, odp.Geometric(10), BOUNDS).delta(2.0)
    assert near.missing == 0.0


def test_the_grid_of_a_pair_far_from_zero_is_small() -> None:
    """All finite losses at 30: padding from 0 to there once asked for 7.9 GiB."""
    grid = LossGrid(pair_of(odp.approximate_dp(30.0, 1 - 6e-14)), 1e-6, 1e-5, 1e-5)
    assert grid.size + grid.pad_left + grid.pad_right < 10_000


@pytest.mark.slow
@pytest.mark.parametrize(
    ("epsilon", "delta"),
    [
        (1e-320, 1e-8),
        pytest.param(1e-170, 0.0, marks=pytest.mark.slow),
        pytest.param(1e-12, 0.0, marks=pytest.mark.slow),
    ],
)
def test_tiny_epsilons(epsilon: float, delta: float) -> None:
    run = odp.approximate_dp(epsilon, delta)
    guarantee = odp.selection_guarantee(run, odp.Geometric(20), density_bounds=BOUNDS)
    assert 0.0 <= guarantee.epsilon(1e-5) < 1e-3


@pytest.mark.parametrize("mean", [1e12, 1e100, 1e290])
@pytest.mark.parametrize("bounds", [(1.0, 1.0), BOUNDS])
def test_enormous_means_overflow_nowhere(mean: float, bounds: tuple[float, float]) -> None:
    """Warnings are errors here."""
    guarantee = odp.selection_guarantee(
        odp.pure_dp(0.1), odp.Geometric(mean), density_bounds=bounds
    )
    pure = 3.0 * (0.1 + math.log(bounds[1] / bounds[0]))
    assert guarantee.epsilon(1e-5) <= pure * (1.0 + 1e-12)


@pytest.mark.parametrize("gap", [1e-6, 1e-8, 1e-10, 1e-13])
@pytest.mark.parametrize("noise", [0.5, 2.0, 20.0])
def test_profiles_with_close_points_become_pairs(gap: float, noise: float) -> None:
    exact = pair_of(odp.gaussian(noise))
    middle = np.linspace(0.01, 3.0, 40)
    epsilons = np.sort(np.concatenate([middle, middle + gap, middle + 2.5 * gap]))
    deltas = exact.delta(epsilons)
    pair = DominatingPair.from_profile(epsilons, deltas, deltas)
    grid = np.linspace(0.0, 4.0, 300)
    assert np.all(pair.delta(grid) >= exact.delta(grid) - 1e-15)
    assert pair.delta(1.0) <= exact.delta(1.0) + 0.01


@pytest.mark.parametrize("gap", [1e-6, 1e-8, 1e-10, 1e-12])
@pytest.mark.parametrize("noise", [0.5, 2.0, 20.0])
def test_profiles_with_close_points_at_zero_become_pairs(gap: float, noise: float) -> None:
    """There the points of both directions stand close; masses were once off by 3e-9 at 1e-8."""
    exact = pair_of(odp.gaussian(noise))
    epsilons = np.concatenate([gap * np.arange(40), np.linspace(0.01, 3.0, 40)])
    deltas = exact.delta(epsilons)
    pair = DominatingPair.from_profile(epsilons, deltas, deltas)
    grid = np.linspace(0.0, 4.0, 300)
    assert np.all(pair.delta(grid) >= exact.delta(grid) - 1e-15)
    assert pair.delta(1.0) <= exact.delta(1.0) + 1e-4


@pytest.mark.slow
def test_the_epsilon_of_a_renyi_curve_keeps_its_promise_to_the_last_digit() -> None:
    rng = np.random.default_rng(5)
    orders = np.array(DEFAULT_ORDERS)
    for _ in range(300):
        curve = orders * 10.0 ** rng.uniform(-6, 2)
        delta = 10.0 ** rng.uniform(-12, -1)
        epsilon = rdp_to_epsilon(orders, curve, delta)
        assert float(rdp_to_delta(orders, curve, epsilon)) <= delta
        assert epsilon <= 0.0 or float(rdp_to_delta(orders, curve, epsilon * (1 - 1e-9))) > delta


LONG: list[Any] = [
    odp.Geometric(1e4).capped(10**4),
    odp.Poisson(5e3).capped(5000),
    odp.NegativeBinomial(shape=-0.5, mean=1e3).capped(20_000),
]


@pytest.mark.parametrize("law", LONG, ids=repr)
def test_long_sums_are_those_of_horners_rule(law: Any) -> None:
    s = np.concatenate([[0.0, 1.0], 1.0 - np.logspace(-17, 0, 60)])
    expected = np.zeros_like(s)
    k = np.arange(1, law.maximum + 1)
    for weight in (k * law.pmf(k))[::-1]:
        expected = expected * s + weight
    np.testing.assert_allclose(law.pgf_derivative(s), expected, rtol=2e-12, atol=1e-290)


@pytest.mark.parametrize(
    ("event", "epsilon"),
    [
        (odp.gaussian(1e300), 0.0),
        (odp.compose(odp.gaussian(1e300), odp.gaussian(2.0)), 1.993),
        (odp.bounded_range(1e308), 1e308),
        (odp.laplace(1e-6), 1e6),
        (odp.compose(odp.bounded_range(1e308), odp.bounded_range(1e308)), math.inf),
        (odp.dp_sgd(noise_multiplier=1.0, sample_rate=1e-9, steps=100), 0.0),
        (odp.dp_sgd(noise_multiplier=0.01, sample_rate=1e-9, steps=100), 0.0),
    ],
)
@pytest.mark.filterwarnings("error")
def test_parameters_at_the_ends_of_floats_have_an_epsilon(event: Any, epsilon: float) -> None:
    assert odp.Guarantee(event).epsilon(1e-5) == pytest.approx(epsilon, rel=0.05, abs=1e-3)
    assert odp.selection_guarantee(event, odp.Geometric(3)).epsilon(1e-3) >= 0.0


@pytest.mark.parametrize(
    "event",
    [
        odp.gaussian(1e-300),
        odp.gaussian(1e-6),
        odp.laplace(1e-300),
        odp.dp_sgd(noise_multiplier=1e-300, sample_rate=0.1, steps=10),
    ],
)
def test_noise_that_is_hardly_any_is_refused_in_words(event: Any) -> None:
    with pytest.raises(UnsupportedEventError):
        odp.Guarantee(event).epsilon(1e-5)


@pytest.mark.parametrize(
    "run",
    [
        dp_event.LaplaceDpEvent(0.0),
        dp_event.SelfComposedDpEvent(dp_event.LaplaceDpEvent(0.0), 3),
        dp_event.ComposedDpEvent([dp_event.LaplaceDpEvent(0.0), dp_event.GaussianDpEvent(1.0)]),
    ],
    ids=str,
)
def test_without_noise_nothing_is_promised(run: dp_event.DpEvent) -> None:
    guarantee = odp.Guarantee(run)
    assert guarantee.epsilon(1e-5) == math.inf
    assert guarantee.mu() == math.inf
