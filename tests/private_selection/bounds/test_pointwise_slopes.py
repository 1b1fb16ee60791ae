"""What is charged for a cell with slopes, against values of single step functions in it."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from optuna_dp.accounting.dominating_pairs import DominatingPair
from optuna_dp.private_selection.bounds import pointwise_refined, pointwise_slopes
from optuna_dp.private_selection.bounds.history_bound import _Law
from optuna_dp.private_selection.bounds.history_kernel import HistoryGrid
from optuna_dp.private_selection.bounds.history_stationary import LinearSystems
from optuna_dp.private_selection.bounds.pointwise_kernel import StepKernels
from optuna_dp.private_selection.bounds.pointwise_slopes import SlopedKernel

SABOTAGES = ("no rest", "nothing moved", "no gap", "cells too narrow", "slopes turned")
_RUNS = 44
# Steps to a loss that is infinite to the last digit.
_FAR = 250


class Sabotaged(SlopedKernel):
    """What each part of the bound is for: without it the bound is wrong."""

    kind = ""

    def __init__(self, *args) -> None:
        super().__init__(*args)
        if self.kind == "nothing moved":
            self._moved = 0.0 * self._moved
        if self.kind == "no gap":
            self._gap = 0.0 * self._gap
        if self.kind == "cells too narrow":
            self.radius = 0.8 * self.radius
        if self.kind == "nothing infinite":
            self._infinite, self.centre.keep_infinite = 0.0 * self._infinite, 0.0 * self._infinite

    def most(self, bound):
        if self.kind == "no rest":
            rest = bound.rest
            rest.inner[:], rest.left[:], rest.right[:] = 0.0, 0.0, 0.0
        return super().most(bound)

    def _steepness(self, base):
        steep = super()._steepness(base)
        return -steep if self.kind == "slopes turned" else steep


def exact_values(
    mass: np.ndarray,
    steps: np.ndarray,
    grid: HistoryGrid,
    u: np.ndarray,
    law: _Law,
    bounds: tuple[float, float],
    startup: int,
) -> np.ndarray:
    """V1_1 at the states of the grid, of one step function, by the theorem letter by letter.

    ``steps`` are the losses in units of the grid, rising, so that no state lies between points;
    the lattice reaches as far as the runs do, and nothing is rounded outward.
    """
    c, big_c = bounds
    levels = [1.0, max((1 - c), (big_c - 1)) / (big_c - c), min(1 - c, big_c - 1) / (big_c - c), 0]
    pmf = law.pmf
    if law.high > 0.0:
        pmf = np.concatenate([pmf, pmf[-1] * law.high ** np.arange(1, _RUNS)])
    ends = np.concatenate([[0.0], u, [mass.sum()]])
    below = np.cumsum(mass) - mass
    # How much of each atom lies on each of the four levels.
    share = np.clip(np.minimum.outer(ends[1:], below + mass), 0, None)
    share = np.clip(share - np.maximum.outer(ends[:-1], below), 0.0, None)

    def kept(slot: int) -> tuple[np.ndarray, np.ndarray]:
        low, high = (c, big_c) if slot > startup else (1.0, 1.0)
        most = [1 - max(low * k, 1 - high * (1 - k)) for k in levels]
        least = [1 - min(high * k, 1 - low * (1 - k)) for k in levels]
        return np.array(most) @ share, np.array(least) @ share

    far = (pmf.size + 1) * int(np.abs(steps).max())
    zero = int(np.argmin(np.abs(grid.x)))
    size = grid.size + 2 * far
    # States so far down are not reached from the grid.
    t = np.exp(np.minimum(-grid.spacing * (np.arange(size) - far - zero), 600.0))

    def applied(v: np.ndarray, slot: int) -> np.ndarray:
        most, least = kept(slot)
        out = np.zeros(size)
        for m, n, step in zip(most, least, steps, strict=True):
            moved = np.roll(v, -step)  # what comes round the ends never reaches the grid
            out += m * np.maximum(moved, 0.0) - n * np.maximum(-moved, 0.0)
        return out

    after, before = np.zeros(size), np.zeros(size)
    for k in range(pmf.size, 0, -1):
        after = pmf[k - 1] * (1.0 - t) + applied(after, k + 1)
        low, high = (c, big_c) if k > startup else (1.0, 1.0)
        before = np.maximum(high * after, low * after) + applied(before, k)
    return before[far : far + grid.size]


def violations(seed: int, instances: int, sent: float = 0.0) -> Iterator[tuple[float, float]]:
    """Yields (how far a step function's value exceeds the bound of its cell, its excess).

    ``sent`` is the mass that the grid counts as infinite loss, and that really is at a large one.
    """
    rng = np.random.default_rng(seed)
    for _ in range(instances):
        steps = np.sort(rng.choice(np.arange(-4, 5), int(rng.integers(2, 5)), replace=False))
        mass = np.maximum(rng.dirichlet(np.ones(steps.size)), 0.01)
        mass /= mass.sum()
        h = float(rng.choice([0.1, 0.3]))
        # O'-mass must not exceed one: the rest of it has no O-mass.
        while (mass * np.exp(-h * steps)).sum() > 1.0:
            steps = steps + 1
        losses = h * steps
        null = 1.0 - float((mass * np.exp(-losses)).sum())
        pair = DominatingPair(losses, mass, null_mass=max(null, 0.0))
        c, big_c = float(rng.choice([0.3, 0.5, 0.75, 0.9])), float(rng.choice([1.1, 1.25, 2, 4]))
        startup = int(rng.choice([0, 0, 1, 2]))
        if rng.random() < 0.5:
            r = float(rng.choice([0.3, 0.5]))
            law = _Law((1 - r) * r ** np.arange(max(startup + 1, 1)), r, r, 0.0)
        else:
            pmf = rng.dirichlet(np.ones(int(rng.integers(max(startup, 1), 5))))
            law = _Law(pmf, 0.0, 0.0, 0.0)
        grid = HistoryGrid(pair, h, 6.0 * h, 6.0 * h)
        if abs(grid.spacing - h) > 1e-12:
            continue
        if sent:
            mass, steps = np.append(mass * (1.0 - sent), sent), np.append(steps, _FAR)
            grid.mass, grid.infinite_mass = grid.mass * (1.0 - sent), sent
        kernels = StepKernels(grid, (c, big_c))
        middle = np.sort(rng.random(3) ** rng.choice([1.0, 3.0]))
        width = float(rng.choice([0.02, 0.1, 0.4])) * rng.random((2, 3))
        low = np.maximum.accumulate(np.clip(middle - width[0], 0.0, 1.0))
        high = np.minimum.accumulate(np.clip(middle + width[1], 0.0, 1.0)[::-1])[::-1]
        kernel, found = pointwise_refined._recursion(
            kernels, low[None], high[None], law, (c, big_c), startup
        )
        # Nothing is claimed for such a cell.
        bound = np.inf if kernel.unusable[0] else kernel.most(found).inner[0]
        best = np.full(grid.size, -np.inf)
        for number in range(5):
            corner = rng.integers(0, 2, 3) if number < 4 else rng.random(3)
            u = low + corner * (high - low)
            if np.all(np.diff(u) >= 0.0):
                value = exact_values(mass, steps, grid, u, law, (c, big_c), startup)
                best = np.maximum(best, value)
        yield float(((best - bound) / (1.0 + grid.t)).max()), float((bound - best).min())


def test_no_step_function_of_80_cells_is_worth_more_than_its_cell() -> None:
    found = list(violations(1, 80))
    assert len(found) > 50
    assert max(over for over, _ in found) <= 1e-9


@pytest.mark.slow
def test_no_step_function_of_2000_more_cells() -> None:
    found = list(violations(2, 3000))
    assert len(found) > 2000
    assert max(over for over, _ in found) <= 1e-9


def test_nor_where_the_cell_reaches_into_what_the_grid_sent_to_infinite_loss(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = list(violations(4, 40, sent=0.3))
    assert len(found) > 20
    assert max(over for over, _ in found) <= 1e-9
    monkeypatch.setattr(Sabotaged, "kind", "nothing infinite")
    monkeypatch.setattr(pointwise_refined, "SlopedKernel", Sabotaged)
    assert max(over for over, _ in violations(4, 10, sent=0.3)) > 1e-4


class OffBySome(LinearSystems):
    """A solver whose answers are too small."""

    def solve(self, *args):
        return 0.9 * super().solve(*args)

    def again(self, *args):
        return 0.9 * super().again(*args)


def test_a_solver_that_errs_costs_closeness_and_nothing_else(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(pointwise_slopes, "LinearSystems", OffBySome)
    assert max(over for over, _ in violations(5, 150)) <= 1e-9


@pytest.mark.parametrize("kind", SABOTAGES)
def test_every_sabotaged_cell_is_caught(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Sabotaged, "kind", kind)
    monkeypatch.setattr(pointwise_refined, "SlopedKernel", Sabotaged)
    for over, _ in violations(3, 1500):
        if over > 1e-7:
            return
    pytest.fail(f"{kind!r} was not caught")
