"""The rank profile against exact selections: orders, events, laws of T, policies.

The strongest orders are those of the theorem: an event's outputs by falling loss, among them the
other outputs by rising loss. All of them are tried on runs whose outputs are cut into pieces. The
same comparisons must catch every sabotaged variant of the bound.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterator

import numpy as np
import pytest
from selection.bounds.discrete_runs import envelope, pair_of_laws, random_laws
from selection.bounds.selection_reference import (
    LAWS,
    Selection,
    adaptive_selection,
    any_settings,
    fixed_selections,
    sharp_settings,
)

import optuna_dp as odp
from optuna_dp import Binomial, Geometric, Poisson, TrialCount
from optuna_dp.accounting.dominating_pairs import DominatingPair
from optuna_dp.accounting.run_profile import pair_of
from optuna_dp.attacks.attainable import attainable_pairs
from optuna_dp.attacks.selection_attack import AttackSearch
from optuna_dp.core.arrays import FloatArray
from optuna_dp.selection.bounds import rank_profile
from optuna_dp.selection.bounds.rank_profile import RankProfile

EPSILONS = np.array([-1.5, -0.3, 0.0, 0.1, 0.4, 0.8, 1.3, 2.0, 3.0, 5.0])
TOLERANCE = 1e-11
MORE_LAWS: list[TrialCount] = [*LAWS, Binomial(2, 2.0), Poisson(30.0), Binomial(20, 20.0)]
ATTACKED_LAWS: list[TrialCount] = [Poisson(30.0), Binomial(20, 20.0), Geometric(10.0)]
Bound = Callable[[DominatingPair, TrialCount, tuple[float, float]], RankProfile]
COARSE: Bound = functools.partial(RankProfile, step=0.5)  # fast, and as sound
COARSEST: Bound = functools.partial(RankProfile, step=2.0)


def deltas(selection: Selection) -> FloatArray:
    """The largest A(E) - e^eps A'(E) of the selection's events, "nothing" included."""
    factor = np.exp(EPSILONS)
    events = selection.events[0][:, None] - factor * selection.events[1][:, None]
    return np.maximum(events.max(axis=0), 0.0) + selection.none * np.maximum(0.0, 1.0 - factor)


def interleaved(on: FloatArray, off: FloatArray, trials: TrialCount, pieces: int) -> Selection:
    """All interleavings of an event's outputs by falling loss with the others by rising loss."""
    with np.errstate(divide="ignore", invalid="ignore"):
        falling = np.argsort(np.where(on > 0.0, off / on, np.inf), kind="stable")
    size = pieces * on.size
    in_event = np.array(list(itertools.product([False, True], repeat=size)))
    # The k-th output of the event has the k-th largest loss, the k-th of the others the k-th
    # smallest one: together they are all outputs.
    taken = np.cumsum(in_event, axis=1)
    place = np.where(in_event, taken - 1, size - 1 - (np.arange(size) - taken))
    laws = []
    for law in (on, off):
        mass = np.repeat(law[falling], pieces)[place] / pieces
        below = np.clip(1.0 - np.cumsum(mass, axis=1), 0.0, 1.0)
        above = np.concatenate([np.ones((below.shape[0], 1)), below[:, :-1]], axis=1)
        laws.append(np.where(in_event, trials.pgf(above) - trials.pgf(below), 0.0).sum(axis=1))
    no_output = np.full(laws[0].size, -1)
    return Selection((laws[0], laws[1]), no_output, on, off, float(trials.pmf(0)))


def fixed_instances(count: int, seed: int) -> Iterator[tuple[DominatingPair, TrialCount, object]]:
    rng = np.random.default_rng(seed)
    for i in range(count):
        outputs = int(rng.integers(2, 5))
        on, off = random_laws(rng, outputs)
        trials = MORE_LAWS[i % len(MORE_LAWS)]
        pieces = {2: 5, 3: 3, 4: 2}[outputs]
        selections = [interleaved(on, off, trials, pieces)]
        if i % 4 == 0:
            selections += fixed_selections(on, off, trials, rng)
        yield pair_of_laws(on, off), trials, selections


def violations_of_orders(make: Bound, count: int, seed: int) -> int:
    violations = 0
    for pair, trials, selections in fixed_instances(count, seed):
        bound = make(pair, trials, (1.0, 1.0)).delta(EPSILONS)
        for selection in selections:  # type: ignore[attr-defined]
            violations += int(np.sum(deltas(selection) > bound + TOLERANCE))
    return violations


def violations_of_policies(make: Bound, count: int, seed: int) -> int:
    rng = np.random.default_rng(seed)
    violations = 0
    for i in range(count):
        prior, rank = any_settings(rng) if i % 2 else sharp_settings(rng)
        settings, size = rank.shape
        runs = np.zeros((settings, rank.size))
        runs_prime = runs.copy()
        pairs = []
        for h in range(settings):
            on, off = random_laws(rng, size)
            if i % 2 == 0 and (h > 0 or i % 4 == 0):
                # Runs that tell next to nothing: all that is left is what the policy does.
                off = on if h else 0.98 * on + 0.02 * off
            runs[h, rank[h]], runs_prime[h, rank[h]] = on, off
            pairs.append(pair_of_laws(on, off))
        bounds = [(1.0, 1.0), (0.9, 1.1), (0.75, 2.0), (0.3, 1.5), (0.05, 6.0)][i % 5]
        trials = LAWS[i % len(LAWS)]
        bound = make(envelope(pairs), trials, bounds).delta(EPSILONS)
        selection = adaptive_selection(runs, runs_prime, prior, trials, bounds, rng)
        violations += int(np.sum(deltas(selection) > bound + TOLERANCE))
    return violations


def violations_of_attacks(make: Bound) -> int:
    """Runs with many outputs: the package's own attack, a search over explicit orders."""
    violations = 0
    for noise, trials in itertools.product((1.0, 4.0), ATTACKED_LAWS):
        run = odp.gaussian(noise)
        bound = make(pair_of(run), trials, (1.0, 1.0)).delta(EPSILONS)
        (attainable,) = attainable_pairs(run, "add_or_remove_one")
        search = AttackSearch(attainable, trials)
        attained = np.array([search.delta(epsilon) for epsilon in EPSILONS])
        violations += int(np.sum(attained > bound + TOLERANCE))
    return violations


@pytest.mark.slow
@pytest.mark.parametrize("make", [RankProfile, COARSE])
def test_no_order_of_outputs_beats_the_bound(make: Bound) -> None:
    assert violations_of_orders(make, 30, seed=1) == 0


@pytest.mark.slow
def test_no_order_of_a_gaussian_run_beats_the_bound() -> None:
    assert violations_of_attacks(RankProfile) == 0


@pytest.mark.slow
def test_no_order_of_outputs_beats_the_bound_on_many_mechanisms() -> None:
    assert violations_of_orders(RankProfile, 250, seed=5) == 0
    assert violations_of_orders(COARSE, 500, seed=6) == 0


@pytest.mark.slow
def test_no_policy_beats_the_bound() -> None:
    assert violations_of_policies(COARSE, 40, seed=2) == 0


@pytest.mark.slow
def test_no_policy_beats_the_bound_on_many_instances() -> None:
    assert violations_of_policies(RankProfile, 360, seed=3) == 0


@pytest.mark.slow
def test_some_order_comes_close_to_the_bound() -> None:
    """Otherwise the comparisons above would catch nothing."""
    closest = []
    for pair, trials, selections in fixed_instances(30, seed=1):
        bound = RankProfile(pair, trials).delta(EPSILONS)
        attained = deltas(selections[0])  # type: ignore[index]
        closest.append(np.max(attained[attained > 1e-3] / bound[attained > 1e-3], initial=0.0))
    assert np.median(closest) > 0.98


# --- sabotage ------------------------------------------------------------------------------


def right_ends(ranks: Callable) -> Callable:
    def sabotaged(*args: object) -> tuple[FloatArray, ...]:
        left, rates, widths = ranks(*args)
        return np.minimum(left + widths, 1.0 - 1e-9), rates, widths

    return sabotaged


def rates_of_the_next_atom(ranks: Callable) -> Callable:
    def sabotaged(*args: object) -> tuple[FloatArray, ...]:
        left, rates, widths = ranks(*args)
        return left, np.append(rates[1:], rates[-1:]), widths

    return sabotaged


def without_infinite_losses(ranks: Callable) -> Callable:
    def sabotaged(infinite: float, *args: object) -> tuple[FloatArray, ...]:
        left, rates, widths = ranks(infinite, *args)
        return left, rates, np.where(rates == 0.0, 0.0, widths)

    return sabotaged


def event_alone(points: Callable) -> Callable:
    """As if nothing outside the event were ever above its outputs."""

    def sabotaged(top: FloatArray, *args: object) -> FloatArray:
        return np.stack([top, top * (1.0 - 1e-9), top * (1.0 - 2e-9)], axis=1)

    return sabotaged


def points_alone(extended: Callable) -> Callable:
    """The obvious discretisation: gain and cost at the points, nothing between them."""

    def sabotaged(s: FloatArray, low: FloatArray, high: FloatArray) -> FloatArray:
        return low[:, :-1]

    return sabotaged


def masses_alike(below: Callable) -> Callable:
    """G(q) = q: outside the event the same mass on both data sets."""

    def sabotaged(a: FloatArray, s: FloatArray, *args: object) -> tuple[FloatArray, FloatArray]:
        return s, s

    return sabotaged


def without_beta(below: Callable) -> Callable:
    """The event's own outputs above are forgotten in the cost."""

    def sabotaged(
        a: FloatArray, s: FloatArray, kinks: FloatArray, reached: FloatArray, shown: float
    ) -> tuple[FloatArray, FloatArray]:
        x = 1.0 - np.interp((1.0 - a)[:, None] - s, kinks, reached)
        return x, x

    return sabotaged


SABOTAGE = {
    "the right ends of the ranks": ("_ranks", right_ends),
    "rates of the next atom": ("_ranks", rates_of_the_next_atom),
    "no infinite losses": ("_ranks", without_infinite_losses),
    "nothing between the event's outputs": ("_points", event_alone),
    "nothing between the points": ("extended", points_alone),
    "G replaced by q": ("_below", masses_alike),
    "beta left out": ("_below", without_beta),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", SABOTAGE)
def test_sabotaged_bounds_are_caught(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    function, sabotage = SABOTAGE[name]
    monkeypatch.setattr(rank_profile, function, sabotage(getattr(rank_profile, function)))
    assert violations_of_orders(COARSEST, 45, seed=4) + violations_of_attacks(COARSEST) > 0


@pytest.mark.slow
def test_the_comparison_accepts_the_bound_itself() -> None:
    assert violations_of_orders(COARSEST, 45, seed=4) + violations_of_attacks(COARSEST) == 0


def test_the_wrong_direction_is_caught() -> None:
    def backwards(
        pair: DominatingPair, trials: TrialCount, bounds: tuple[float, float]
    ) -> RankProfile:
        return COARSE(pair.reversed(), trials, bounds)

    assert violations_of_orders(backwards, 45, seed=4) > 0


@pytest.mark.slow
@pytest.mark.parametrize("factor", ["c", "C"])
def test_missing_density_bounds_are_caught(factor: str) -> None:
    def without(
        pair: DominatingPair, trials: TrialCount, bounds: tuple[float, float]
    ) -> RankProfile:
        c, big_c = bounds
        return COARSE(pair, trials, (1.0, big_c) if factor == "c" else (c, 1.0))

    assert violations_of_policies(without, 40, seed=2) > 0
