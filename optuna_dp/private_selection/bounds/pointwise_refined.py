"""The pointwise bound on cells with slopes: far fewer cells for the same bound.

The theorem is that of :mod:`~optuna_dp.private_selection.bounds.pointwise_bound`; only what is charged
for a cell is closer (``docs/explanation/pointwise-bound.md``, "Cells with slopes").
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from optuna_dp.arrays import BoolArray, FloatArray
from optuna_dp.private_selection.bounds import history_bound, pointwise_bound
from optuna_dp.private_selection.bounds.history_bound import _Law
from optuna_dp.private_selection.bounds.history_kernel import FEW_LOSSES, HistoryGrid, Values
from optuna_dp.private_selection.bounds.pointwise_bound import PointwiseProfile
from optuna_dp.private_selection.bounds.pointwise_kernel import StepKernels
from optuna_dp.private_selection.bounds.pointwise_search import Axis, Cells, Weights, halved
from optuna_dp.private_selection.bounds.pointwise_slopes import Sloped, SlopedKernel

# Cells halved at a time, and of those the ones this important beside the first.
_BATCH = 40
_LEAST_SHARE = 0.08
# Shares of delta that may be excess, summed over the aims: with less there is little to gain.
_LITTLE = 0.1
# What is found is not looked at again on a finer grid, as cells without slopes are: it would gain
# less than the finer grid here.
_COARSER = 1.25
# The first cells are so wide that what is charged without slopes is mostly less.
_WIDE = 150


@dataclass(frozen=True, eq=False)
class Looked:
    """Cells, upper bounds on their values, and how much of it may be excess: (cells, 3, n)."""

    cover: Cells
    values: Values
    excess: FloatArray

    def take(self, which: BoolArray) -> Looked:
        """Returns some of the cells."""
        return Looked(self.cover.take(which), self.values.take(which), self.excess[which])

    def joined(self, other: Looked) -> Looked:
        """Returns the cells of both."""
        excess = np.concatenate([self.excess, other.excess])
        return Looked(self.cover.joined(other.cover), self.values.joined(other.values), excess)


class RefinedProfile(PointwiseProfile):
    """The same bound as its base class, with another search: each is the smaller one somewhere.

    Guarantees:
        * Those of ``PointwiseProfile``.
    """

    def _solve(
        self, step: float, spacing: float, left: float, right: float, patience: float
    ) -> tuple[HistoryGrid, Values]:
        if patience < history_bound._PATIENCE:
            return super()._solve(step, spacing, left, right, patience)
        law = pointwise_bound._lengthened(self._law, self._trials, self._startup)
        axis = Axis(self._trials)
        # Few losses are grid points themselves, if the grid is not too coarse.
        few = self._pair.losses.size <= FEW_LOSSES
        grid = HistoryGrid(self._pair, spacing if few else _COARSER * spacing, left, right)
        kernels = StepKernels(grid, self._bounds)

        def look(part: Cells, wide: bool) -> Looked:
            low = axis.quantiles(part.low, kernels.finite_mass)
            high = axis.quantiles(part.high, kernels.finite_mass)
            of = (law, self._bounds, self._startup)
            kernel, found = _recursion(kernels, low, high, *of)
            values = kernel.most(found)
            values.inner[kernel.unusable] = np.inf
            excess = _shares(kernel.radius * kernels.step_sizes)
            # Slopes say which step is to blame; the rest grows with how far a step may move.
            reach = kernel.radius[:, :, None] * np.abs(found.slopes.inner)
            excess = reach + excess * found.rest.inner[:, None]
            if wide:
                # In cells so wide that slopes mean nothing, the wider step is to blame.
                other = pointwise_bound._recursion(kernels, low, high, *of)
                slack = np.maximum(other.inner - found.base.inner, 0.0)[:, None]
                width = _shares((part.high - part.low) * kernels.step_sizes)
                worse = (values.inner > other.inner)[:, None]
                excess = np.where(worse, width * slack, excess)
                values = Values(
                    np.minimum(values.inner, other.inner),
                    np.minimum(values.left, other.left),
                    np.minimum(values.right, other.right),
                )
            return Looked(part, values, excess)

        found = _refined(grid, axis, look, self.cells)
        self.cover = found.cover
        return grid, found.values


def _shares(widths: FloatArray) -> FloatArray:
    return np.asarray(widths / np.maximum(widths.sum(axis=1, keepdims=True), 1e-300))[:, :, None]


def _refined(
    grid: HistoryGrid, axis: Axis, look: Callable[[Cells, bool], Looked], cells: int
) -> Looked:
    """Returns a cover of all step functions, after looking at about so many cells."""
    weights = Weights(grid)
    found = look(axis.everything(), True)
    spent = 1
    while spent < cells:
        blame = weights.excess(found.values, found.excess)
        importance = blame.sum(axis=1)
        if importance.sum() <= _LITTLE:
            break
        chosen = np.argsort(-importance, kind="stable")[:_BATCH]
        chosen = chosen[importance[chosen] > _LEAST_SHARE * importance.max()]
        cover = found.cover
        parents = Cells(cover.low[chosen], cover.high[chosen])
        halves, of = halved(parents, blame[chosen].argmax(axis=1))
        new = look(halves, spent < _WIDE)
        # What holds for a cell holds for its halves.
        np.minimum(new.values.inner, found.values.inner[chosen[of]], out=new.values.inner)
        spent += new.excess.shape[0]
        kept = np.ones(importance.size, dtype=bool)
        kept[chosen] = False
        found = found.take(kept).joined(new)
    return found


def _recursion(
    kernels: StepKernels,
    low: FloatArray,
    high: FloatArray,
    law: _Law,
    bounds: tuple[float, float],
    startup: int,
) -> tuple[SlopedKernel, Sloped]:
    """Returns a bound on V1_1 over each cell, and the kernel that knows the cells' widths."""
    later = SlopedKernel(kernels, low, high, False)
    plain = SlopedKernel(kernels, low, high, True) if startup else later

    def kernel(slot: int) -> SlopedKernel:
        return later if slot > startup else plain

    def won(bound: Sloped, slot: int) -> Sloped:
        return later.bent(bound, *bounds) if slot > startup else bound

    unit = Sloped.constant(history_bound._unit(later.grid, low.shape[0]))
    weight, head = float(law.pmf[-1]), law.head
    if law.high > 0.0:
        after = later.solved(unit, law.low, law.high)
        before = later.solved(won(after, head), law.low, law.high).scaled(weight)
        after = after.scaled(weight)
    else:
        after = unit.scaled(weight)
        before = won(after, head)
    for k in range(head - 1, 0, -1):
        after = unit.scaled(float(law.pmf[k - 1])).added(kernel(k + 1).apply(after))
        before = won(after, k).added(kernel(k).apply(before))
    return later, before
