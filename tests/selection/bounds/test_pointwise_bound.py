"""The pointwise bound as the module computes it: grids, cells, laws of T, edges."""

from __future__ import annotations

import math

import numpy as np
import pytest
from refusals import refuses
from selection.bounds.pointwise_reference import exact_value, random_space

from optuna_dp import Binomial, Geometric, Logarithmic, NegativeBinomial, Poisson
from optuna_dp.accounting import events
from optuna_dp.accounting.dominating_pairs import DominatingPair
from optuna_dp.accounting.kinds.approximate import randomized_response
from optuna_dp.accounting.run_profile import pair_of
from optuna_dp.selection.bounds import pointwise_bound, pointwise_stationary
from optuna_dp.selection.bounds.pointwise_bound import (
    PointwiseProfile,
    heads_of,
    law_of,
    recursion,
)
from optuna_dp.selection.bounds.pointwise_grid import LossGrid, Values
from optuna_dp.selection.bounds.pointwise_kernel import CellKernels
from optuna_dp.selection.bounds.pointwise_search import Axis
from optuna_dp.selection.bounds.pointwise_stationary import ratio_step, solve_stationary
from optuna_dp.selection.bounds.profile_bound import DataProfile

DELTA = 1e-5
GAUSSIAN = events.gaussian(4.0)


def sgd(noise: float) -> DominatingPair:
    return pair_of(events.dp_sgd(noise_multiplier=noise, sample_rate=256 / 60000, steps=2344))


def epsilon_of(pair, trials, bounds, kind=PointwiseProfile, **options) -> float:
    sides = (pair, pair.reversed())
    return max(kind(side, trials, bounds, **options).epsilon(DELTA) for side in sides)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("noise", "mean", "bounds", "reference"),
    [
        pytest.param(1.0, 10, (0.9, 1.25), 1.733, marks=pytest.mark.slow),
        (1.0, 30, (0.75, 2.0), 2.521),
        pytest.param(0.71, 10, (0.75, 2.0), 4.555, marks=pytest.mark.slow),
        pytest.param(0.71, 30, (0.9, 1.25), 4.796, marks=pytest.mark.slow),
        pytest.param(1.0, 10, (0.75, 2.0), 1.959, marks=pytest.mark.slow),
        pytest.param(1.0, 30, (0.9, 1.25), 2.068, marks=pytest.mark.slow),
        pytest.param(0.71, 10, (0.9, 1.25), 4.119, marks=pytest.mark.slow),
        pytest.param(0.71, 30, (0.75, 2.0), 5.565, marks=pytest.mark.slow),
    ],
)
def test_reference_table(noise, mean, bounds, reference) -> None:
    found = epsilon_of(sgd(noise), Geometric(mean), bounds)
    # The reference comes from a search that took several times as long.
    assert reference * 0.99 <= found <= reference * 1.02


@pytest.mark.slow
@pytest.mark.parametrize(("noise", "trials"), [(1.0, Geometric(10)), (0.71, Poisson(10))])
def test_without_adaptivity_it_is_the_profile_bound(noise, trials) -> None:
    pair = sgd(noise)
    other = epsilon_of(pair, trials, (1.0, 1.0), DataProfile)
    found = epsilon_of(pair, trials, (1.0, 1.0))
    assert other * 0.9995 <= found <= other * 1.006


@pytest.mark.slow
@pytest.mark.parametrize(
    ("option", "values"), [("cells", (24, 100, 400, 1200)), ("points_per_spread", (2, 4, 8, 16))]
)
def test_more_cells_and_finer_grids_converge_from_above(option, values) -> None:
    pair = pair_of(GAUSSIAN)
    fixed = {"cells": 200, "points_per_spread": 6.0}
    found = [
        PointwiseProfile(pair, Geometric(10), (0.75, 2.0), **{**fixed, option: value})
        for value in values
    ]
    deltas = np.array([profile.delta([0.8, 1.1, 1.5]) for profile in found])
    # Another grid has another search: what is left of that is small.
    assert np.all(np.diff(deltas, axis=0) < (0.0 if option == "cells" else 0.02 * deltas[-1]))


@pytest.mark.slow
def test_narrow_grids_are_larger_and_still_sound() -> None:
    """Beyond the grid the ends take over: V(1, 0), V(0, 1), chords. Never zero."""
    rng = np.random.default_rng(7)
    checked = 0
    while checked < 25:
        space = random_space(rng, startup=checked % 2 == 0)
        inst = space.instance
        if inst.infinite > 0.0 or inst.law.tail(inst.pmf.size) > 0.0:
            continue
        checked += 1
        law, axis = law_of(inst.law, space.startup + 1), Axis(inst.law)
        k0s = rng.random((20, inst.mass.size + 2)) ** rng.choice([0.3, 1.0, 3.0], (20, 1))
        for reach in (0.05, 0.5, 6.0):
            kernels = CellKernels(LossGrid(inst.pair, 0.05, reach, reach), inst.bounds)
            cover = axis.everything()
            ends = [axis.quantiles(s, kernels.finite_mass) for s in (cover.low, cover.high)]
            values = recursion(
                kernels.adaptive(*ends), kernels.plain(*ends), law, inst.bounds, space.startup
            )
            for index in (0, kernels.grid.size // 2, kernels.grid.size - 1):
                t = float(kernels.grid.t[index])
                exact = max(exact_value(space, t, k0) for k0 in k0s)
                assert values.inner[:, index].max() >= exact - 1e-10


def test_splitting_keeps_both_masses() -> None:
    pair = pair_of(GAUSSIAN)
    grid = LossGrid(pair, 0.1, 2.0, 2.0)
    assert math.isclose(grid.mass.sum() + grid.infinite_mass, 1.0, abs_tol=1e-12)
    prime = float(grid.mass @ np.exp(-grid.taps))
    assert prime <= 1.0 + 1e-12
    assert prime > 1.0 - 1e-9
    split = DominatingPair(grid.taps, grid.mass, grid.infinite_mass, max(0.0, 1.0 - prime))
    eps = np.linspace(-3.0, 3.0, 301)
    assert np.all(split.delta(eps) >= pair.delta(eps) - 1e-12)
    assert grid.x[np.argmin(np.abs(grid.x))] == 0.0


def test_any_solver_is_sound(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the solver returns is only where the proof starts."""
    grid = LossGrid(pair_of(GAUSSIAN), 0.2, 3.0, 3.0)
    kernels, cover = CellKernels(grid, (0.75, 2.0)), Axis(Geometric(8)).everything()
    ends = [Axis(Geometric(8)).quantiles(s, kernels.finite_mass) for s in (cover.low, cover.high)]
    kernel, rows = kernels.adaptive(*ends), cover.low.shape[0]
    first = np.broadcast_to(1.0 - grid.t, (rows, grid.size))
    source = Values(first, np.full(rows, -1.0), np.ones(rows))
    exact = solve_stationary(kernel, source, 0.8, 0.875)
    noise = np.random.default_rng(1).normal(size=first.shape)
    for wrong in (first, -first, first + noise, 10.0 * noise):
        guess = Values(wrong, exact.left - 0.1, exact.right - 0.1)
        monkeypatch.setattr(
            pointwise_stationary, "proposed_solution", lambda *_, guess=guess: guess
        )
        found = solve_stationary(kernel, source, 0.8, 0.875)
        assert np.all(found.inner >= exact.inner - 1e-9 * (1.0 + grid.t))
        # Without what is added it is not.
        assert np.any(guess.inner < exact.inner - 1e-3)


@pytest.mark.slow
def test_stationary_solution_is_a_supersolution_and_geometric_agrees_with_its_cap(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(pointwise_bound, "_WIDER", 1.0)
    pair = pair_of(GAUSSIAN)
    grid = LossGrid(pair, 0.05, 3.0, 3.0)
    kernels, cover = CellKernels(grid, (0.75, 2.0)), Axis(Geometric(8)).everything()
    ends = [Axis(Geometric(8)).quantiles(s, kernels.finite_mass) for s in (cover.low, cover.high)]
    kernel, rows = kernels.adaptive(*ends), cover.low.shape[0]
    source = Values(
        np.broadcast_to(1.0 - grid.t, (rows, grid.size)), np.full(rows, -1.0), np.ones(rows)
    )
    for low, high in ((0.875, 0.875), (0.8, 0.875)):
        solved = solve_stationary(kernel, source, low, high)
        step = ratio_step(kernel, source, solved, low, high)
        assert np.all(solved.inner >= step.inner - 1e-12 * (1.0 + grid.t))
        assert np.all(solved.left >= step.left - 1e-12)
        assert np.all(solved.right >= step.right - 1e-12)
        # And not by much: the residual that was added is rounding.
        assert np.max(np.abs(solved.inner - step.inner) / (1.0 + grid.t)) < 1e-9
    eps = np.array([0.3, 1.0, 1.6])
    uncapped = PointwiseProfile(pair, Geometric(4), (0.75, 2.0), cells=100)
    capped = PointwiseProfile(
        pair, Geometric(4).capped(90), (0.75, 2.0), cells=100, cover=uncapped.cover
    )
    assert np.allclose(uncapped.delta(eps), capped.delta(eps), rtol=2e-3)


@pytest.mark.slow
@pytest.mark.parametrize(
    "shape", [-0.5, 3.0, *(pytest.param(s, marks=pytest.mark.slow) for s in (0.0, 0.5))]
)
def test_tail_of_negative_binomial_laws_is_bounded_from_above(shape, monkeypatch) -> None:
    """Stopping the exact recursion at N and bounding the rest, against a cap far beyond."""
    monkeypatch.setattr(pointwise_bound, "_WIDER", 1.0)
    pair = pair_of(GAUSSIAN)
    trials = NegativeBinomial(shape=shape, mean=5)
    options = {"cells": 60, "points_per_spread": 5.0}
    eps = np.array([0.3, 1.0, 1.6])
    ours = PointwiseProfile(pair, trials, (0.75, 2.0), **options)
    assert ours.missing == 0.0
    # The same cells and grid: what is left is how the rest of the law is bounded.
    long = PointwiseProfile(pair, trials.capped(400), (0.75, 2.0), **options, cover=ours.cover)
    assert np.all(ours.delta(eps) >= long.delta(eps) * 0.97)
    assert np.all(ours.delta(eps) <= long.delta(eps) * 1.06)


@pytest.mark.parametrize("trials", [NegativeBinomial(shape=-0.5, mean=20), Logarithmic(20)])
def test_what_is_charged_for_long_laws_does_not_depend_on_where_the_recursion_stops(
    trials,
) -> None:
    """Cells stop at different runs, and one number is charged for all of them."""
    heads = heads_of(trials, np.array([0.1, 0.9, 0.999, 1.0]), 1e-9)
    assert np.all(np.diff(heads) >= 0)
    assert heads[0] < heads[-1]
    for head in (1, 100, *heads, 4095):
        law = law_of(trials, int(head))
        assert law.head >= head
        assert law.missing == 0.0
        assert 0.0 < law.low <= law.high < 1.0


@pytest.mark.slow
@pytest.mark.parametrize(
    ("trials", "startup", "bounds", "most"),
    [
        (NegativeBinomial(shape=0.5, mean=20), 10, (0.75, 2.0), 1.667),
        (NegativeBinomial(shape=2.0, mean=20), 0, (0.5, 4.0), 3.917),
        (Poisson(20), 0, (0.5, 4.0), 6.92),
    ],
)
def test_searches_of_pure_runs_are_close(trials, startup, bounds, most) -> None:
    """Epsilon moves in leaps there: with fewer cells the first was 1.75, the second 4.0."""
    pair = randomized_response(0.5)
    found = PointwiseProfile(pair, trials, bounds, startup_runs=startup).epsilon(DELTA)
    assert found <= most


@pytest.mark.slow
def test_infinite_laws_that_are_cut_charge_what_they_cut() -> None:
    pair = pair_of(GAUSSIAN)
    profile = PointwiseProfile(pair, Poisson(4), (0.9, 1.25))
    assert 0.0 < profile.missing < 1e-14
    assert float(profile.delta(60.0)) >= profile.missing


@pytest.mark.parametrize("bounds", [(1.0, 1.0), (0.75, 2.0), (0.01, 50.0)])
@pytest.mark.parametrize("trials", [Geometric(10), Poisson(3), Binomial(6, 2.0), Logarithmic(4)])
def test_runs_that_cost_nothing_cost_nothing(trials, bounds) -> None:
    profile = PointwiseProfile(DominatingPair.identity(), trials, bounds)
    assert float(profile.delta(0.0)) == 0.0
    assert profile.epsilon(1e-9) == 0.0
    # For negative epsilon every mechanism has 1 - e^eps.
    assert math.isclose(float(profile.delta(-1.0)), -math.expm1(-1.0), rel_tol=1e-9)


@pytest.mark.parametrize("trials", [Geometric(10), Poisson(3), Binomial(6, 2.0)])
def test_runs_that_protect_nothing_are_infinite_not_nan(trials) -> None:
    profile = PointwiseProfile(DominatingPair.infinite(), trials, (0.75, 2.0))
    assert float(profile.delta(3.0)) == pytest.approx(1.0 - trials.pmf(0))
    assert profile.epsilon(1e-5) == math.inf


@pytest.mark.slow
def test_infinite_losses_cost_their_chance_of_occurring_once() -> None:
    """E[T] delta, and no factor C."""
    pair = randomized_response(0.5, 1e-7)
    profile = PointwiseProfile(pair, Geometric(10), (0.5, 5.0))
    assert float(profile.delta(60.0)) == pytest.approx(1e-6, rel=1e-3)


@pytest.mark.slow
def test_a_very_wide_loss_stays_finite() -> None:
    for loss in (20.0, 300.0):
        profile = PointwiseProfile(randomized_response(loss), Geometric(5), (0.75, 2.0), cells=24)
        with np.errstate(all="raise", under="ignore"):
            found = profile.epsilon(DELTA)
        # Between one run's own cost and that of (2 + eta) runs plus the densities.
        assert loss <= found <= 3.0 * (loss + math.log(2.0 / 0.75)) + 1.0


@pytest.mark.slow
def test_profile_is_a_profile() -> None:
    for pair in (pair_of(GAUSSIAN), randomized_response(1.0, 1e-4)):
        for trials in (Geometric(5), Poisson(2), Binomial(4, 2.0), Logarithmic(3)):
            profile = PointwiseProfile(pair, trials, (0.75, 2.0), cells=60)
            eps = np.linspace(-30.0, 60.0, 301)
            values = profile.delta(eps)
            assert values.shape == eps.shape
            assert np.all((values >= 0.0) & (values <= 1.0))
            assert np.all(np.diff(values) <= 1e-12)
            assert np.all(values >= np.minimum(-np.expm1(np.minimum(eps, 0.0)), 1.0) - 1e-12)
            for delta in (1e-2, 1e-3):
                assert float(profile.delta(profile.epsilon(delta))) <= delta


@pytest.mark.slow
def test_wider_bounds_and_more_runs_never_cost_less() -> None:
    pair = pair_of(GAUSSIAN)
    bounds = ((1, 1), (0.9, 1.25), (0.75, 2))
    found = [epsilon_of(pair, Geometric(10), b, cells=100) for b in bounds]
    assert found == sorted(found)
    found = [epsilon_of(pair, Geometric(m), (0.75, 2.0), cells=100) for m in (2, 5, 20)]
    assert found == sorted(found)


@pytest.mark.slow
def test_one_run_costs_one_run() -> None:
    pair = pair_of(GAUSSIAN)
    assert (
        epsilon_of(pair, Geometric(1.0), (0.75, 2.0)) <= pair.epsilon(DELTA) + math.log(2) + 0.02
    )


@pytest.mark.parametrize(
    ("arguments", "argument"),
    [
        ({"density_bounds": (1.2, 2.0)}, "density_bounds"),
        ({"density_bounds": (0.5, math.nan)}, "density_bounds[1]"),
        ({"cells": 0}, "cells"),
        ({"startup_runs": -1}, "startup_runs"),
        ({"points_per_spread": -1.0}, "points_per_spread"),
    ],
)
def test_bad_arguments_are_named(arguments, argument) -> None:
    with refuses(argument):
        PointwiseProfile(DominatingPair.identity(), Geometric(2), **arguments)


def test_nan_epsilon_and_bad_delta_are_refused() -> None:
    profile = PointwiseProfile(DominatingPair.identity(), Geometric(2))
    with refuses("epsilons"):
        profile.delta(math.nan)
    with refuses("delta"):
        profile.epsilon(0.0)
