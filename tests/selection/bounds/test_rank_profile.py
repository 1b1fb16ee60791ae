"""The rank profile: published numbers, attacks, limits, laws of one's own, and guarantees."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pytest
from dp_accounting import dp_event
from refusals import refuses

import optuna_dp as odp
from optuna_dp.accounting.dominating_pairs import DominatingPair
from optuna_dp.accounting.run_profile import pair_of
from optuna_dp.selection.bounds.profile_bound import DataProfile
from optuna_dp.selection.bounds.rank_profile import RankProfile

DELTA = 1e-5
SGD = odp.dp_sgd(noise_multiplier=1.0, sample_rate=0.0043, steps=2344)


@pytest.mark.parametrize(
    ("trials", "most", "least"),
    [
        pytest.param(odp.Poisson(100.0), 5.97, 5.91, marks=pytest.mark.slow),
        (odp.Poisson(30.0), 3.55, 3.50),
        pytest.param(odp.Binomial(100, 100.0), 6.55, 6.46, marks=pytest.mark.slow),
        (odp.Geometric(10.0), 1.6617, 1.660),
    ],
)
def test_reference_values(trials: odp.TrialCount, most: float, least: float) -> None:
    attack, bound = odp.selection_guarantee(SGD, trials).bounds(DELTA)
    assert least <= attack <= bound <= most


@pytest.mark.slow
@pytest.mark.parametrize("count", [2, 3])
@pytest.mark.parametrize("run", [SGD, odp.gaussian(4.0), odp.pure_dp(0.2)])
def test_a_few_fixed_runs_cost_no_more_than_all_of_them(run: dp_event.DpEvent, count: int) -> None:
    selection = odp.selection_guarantee(run, odp.Binomial(count, float(count)))
    everything = odp.Guarantee(dp_event.SelfComposedDpEvent(run, count))
    for delta in (1e-8, 1e-5, 1e-2):
        assert selection.epsilon(delta) <= everything.epsilon(delta) * (1.0 + 1e-9)
        assert selection.by_method(delta)["all_runs"] >= everything.by_method(delta)["profile"]
    attack, bound = selection.bounds(DELTA)
    assert attack <= bound


def test_all_runs_are_no_bound_for_policies_that_see_the_data() -> None:
    """Runs that tell nothing: a policy that sees the data tells as much as its densities allow."""
    told = odp.selection_guarantee(
        odp.pure_dp(0.01), odp.Binomial(2, 2.0), density_bounds=(0.5, 2.0), policy="data"
    )
    assert told.by_method(DELTA).keys().isdisjoint({"all_runs"})
    assert told.by_method(DELTA)["pure"] == pytest.approx(2.0 * (0.01 + math.log(4.0)))


def test_the_pure_epsilon_of_at_most_n_runs() -> None:
    run = odp.pure_dp(0.2)
    most = {
        odp.Binomial(20, 7.0): 20 * 0.2,
        odp.Geometric(5.0).capped(2): 2 * 0.2,
        odp.Geometric(5.0): 3 * 0.2,
    }
    for trials, epsilon in most.items():
        assert odp.selection_guarantee(run, trials).by_method(DELTA)["pure"] == pytest.approx(
            epsilon
        )
    assert "pure" not in odp.selection_guarantee(run, odp.Poisson(5.0)).by_method(DELTA)


@pytest.mark.parametrize("noise", [1.0, 4.0])
@pytest.mark.parametrize("trials", [odp.Geometric(10.0), odp.Logarithmic(8.0), odp.Poisson(5.0)])
@pytest.mark.parametrize("bounds", [(1.0, 1.0), (0.75, 2.0)])
def test_never_far_above_the_profile_bound(
    noise: float, trials: odp.TrialCount, bounds: tuple[float, float]
) -> None:
    pair = pair_of(odp.gaussian(noise))
    of_ranks, of_profile = (kind(pair, trials, bounds) for kind in (RankProfile, DataProfile))
    assert of_ranks.epsilon(DELTA) < 1.005 * of_profile.epsilon(DELTA)


def test_a_finer_grid_is_tighter() -> None:
    pair = pair_of(odp.gaussian(2.0))
    epsilons = [
        RankProfile(pair, odp.Poisson(20.0), step=s).epsilon(DELTA) for s in (1, 0.1, 0.02)
    ]
    assert epsilons[0] > epsilons[1] > epsilons[2]


@dataclass(frozen=True)
class Always(odp.TrialCount):
    """A law of a user's own: T is always the same."""

    count: int
    law: ClassVar[str] = "always_so_many"

    @property
    def mean(self) -> float:
        return float(self.count)

    @property
    def maximum(self) -> int | None:
        return self.count

    def _pmf(self, k: Any) -> Any:
        return np.where(k == self.count, 1.0, 0.0)

    def _tail(self, n: int) -> float:
        return 1.0 if n < self.count else 0.0

    def _pgf(self, s: Any) -> Any:
        return s**self.count

    def _pgf_derivative(self, s: Any) -> Any:
        return self.count * s ** (self.count - 1)

    def exact_tail(self, ctx: Any, n: int) -> Any:
        return ctx.mpf(self._tail(n))


@pytest.mark.slow
def test_a_law_of_ones_own() -> None:
    guarantee = odp.selection_guarantee(odp.gaussian(4.0), Always(20))
    by_method = guarantee.by_method(DELTA)
    attack, bound = guarantee.bounds(DELTA)
    assert bound == by_method["rank_profile"] < 0.95 * by_method["data_profile"]
    assert 0.98 * bound < attack < bound


# --- limits --------------------------------------------------------------------------------


def test_a_run_without_privacy_has_no_finite_epsilon() -> None:
    bound = RankProfile(DominatingPair.infinite(), odp.Poisson(3.0))
    assert bound.epsilon(0.5) == math.inf
    assert np.all(bound.delta([-1.0, 0.0, 700.0]) == 1.0)


def test_a_large_mean_is_never_below_what_holds_always() -> None:
    pair = pair_of(odp.gaussian(4.0))
    for mean in (1e4, 1e8):
        delta = RankProfile(pair, odp.Poisson(mean)).delta([0.0, 1.0, 50.0, 2000.0])
        assert np.all((delta >= 0.0) & (delta <= 1.0))
    assert RankProfile(pair, odp.NegativeBinomial(shape=1.0, mean=1e12)).shape == (0, 0)


def test_infinite_losses_are_counted_once_a_run_has_one() -> None:
    """Runs that show the data with chance d: some of T does with chance 1 - phi(1 - d)."""
    trials = odp.Poisson(10.0)
    pair = pair_of(odp.approximate_dp(0.1, 1e-3))
    shown = 1.0 - trials.pgf(1.0 - 1e-3)
    assert RankProfile(pair, trials).delta(400.0) == pytest.approx(shown, rel=1e-2)
    assert RankProfile(pair, trials).delta(400.0) >= shown


@pytest.mark.slow
def test_it_does_not_increase_and_every_epsilon_is_allowed() -> None:
    for pair in (pair_of(SGD), pair_of(odp.gaussian(1000.0)), pair_of(odp.pure_dp(3.0))):
        delta = RankProfile(pair, odp.Poisson(10.0)).delta(np.linspace(-800.0, 800.0, 401))
        assert np.all(np.diff(delta) <= 1e-15)
        assert delta[0] == pytest.approx(1.0)


def test_long_sums_keep_the_profile_bound() -> None:
    capped = odp.Poisson(3.0).capped(5000)
    assert "rank_profile" not in odp.selection_guarantee(SGD, capped).by_method(DELTA)


@pytest.mark.parametrize("step", [0.0, -1.0, math.nan, "fine"])
def test_bad_steps_are_refused(step: Any) -> None:
    with refuses("step"):
        RankProfile(pair_of(odp.gaussian(1.0)), odp.Poisson(3.0), step=step)


def test_the_gain_bends_where_its_lower_density_does() -> None:
    """Two runs for certain that tell nothing: gain and cost are straight but for their bends."""
    c, big_c = 0.3, 3.0
    s = np.union1d(np.linspace(0.0, 1.0, 2001), (1.0 - c) / (big_c - c))
    gain = 2.0 * big_c * np.minimum(1.0 - c + c * s, big_c * s)
    cost = 2.0 * c * np.maximum(big_c * s - (big_c - 1.0), c * s)
    for step in (0.03, 2.0):
        bound = RankProfile(DominatingPair.identity(), odp.Binomial(2, 2.0), (c, big_c), step=step)
        for epsilon in (2.0, 3.0, 4.0):
            # The supremum over all s up to each one, and the sum from below.
            best = np.maximum.accumulate(np.maximum(gain - math.exp(epsilon) * cost, 0.0))
            integral = float(np.dot(best[:-1], np.diff(s)))
            assert bound.delta(epsilon) >= min(integral, 1.0)


def test_losses_too_far_apart_for_a_power_of_e_warn_of_nothing() -> None:
    """More than 400 atoms, and none between losses of -400 and 400."""
    run = odp.from_profile(
        np.linspace(400.0, 600.0, 500), 0.6 * np.exp(-np.linspace(0.0, 6.0, 500))
    )
    by_method = odp.selection_guarantee(run, odp.Poisson(5.0)).by_method(1e-2)
    assert by_method["rank_profile"] > 400.0
    assert 400.0 < by_method["data_profile"] < math.inf
