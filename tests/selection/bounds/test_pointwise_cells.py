"""Lemma C: the operator of a cell is above that of every step function in it, for every V."""

from __future__ import annotations

import numpy as np
import pytest
from selection.bounds.history_reference import lo_hi

from optuna_dp.accounting.dominating_pairs import DominatingPair
from optuna_dp.selection.bounds.pointwise_grid import LossGrid, Values
from optuna_dp.selection.bounds.pointwise_kernel import CellKernels

SABOTAGES = (
    "p above is ignored twice",
    "p below is ignored twice",
    "dearest first",
    "twice as much",
    "g and h exchanged",
)


class Sabotaged(CellKernels):
    """What each part of the operator is for: without it some step function is above."""

    kind = ""

    def kernel(self, low, high, g, h):
        low, high = low.copy(), high.copy()
        width = high[:, 3] - low[:, 3]
        if self.kind == "p above is ignored twice":
            high[:, 3] -= 0.5 * width
        if self.kind == "p below is ignored twice":
            low[:, 3] += 0.5 * width
        if self.kind == "g and h exchanged":
            g, h = h, g
        return super().kernel(low, high, g, h)

    def taken_back(self, too_much, rises, low, high, at):
        if self.kind == "twice as much":
            too_much = 2.0 * too_much
        if self.kind != "dearest first":
            return super().taken_back(too_much, rises, low, high, at)
        # The same knapsack, with the order of prices turned round.
        low, high, left = low[:, :, None], high[:, :, None], np.maximum(too_much, 0.0)[:, None]
        cost = np.zeros((low.shape[0], at.size))
        for i in np.argsort(-rises / np.maximum(self.a, 1e-12)):
            if self.a[i] > 0.0:
                decrease = self.a[i] * np.maximum(np.minimum(high[:, i], at) - low[:, i], 0.0)
                taken = np.minimum(decrease, left)
                cost += rises[i] / self.a[i] * taken
                left = left - taken
        return cost


def shares(mass: np.ndarray, u: np.ndarray) -> np.ndarray:
    """How much of each atom lies on each of the four levels of one step function."""
    below = np.cumsum(mass) - mass
    ends = np.concatenate([[0.0], u, [mass.sum()]])
    share = np.minimum.outer(ends[1:], below + mass) - np.maximum.outer(ends[:-1], below)
    return np.clip(share, 0.0, None)


def largest_excess(kind: type[CellKernels], seed: int, instances: int) -> float:
    """The most by which a step function of a cell exceeds the cell's operator."""
    rng = np.random.default_rng(seed)
    worst = -np.inf
    for _ in range(instances):
        atoms = int(rng.integers(2, 7))
        mass = rng.dirichlet(np.ones(atoms) * rng.choice([0.3, 1.0, 5.0]))
        steps = np.sort(rng.choice(np.arange(-4, 6), atoms, replace=False))
        odds = mass * np.exp(-0.25 * steps)
        if odds.sum() > 1.0:
            shift = int(np.ceil(np.log(odds.sum()) / 0.25))
            steps = steps + shift
        losses = 0.25 * steps
        null = 1.0 - float(mass @ np.exp(-losses))
        grid = LossGrid(DominatingPair(losses, mass, 0.0, max(null, 0.0)), 0.25, 3.0, 3.0)
        c = float(rng.choice([0.1, 0.5, 0.75, 0.9, 1.0]))
        big_c = 1.0 if c == 1.0 else float(rng.choice([1.1, 1.25, 2.0, 4.0]))
        kernels = kind(grid, (c, big_c))
        bends = (1.0, 0.0)
        if big_c > c:
            bends = ((1.0 - c) / (big_c - c), (big_c - 1.0) / (big_c - c))
        levels = [1.0, max(bends), min(bends), 0.0]
        # A cell, and step functions that lie in it.
        ends = np.sort(rng.random((2, 3)), axis=1)
        u_low, u_high = ends.min(axis=0), ends.max(axis=0)
        u = np.sort(u_low + rng.random((40, 3)) * (u_high - u_low), axis=1)
        u = u[np.all((u >= u_low) & (u <= u_high), axis=1)]
        if u.shape[0] == 0:
            continue
        p = u @ kernels.a
        centre, radius = rng.choice(p), rng.choice([0.0, 0.01, 0.1])
        u = u[np.abs(p - centre) <= radius]
        low = np.append(u_low, centre - radius)[None]
        high = np.append(u_high, centre + radius)[None]
        # Any V that does not decrease; the ends as they must be.
        inner = np.sort(rng.normal(0.0, 1.0, grid.size)) + rng.choice([-1.0, 0.0, 1.0])
        values = Values(inner[None], np.array([min(-1.0, inner[0])]), np.array([inner[-1] + 1.0]))
        for plain in (False, True):
            of_cell = (kernels.plain if plain else kernels.adaptive)(low, high).apply(values)
            bounds = (1.0, 1.0) if plain else (c, big_c)
            lo, hi = np.transpose([lo_hi(k, *bounds) for k in levels])
            # States whose every tap lies on the grid.
            first, last = max(0, -grid.first_tap), grid.size - max(0, grid.last_tap)
            for one in u:
                share = shares(grid.mass, one)
                most, least = (1.0 - lo) @ share, (1.0 - hi) @ share
                for state in range(first, last):
                    there = inner[state + grid.first_tap : state + grid.last_tap + 1]
                    exact = most @ np.maximum(there, 0.0) - least @ np.maximum(-there, 0.0)
                    worst = max(worst, exact - float(of_cell.inner[0, state]))
    return worst


def test_the_worked_example_of_what_is_taken_back() -> None:
    high = 1.0 / (1.0 + np.exp(-1.0))
    pair = DominatingPair(np.array([-1.0, 1.0]), np.array([1.0 - high, high]), 0.0, 0.0)
    kernels = CellKernels(LossGrid(pair, 0.5, 2.0, 2.0), (0.75, 2.0))
    kernels.a = np.array([0.5, 0.5])
    found = kernels.taken_back(
        np.array([0.15]), np.array([0.2, 0.6]), np.full((1, 2), 0.1), np.full((1, 2), 0.5),
        np.array([0.4]),
    )  # fmt: skip
    assert found == pytest.approx(0.02)


@pytest.mark.slow
def test_no_step_function_of_a_cell_exceeds_its_operator() -> None:
    excess = largest_excess(CellKernels, 1, 150)
    assert excess <= 1e-12
    # A cell of one step function is that step function: the check is not vacuous.
    assert excess > -1e-9


@pytest.mark.slow
def test_no_step_function_of_1500_more_cells() -> None:
    assert largest_excess(CellKernels, 2, 1500) <= 1e-12


@pytest.mark.slow
@pytest.mark.parametrize("kind", SABOTAGES)
def test_every_sabotaged_operator_is_caught(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Sabotaged, "kind", kind)
    assert largest_excess(Sabotaged, 1, 150) > 1e-4
