"""A cover of all step functions by cells, finer where the bound depends on it.

Any cover is sound: Phi(t) is at most the largest value over its cells, coarse ones included
(``docs/explanation/pointwise-bound.md``, "Cells"). So the search may stop at any time, and what
it has not looked at closely is charged at what is certain about it. It counts cells and never
looks at the clock: the same event has the same bound on every machine.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from optuna_dp.core.arrays import BoolArray, FloatArray, IntArray
from optuna_dp.selection.bounds.pointwise_grid import LossGrid, Values
from optuna_dp.selection.bounds.pointwise_kernel import CellKernels
from optuna_dp.selection.laws.base import TrialCount

# Deltas whose epsilons decide where cells are refined.
_AIMS = (1e-2, 1e-5, 1e-8)
_FIRST_CELLS = 24
# Cells halved at a time, at most; and of those the ones this important beside the first. What is
# halved changes what is worth halving next, so that more at a time make a worse cover.
_BATCH = 40
_LEAST_SHARE = 0.2
# How soon p is halved beside the three steps, each of which moves a part of k0 only.
_WEIGHT_OF_P = 4.0
_FARTHEST_FALL = 6.0
_STRAIGHT = 3.0


@dataclass(frozen=True, eq=False)
class Cells:
    """Boxes of (u1, u2, u3, p) that hold every u1 <= u2 <= u3, as coordinates of an axis.

    Shapes (cells, 4).
    """

    low: FloatArray
    high: FloatArray

    def take(self, selection: BoolArray | IntArray | slice) -> Cells:
        """Returns some of the cells."""
        return Cells(self.low[selection], self.high[selection])

    def joined(self, addition: Cells) -> Cells:
        """Returns the cells of both."""
        return Cells(
            np.concatenate([self.low, addition.low]), np.concatenate([self.high, addition.high])
        )


class Axis:
    """A coordinate s of O-quantiles u, on which cells are halved.

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
        """Returns cells that hold all step functions: intervals of p."""
        low, high = np.zeros((_FIRST_CELLS, 4)), np.full((_FIRST_CELLS, 4), self.end)
        ends = np.linspace(0.0, self.end, _FIRST_CELLS + 1)
        low[:, 3], high[:, 3] = ends[:-1], ends[1:]
        return Cells(low, high)

    def quantiles(self, s: FloatArray, finite_mass: float) -> FloatArray:
        """Returns u for each s; both ends exactly."""
        u = np.interp(s, self._s, self._u) * finite_mass
        return np.where(s <= 0.0, 0.0, np.where(s >= self.end, finite_mass, u))

    def some_step_function(self, cells: Cells, a: FloatArray) -> BoolArray:
        """Returns whether a cell may hold any u1 <= u2 <= u3 with p = sum a_i u_i."""
        low, high = self.quantiles(cells.low, 1.0), self.quantiles(cells.high, 1.0)
        meets = (low[:, :3] @ a <= high[:, 3] + 1e-12) & (low[:, 3] <= high[:, :3] @ a + 1e-12)
        return np.asarray(np.all(cells.low <= cells.high, axis=1) & meets)


def search(
    axis: Axis,
    kernels: CellKernels,
    evaluate: Callable[[Cells], Values],
    goes_on: Callable[[int], bool],
) -> tuple[Cells, Values]:
    """Returns a cover and the values of its cells.

    Args:
        axis: The coordinate.
        kernels: Says how k0 depends on the three steps, on the grid that ``evaluate`` uses.
        evaluate: Returns V1_1 of cells, an upper bound for every step function in each.
        goes_on: Says whether more cells may be evaluated, after so many.
    """
    cover = axis.everything()
    values, evaluated = evaluate(cover), cover.low.shape[0]
    sizes = np.append(np.maximum(kernels.g, kernels.h), _WEIGHT_OF_P)
    share_of = _Shares(kernels.grid)
    while goes_on(evaluated):
        share = share_of(values)
        widest = np.argsort(-share, kind="stable")[:_BATCH]
        widest = widest[share[widest] > _LEAST_SHARE * share.max()]
        if widest.size == 0:
            break
        halves = _halved(cover.take(widest), sizes)
        selection = axis.some_step_function(halves, kernels.a)
        halves, of = halves.take(selection), np.tile(widest, 2)[selection]
        new_values = evaluate(halves)
        # What holds for a cell holds for its halves.
        np.minimum(new_values.inner, values.inner[of], out=new_values.inner)
        evaluated += of.size
        unsplit = np.ones(share.size, dtype=bool)
        unsplit[widest] = False
        cover, values = cover.take(unsplit).joined(halves), values.take(unsplit).joined(new_values)
    return cover, values


def _halved(cells: Cells, sizes: FloatArray) -> Cells:
    """Returns the first halves of all cells, then the second ones.

    Args:
        cells: The cells.
        sizes: How much depends on each coordinate: cells are halved along the widest one.
    """
    row = np.arange(cells.low.shape[0])
    along = ((cells.high - cells.low) * sizes).argmax(axis=1)
    lower_high, upper_low = cells.high.copy(), cells.low.copy()
    lower_high[row, along] = upper_low[row, along] = 0.5 * (
        cells.low[row, along] + cells.high[row, along]
    )
    low, high = np.concatenate([cells.low, upper_low]), np.concatenate([lower_high, cells.high])
    # The order of the three shrinks a box to the hull of what is allowed in it.
    low[:, :3] = np.maximum.accumulate(low[:, :3], axis=1)
    high[:, :3] = np.minimum.accumulate(high[:, 2::-1], axis=1)[:, ::-1]
    return Cells(low, high)


class _Shares:
    """How much of delta depends on each cell, at the epsilons of a few deltas. No bound."""

    def __init__(self, grid: LossGrid) -> None:
        self._mass = grid.mass
        zero = int(np.argmin(np.abs(grid.x)))
        taps = np.arange(grid.first_tap, grid.last_tap + 1)
        # The state l - eps, for eps on the grid of losses.
        states = taps[None, :] - np.arange(grid.size)[:, None] + zero
        self._states = np.clip(states, 0, grid.size - 1)

    def __call__(self, values: Values) -> FloatArray:
        """Returns the share of each cell."""
        phi = np.maximum(values.inner.max(axis=0), 0.0)
        largest_cells = values.inner.argmax(axis=0)
        deltas = phi[self._states] @ self._mass
        shares = np.zeros(values.right.size)
        for aim in _AIMS:
            # The last epsilon whose delta is above the aim: beyond it there may be nothing at all.
            # It may be the last one of all: wide cells say little.
            is_below = deltas <= aim
            position = (
                max(int(np.argmax(is_below)) - 1, 0) if is_below.any() else is_below.size - 1
            )
            state = self._states[position]
            parts = self._mass * phi[state]
            if (total := float(parts.sum())) > 0.0:
                shares += np.bincount(largest_cells[state], parts / total, shares.size)
        return shares
