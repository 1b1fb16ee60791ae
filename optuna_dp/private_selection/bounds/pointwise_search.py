"""A cover of all step functions by cells, finer where the bound hangs on it: branch and bound.

Any cover is sound: Phi(t) is at most the largest value over its cells, coarse ones included
(``docs/explanation/pointwise-bound.md``, "Cells"). So the search may stop at any time, and what
it has not looked at closely is charged at what is certain about it. It counts cells and never
looks at the clock: the same event has the same bound on every machine.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from optuna_dp.arrays import BoolArray, FloatArray, IntArray
from optuna_dp.private_selection.bounds.history_kernel import HistoryGrid, Values
from optuna_dp.private_selection.trial_counts.base import TrialCount

# Deltas whose epsilons decide where cells are refined.
_AIMS = (1e-2, 1e-5, 1e-8)
# Cells refined at a time, at most; and of those the ones this important beside the first. What is
# refined changes what is worth refining next, so that more at a time make a worse cover.
_BATCH = 40
_LEAST_SHARE = 0.2
_FARTHEST_FALL = 6.0
_STRAIGHT = 3.0


@dataclass(frozen=True, eq=False)
class Cells:
    """Boxes of (s1, s2, s3) that together contain every s1 <= s2 <= s3. Shapes (cells, 3)."""

    low: FloatArray
    high: FloatArray

    def take(self, which: BoolArray) -> Cells:
        """Returns some of the cells."""
        return Cells(self.low[which], self.high[which])

    def joined(self, other: Cells) -> Cells:
        """Returns the cells of both."""
        return Cells(
            np.concatenate([self.low, other.low]), np.concatenate([self.high, other.high])
        )


class Axis:
    """A coordinate s of the quantiles u, on which cells are halved.

    It moves where the law of T reacts to u: with the fall of log phi'(1 - u), and with u itself.
    """

    def __init__(self, trials: TrialCount) -> None:
        self._u = np.concatenate([[0.0], np.logspace(-14.0, 0.0, 1401)])
        with np.errstate(divide="ignore"):
            fall = np.log(trials.mean) - np.log(np.asarray(trials.pgf_derivative(1.0 - self._u)))
        fall = np.clip(np.nan_to_num(fall, nan=0.0, posinf=_FARTHEST_FALL), 0.0, _FARTHEST_FALL)
        self._s = np.maximum.accumulate(fall) + _STRAIGHT * self._u
        self.end = float(self._s[-1])

    def everything(self) -> Cells:
        """Returns the one cell that holds all step functions."""
        return Cells(np.zeros((1, 3)), np.full((1, 3), self.end))

    def quantiles(self, s: FloatArray, finite_mass: float) -> FloatArray:
        """Returns u for each s; both ends exactly."""
        u = np.interp(s, self._s, self._u) * finite_mass
        return np.where(s <= 0.0, 0.0, np.where(s >= self.end, finite_mass, u))


@dataclass(frozen=True, eq=False)
class Searched:
    """A cover of all step functions, and the values of its cells."""

    cover: Cells
    values: Values


def search(
    grid: HistoryGrid,
    axis: Axis,
    step_sizes: FloatArray,
    evaluate: Callable[[Cells], Values],
    cells: int,
) -> Searched:
    """Returns a cover and the values of its cells, after evaluating about so many cells.

    Args:
        grid: The grid that ``evaluate`` uses.
        axis: The coordinate.
        step_sizes: Weight of each of the three steps, shape (3,).
        evaluate: Returns V1_1 of cells, an upper bound for every step function in each.
        cells: How many cells may be evaluated, at least 1.
    """
    cover = axis.everything()
    values, spent = evaluate(cover), 1
    weigh = Weights(grid)
    while spent < cells:
        importance = weigh(values) * ((cover.high - cover.low) @ step_sizes) ** 2
        chosen = np.argsort(-importance)[:_BATCH]
        chosen = chosen[importance[chosen] > _LEAST_SHARE * importance.max()]
        if chosen.size == 0:
            break
        widths = (cover.high[chosen] - cover.low[chosen]) * step_sizes
        halves, _ = halved(Cells(cover.low[chosen], cover.high[chosen]), widths.argmax(axis=1))
        new = evaluate(halves)
        spent += halves.low.shape[0]
        kept = np.ones(cover.low.shape[0], dtype=bool)
        kept[chosen] = False
        cover = cover.take(kept).joined(halves)
        values = values.take(kept).joined(new)
    return Searched(cover, values)


def halved(cells: Cells, along: IntArray) -> tuple[Cells, IntArray]:
    """Returns the halves of cells, and of which: but for those without any s1 <= s2 <= s3.

    Args:
        cells: The cells.
        along: Which of the three coordinates is halved, of each cell.
    """
    row = np.arange(cells.low.shape[0])
    middle = 0.5 * (cells.low[row, along] + cells.high[row, along])
    first, second = cells.high.copy(), cells.low.copy()
    first[row, along] = middle
    second[row, along] = middle
    # The order of the three shrinks a box to the hull of what is allowed in it.
    low = np.maximum.accumulate(np.concatenate([cells.low, second]), axis=1)
    high = np.concatenate([first, cells.high])
    high = np.minimum.accumulate(high[:, ::-1], axis=1)[:, ::-1]
    possible = np.all(low <= high, axis=1)
    return Cells(low[possible], high[possible]), np.tile(row, 2)[possible]


class Weights:
    """How much delta hangs on each cell, at the epsilons of a few deltas. A guide, no bound."""

    def __init__(self, grid: HistoryGrid) -> None:
        self._mass = grid.mass
        zero = int(np.argmin(np.abs(grid.x)))
        shifts = np.arange(0, grid.size)
        taps = np.arange(grid.first_tap, grid.last_tap + 1)
        # The state l - eps, for eps on the grid of losses.
        self._states = np.clip(taps[None, :] - shifts[:, None] + zero, 0, grid.size - 1)

    def __call__(self, values: Values) -> FloatArray:
        """Returns the share of each cell."""
        weights = np.zeros(values.right.size)
        for largest, _, share in self._where(values):
            weights += np.bincount(largest, share, weights.size)
        return weights

    def excess(self, values: Values, excess: FloatArray) -> FloatArray:
        """Returns how much of delta may be excess, by cell and step; shapes (cells, 3[, n])."""
        blame = np.zeros(excess.shape[:2])
        phi = np.maximum(values.inner.max(axis=0), 0.0)
        for largest, at, share in self._where(values):
            there = phi[at] > 0.0
            cell, state = largest[there], at[there]
            amount = (share[there] / phi[state])[:, None] * excess[cell, :, state]
            np.add.at(blame, cell, amount)
        return blame

    def _where(self, values: Values) -> Iterator[tuple[IntArray, IntArray, FloatArray]]:
        """Yields, for each aim, the largest cell, the state and the share of delta of each tap."""
        phi = np.maximum(values.inner.max(axis=0), 0.0)
        largest = values.inner.argmax(axis=0)
        deltas = phi[self._states] @ self._mass
        for aim in _AIMS:
            # The last epsilon whose delta is above the aim: beyond it there may be nothing at all.
            # It may be the last one of all: wide cells say little.
            below = deltas <= aim
            last = max(int(np.argmax(below)) - 1, 0) if below.any() else below.size - 1
            at = self._states[last]
            parts = self._mass * phi[at]
            total = float(parts.sum())
            if total > 0.0:
                yield largest[at], at, parts / total
