from __future__ import annotations

import math

import numpy as np
import pytest
from private_selection.bounds.history_reference import exact_value, random_instance

from optuna_dp import Binomial, Geometric, Logarithmic, NegativeBinomial, Poisson
from optuna_dp.accounting import events
from optuna_dp.accounting.dominating_pairs import DominatingPair
from optuna_dp.accounting.kinds.approximate import randomized_response
from optuna_dp.accounting.run_profile import pair_of
from optuna_dp.errors import InvalidArgumentError
from optuna_dp.private_selection.bounds.history_bound import (
    HistoryProfile,
    _intervals,
    _law,
    _recursion,
)
from optuna_dp.private_selection.bounds.history_kernel import HistoryGrid, Removal, Values
from optuna_dp.private_selection.bounds.history_stationary import (
    LinearSystems,
    ratio_step,
    solve_stationary,
)
from optuna_dp.private_selection.bounds.profile_bound import DataProfile

DELTA = 1e-5
GAUSSIAN = events.gaussian(4.0)


def sgd(noise: float) -> DominatingPair:
    return pair_of(events.dp_sgd(noise_multiplier=noise, sample_rate=256 / 60000, steps=2344))


def epsilon_of(pair, trials, bounds, kind=HistoryProfile, **options) -> float:
    sides = (pair, pair.reversed())
    return max(kind(side, trials, bounds, **options).epsilon(DELTA) for side in sides)


@pytest.mark.parametrize(
    ("noise", "mean", "bounds", "reference"),
    [
        (1.0, 10, (0.9, 1.25), 1.793),
        (1.0, 10, (0.75, 2.0), 2.090),
        (1.0, 30, (0.9, 1.25), 2.155),
        (1.0, 30, (0.75, 2.0), 2.684),
        (0.71, 10, (0.9, 1.25), 4.204),
        (0.71, 10, (0.75, 2.0), 4.746),
        (0.71, 30, (0.9, 1.25), 4.919),
        (0.71, 30, (0.75, 2.0), 5.804),
    ],
)
def test_reference_table(noise, mean, bounds, reference) -> None:
    found = epsilon_of(sgd(noise), Geometric(mean), bounds)
    # The reference evaluates p at points: sound values lie a little above, never much below.
    assert reference * 0.998 <= found <= reference * 1.01


@pytest.mark.parametrize(
    ("noise", "trials"),
    [
        (1.0, Geometric(10)),
        (0.71, Geometric(100)),
        (0.71, Poisson(10)),
        (1.0, NegativeBinomial(shape=2.5, mean=10)),
    ],
)
def test_without_adaptivity_it_is_the_profile_bound(noise, trials) -> None:
    pair = sgd(noise)
    other = epsilon_of(pair, trials, (1.0, 1.0), DataProfile)
    found = epsilon_of(pair, trials, (1.0, 1.0))
    assert other * 0.9995 <= found <= other * 1.006


def test_refining_either_grid_converges_from_above() -> None:
    pair = pair_of(GAUSSIAN)
    found = [
        HistoryProfile(pair, Geometric(10), (0.75, 2.0), step=step, points_per_spread=points)
        for step, points in ((0.16, 3), (0.08, 6), (0.04, 12), (0.02, 24))
    ]
    values = np.array([profile.delta([0.8, 1.1, 1.5]) for profile in found])
    assert np.all(np.diff(values, axis=0) < 0.0)
    # First order in the step: each refinement gains about half of what the one before did.
    gains = -np.diff(values, axis=0)
    assert np.all(gains[1:] < 0.75 * gains[:-1])


@pytest.mark.parametrize("option", ["step", "points_per_spread"])
def test_each_grid_alone_converges_from_above(option) -> None:
    pair = pair_of(GAUSSIAN)
    values = []
    for factor in (8.0, 4.0, 2.0, 1.0):
        options = {"step": 0.02, "points_per_spread": 12.0}
        options[option] *= factor if option == "step" else 1.0 / factor
        profile = HistoryProfile(pair, Geometric(10), (0.9, 1.25), **options)
        values.append(profile.delta([0.8, 1.1, 1.5]))
    assert np.all(np.diff(np.array(values), axis=0) < 0.0)


def test_narrow_grids_are_larger_and_still_sound() -> None:
    """Beyond the grid the ends take over: V(1, 0), V(0, 1), chords. Never zero."""
    rng = np.random.default_rng(7)
    checked = 0
    while checked < 25:
        inst = random_instance(rng)
        if inst.infinite > 0.0 or inst.law.tail(inst.pmf.size) > 0.0:
            continue
        checked += 1
        c, big_c = inst.bounds
        keep_most, keep_least = _intervals(inst.law, c, big_c, 0.1)
        law = _law(inst.law)
        for reach in (0.05, 0.5, 6.0):
            grid = HistoryGrid(inst.pair, 0.05, reach, reach)
            values = _recursion(Removal(grid, keep_most, keep_least), law, c, big_c)
            for index in (0, grid.size // 2, grid.size - 1):
                t = float(grid.t[index])
                exact = max(exact_value(inst, t, p) for p in np.linspace(0.0, 1.0, 21))
                assert values.inner[:, index].max() >= exact - 1e-10


def test_splitting_keeps_both_masses() -> None:
    pair = pair_of(GAUSSIAN)
    grid = HistoryGrid(pair, 0.1, 2.0, 2.0)
    assert math.isclose(grid.mass.sum() + grid.infinite_mass + grid.hit_mass, 1.0, abs_tol=1e-12)
    prime = float(grid.mass @ np.exp(-grid.taps))
    assert prime <= 1.0 + 1e-12
    assert prime > 1.0 - 1e-9
    split = DominatingPair(
        grid.taps, grid.mass, grid.infinite_mass + grid.hit_mass, max(0.0, 1.0 - prime)
    )
    eps = np.linspace(-3.0, 3.0, 301)
    assert np.all(split.delta(eps) >= pair.delta(eps) - 1e-12)
    assert grid.x[np.argmin(np.abs(grid.x))] == 0.0


def test_stationary_solution_is_a_supersolution_and_geometric_agrees_with_its_cap() -> None:
    pair = pair_of(GAUSSIAN)
    keep = _intervals(Geometric(8), 0.75, 2.0, 0.1)
    grid = HistoryGrid(pair, 0.05, 3.0, 3.0)
    removal = Removal(grid, *keep)
    rows = keep[0].size
    source = Values(
        np.broadcast_to(1.0 - grid.t, (rows, grid.size)), np.full(rows, -1.0), np.ones(rows)
    )
    for low, high in ((0.875, 0.875), (0.8, 0.875)):
        solved = solve_stationary(removal, source, low, high)
        step = ratio_step(removal, source, solved, low, high)
        assert np.all(solved.inner >= step.inner - 1e-12 * (1.0 + grid.t))
        assert np.all(solved.left >= step.left - 1e-12)
        assert np.all(solved.right >= step.right - 1e-12)
        # And not by much: the residual that was added is rounding.
        assert np.max(np.abs(solved.inner - step.inner) / (1.0 + grid.t)) < 1e-9
    eps = np.array([0.3, 1.0, 1.6])
    uncapped = HistoryProfile(pair, Geometric(4), (0.75, 2.0), step=0.05)
    capped = HistoryProfile(pair, Geometric(4).capped(90), (0.75, 2.0), step=0.05)
    assert np.allclose(uncapped.delta(eps), capped.delta(eps), rtol=2e-3)


def test_a_system_that_is_kept_solves_other_sources() -> None:
    keep = _intervals(Geometric(8), 0.75, 2.0, 0.1)
    grid = HistoryGrid(pair_of(GAUSSIAN), 0.1, 3.0, 3.0)
    systems = LinearSystems(Removal(grid, *keep), kept=True)
    first, *others = np.random.default_rng(0).normal(size=(4, grid.size))
    signs = [(3, 0), (grid.size // 2, 5)]
    for row, of in enumerate(signs):
        systems.solve(row, first, of, (0.8, 0.9))
    for row, of in enumerate(signs):
        found = systems.again(row, np.array(others))
        for source, solution in zip(others, found, strict=True):
            anew = LinearSystems(Removal(grid, *keep)).solve(row, source, of, (0.8, 0.9))
            assert solution == pytest.approx(anew, rel=1e-10)


@pytest.mark.parametrize("shape", [-0.5, 0.0, 0.5, 3.0])
def test_tail_of_negative_binomial_laws_is_bounded_from_above(shape) -> None:
    """Stopping the exact recursion at N and bounding the rest, against a cap far beyond."""
    pair = pair_of(GAUSSIAN)
    trials = NegativeBinomial(shape=shape, mean=5)
    options = {"step": 0.1, "points_per_spread": 5.0}
    eps = np.array([0.3, 1.0, 1.6])
    ours = HistoryProfile(pair, trials, (0.75, 2.0), **options)
    assert ours.missing == 0.0
    long = HistoryProfile(pair, trials.capped(400), (0.75, 2.0), **options)
    assert np.all(ours.delta(eps) >= long.delta(eps) * 0.97)
    assert np.all(ours.delta(eps) <= long.delta(eps) * 1.06)


def test_infinite_laws_that_are_cut_charge_what_they_cut() -> None:
    pair = pair_of(GAUSSIAN)
    profile = HistoryProfile(pair, Poisson(4), (0.9, 1.25))
    assert 0.0 < profile.missing < 1e-14
    assert float(profile.delta(60.0)) >= profile.missing


@pytest.mark.parametrize("bounds", [(1.0, 1.0), (0.75, 2.0), (0.01, 50.0)])
@pytest.mark.parametrize("trials", [Geometric(10), Poisson(3), Binomial(6, 2.0), Logarithmic(4)])
def test_runs_that_cost_nothing_cost_nothing(trials, bounds) -> None:
    profile = HistoryProfile(DominatingPair.identity(), trials, bounds)
    assert float(profile.delta(0.0)) == 0.0
    assert profile.epsilon(1e-9) == 0.0
    # For negative epsilon every mechanism has 1 - e^eps.
    assert math.isclose(float(profile.delta(-1.0)), -math.expm1(-1.0), rel_tol=1e-9)


@pytest.mark.parametrize("trials", [Geometric(10), Poisson(3), Binomial(6, 2.0)])
def test_runs_that_protect_nothing_are_infinite_not_nan(trials) -> None:
    profile = HistoryProfile(DominatingPair.infinite(), trials, (0.75, 2.0))
    assert float(profile.delta(3.0)) == pytest.approx(1.0 - trials.pmf(0))
    assert profile.epsilon(1e-5) == math.inf


def test_infinite_losses_cost_their_chance_of_occurring_once() -> None:
    """E[T] delta, and no factor C."""
    pair = randomized_response(0.5, 1e-7)
    profile = HistoryProfile(pair, Geometric(10), (0.5, 5.0))
    assert float(profile.delta(60.0)) == pytest.approx(1e-6, rel=1e-3)


def test_a_very_wide_loss_stays_finite() -> None:
    for loss in (20.0, 300.0):
        profile = HistoryProfile(randomized_response(loss), Geometric(5), (0.75, 2.0), step=0.5)
        with np.errstate(all="raise", under="ignore"):
            found = profile.epsilon(DELTA)
        # Between one run's own cost and that of (2 + eta) runs plus the densities.
        assert loss <= found <= 3.0 * (loss + math.log(2.0 / 0.75)) + 1.0


def test_profile_is_a_profile() -> None:
    for pair in (pair_of(GAUSSIAN), randomized_response(1.0, 1e-4)):
        for trials in (Geometric(5), Poisson(2), Binomial(4, 2.0), Logarithmic(3)):
            profile = HistoryProfile(pair, trials, (0.75, 2.0), step=0.1)
            eps = np.linspace(-30.0, 60.0, 301)
            values = profile.delta(eps)
            assert values.shape == eps.shape
            assert np.all((values >= 0.0) & (values <= 1.0))
            assert np.all(np.diff(values) <= 1e-12)
            assert np.all(values >= np.minimum(-np.expm1(np.minimum(eps, 0.0)), 1.0) - 1e-12)
            for delta in (1e-2, 1e-3):
                assert float(profile.delta(profile.epsilon(delta))) <= delta


def test_wider_bounds_and_more_runs_never_cost_less() -> None:
    pair = pair_of(GAUSSIAN)
    bounds = ((1, 1), (0.9, 1.25), (0.75, 2))
    found = [epsilon_of(pair, Geometric(10), b, step=0.05) for b in bounds]
    assert found == sorted(found)
    found = [epsilon_of(pair, Geometric(m), (0.75, 2.0), step=0.05) for m in (2, 5, 20)]
    assert found == sorted(found)


def test_one_run_costs_one_run() -> None:
    pair = pair_of(GAUSSIAN)
    assert (
        epsilon_of(pair, Geometric(1.0), (0.75, 2.0)) <= pair.epsilon(DELTA) + math.log(2) + 0.02
    )


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        ({"density_bounds": (1.2, 2.0)}, "density_bounds"),
        ({"density_bounds": (0.5, math.nan)}, "density_bounds"),
        ({"step": 0.0}, "step"),
        ({"points_per_spread": -1.0}, "points_per_spread"),
    ],
)
def test_bad_arguments_are_named(arguments, name) -> None:
    with pytest.raises(InvalidArgumentError, match=name):
        HistoryProfile(DominatingPair.identity(), Geometric(2), **arguments)


def test_nan_epsilon_and_bad_delta_are_refused() -> None:
    profile = HistoryProfile(DominatingPair.identity(), Geometric(2))
    with pytest.raises(InvalidArgumentError, match="epsilons"):
        profile.delta(math.nan)
    with pytest.raises(InvalidArgumentError, match="delta"):
        profile.epsilon(0.0)
