"""The history bound with one function k0 for all histories, and with start-up runs.

The theorem and its proof are our own: ``docs/explanation/pointwise-bound.md``. In the setting of
:mod:`~optuna_dp.private_selection.bounds.history_bound`, where moreover the first ``startup_runs``
slots draw from the prior itself,

    delta_A(eps) <= E_{L ~ O}[ Phi(e^(eps - L)); L < inf ] + E[T] O{L = inf}
                    + P[T = 0] (1 - e^eps)_+,
    Phi(t) = sup over k0 of [ V1_1(1, t) ]_+,
    V2_k = P[T=k] (a - b) + K_{k+1} V2_{k+1},
    V1_k = max(C_k V2_k, c_k V2_k) + K_k V1_{k+1},

where K_k keeps an atom of loss l with weight 1 - lo_k(k0(l)) if V is positive there and with
1 - hi_k(k0(l)) if it is negative. Slot k has c_k = C_k = 1 and lo_k = hi_k = k0 if it is one of
the start-up runs. The supremum is over step functions with three steps, covered by cells
(:mod:`~optuna_dp.private_selection.bounds.pointwise_search`).
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable

import numpy as np

from optuna_dp import validation
from optuna_dp.accounting.dominating_pairs import DominatingPair
from optuna_dp.arrays import FloatArray
from optuna_dp.private_selection.bounds import history_bound
from optuna_dp.private_selection.bounds.history_bound import HistoryProfile
from optuna_dp.private_selection.bounds.history_kernel import HistoryGrid, Removal, Values
from optuna_dp.private_selection.bounds.history_stationary import solve_stationary
from optuna_dp.private_selection.bounds.pointwise_kernel import StepKernels
from optuna_dp.private_selection.bounds.pointwise_search import Axis, Cells, search
from optuna_dp.private_selection.trial_counts.base import TrialCount

MOST_CELLS = 1500
"""Cells that the search evaluates, where they are cheap."""

# Rows of one evaluation.
_ROWS = 256


class PointwiseProfile(HistoryProfile):
    """Upper bound on the privacy profile of a selection by a history-only policy, one direction.

    Implements the theorem of ``docs/explanation/pointwise-bound.md``, whose conditions are those
    of :class:`~optuna_dp.private_selection.bounds.history_bound.HistoryProfile`, and for
    ``startup_runs`` > 0 that the runs of these slots are drawn from the prior itself.

    Guarantees:
        * Those of ``HistoryProfile``: ``delta`` is an upper bound at every real epsilon, for any
          number of cells and on every grid; never NaN; a run that does not depend on the data
          costs nothing.
        * The same result on every machine: the search counts cells, not seconds.

    Args:
        pair: Dominates one run, whatever its hyperparameters, in this direction.
        trials: The law of T.
        density_bounds: (c, C), with 0 < c <= 1 <= C, of the slots after the start-up runs.
        startup_runs: How many slots draw from the prior, at least 0.
        cells: How many cells the search may evaluate, at least 1.
        points_per_spread: Grid points per root mean square of the loss.

    Attributes:
        cover: The cells that were found; None if nothing had to be searched.
    """

    def __init__(
        self,
        pair: DominatingPair,
        trials: TrialCount,
        density_bounds: tuple[float, float],
        *,
        startup_runs: int = 0,
        cells: int = MOST_CELLS,
        points_per_spread: float = history_bound.POINTS_PER_SPREAD,
    ) -> None:
        self.cover: Cells | None = None
        self._startup = validation.whole("startup_runs", startup_runs, 0)
        self.cells = validation.whole("cells", cells, 1)
        super().__init__(pair, trials, density_bounds, points_per_spread=points_per_spread)

    def _solve(
        self, step: float, spacing: float, left: float, right: float, patience: float
    ) -> tuple[HistoryGrid, Values]:
        """Returns V1_1 on the cells of a cover, and its grid."""
        law = _lengthened(self._law, self._trials, self._startup)
        axis = Axis(self._trials)
        # To see where Phi ends a few cells are enough.
        looking = patience < history_bound._PATIENCE
        coarse = HistoryGrid(self._pair, 2.0 * spacing, left, right)

        def evaluate(kernels: StepKernels, part: Cells) -> Values:
            return _recursion(
                kernels,
                axis.quantiles(part.low, kernels.finite_mass),
                axis.quantiles(part.high, kernels.finite_mass),
                law,
                self._bounds,
                self._startup,
            )

        kernels = StepKernels(coarse, self._bounds)
        found = search(
            coarse,
            axis,
            kernels.step_sizes,
            functools.partial(evaluate, kernels),
            min(24, self.cells) if looking else self.cells,
        )
        if looking:
            return coarse, found.values
        self.cover = found.cover
        # Any cover serves on any grid: the leaves found on the coarse one, on the fine one.
        fine = HistoryGrid(self._pair, spacing, left, right)
        kernels = StepKernels(fine, self._bounds)
        known = _known_on(fine, coarse, found.values)
        return fine, _largest(known, found.cover, functools.partial(evaluate, kernels))


def _known_on(fine: HistoryGrid, coarse: HistoryGrid, values: Values) -> FloatArray:
    """Returns what values on a coarse grid say of the points of a fine one and, last, of t = 0.

    Chords of functions that are convex and do not increase in t, shape (cells, points + 1).
    """
    knots = np.concatenate([[0.0], coarse.t[::-1]])
    heights = np.column_stack([values.right, values.inner[:, ::-1]])
    wanted = np.append(fine.t, 0.0)
    return np.array([np.interp(wanted, knots, each) for each in heights])


def _largest(known: FloatArray, cover: Cells, evaluate: Callable[[Cells], Values]) -> Values:
    """Returns the values of those cells that the largest over all cells may hang on.

    The others are known to be nowhere above the largest of these (or above zero), so that the
    largest value of each point is a bound without them.

    Args:
        known: Upper bounds of the cells' values, shape (cells, points + 1), t = 0 last.
        cover: The cells.
        evaluate: Returns upper bounds that are closer, at the same points.
    """
    tops = np.zeros(known.shape[0], dtype=bool)
    tops[known.argmax(axis=0)] = True
    first = _in_parts(cover.take(tops), evaluate)
    most = np.append(first.inner.max(axis=0), first.right.max())
    rest = ~tops & np.any(known > np.maximum(most, 0.0), axis=1)
    return first.joined(_in_parts(cover.take(rest), evaluate)) if np.any(rest) else first


def _in_parts(cover: Cells, evaluate: Callable[[Cells], Values]) -> Values:
    # The kernels of all cells at once would take too much memory.
    parts = [
        evaluate(Cells(cover.low[at : at + _ROWS], cover.high[at : at + _ROWS]))
        for at in range(0, cover.low.shape[0], _ROWS)
    ]
    return functools.reduce(Values.joined, parts)


def _lengthened(law: history_bound._Law, trials: TrialCount, startup: int) -> history_bound._Law:
    """Returns the law with a head that is longer than the start-up, if anything follows it."""
    if law.high == 0.0 or law.head > startup:
        return law
    return dataclasses.replace(law, pmf=history_bound._pmf(trials, startup + 1))


def _recursion(
    kernels: StepKernels,
    low: FloatArray,
    high: FloatArray,
    law: history_bound._Law,
    bounds: tuple[float, float],
    startup: int,
) -> Values:
    """Returns V1_1 on the grid, for each cell."""
    later = kernels.adaptive(low, high)
    plain = kernels.plain(low, high) if startup else later
    c, big_c = bounds

    def kernel(slot: int) -> Removal:
        return later if slot > startup else plain

    def won(values: Values, slot: int) -> Values:
        return history_bound._winner(values, c, big_c) if slot > startup else values

    unit = history_bound._unit(later.grid, low.shape[0])
    weight, head = float(law.pmf[-1]), law.head
    if law.high > 0.0:
        after = solve_stationary(later, unit, law.low, law.high)
        before = solve_stationary(later, won(after, head), law.low, law.high)
        after = history_bound._scaled(after, weight)
        before = history_bound._scaled(before, weight)
    else:
        after = history_bound._scaled(unit, weight)
        before = won(after, head)
    for k in range(head - 1, 0, -1):
        after = history_bound._added(
            history_bound._scaled(unit, float(law.pmf[k - 1])), kernel(k + 1).apply(after)
        )
        before = history_bound._added(won(after, k), kernel(k).apply(before))
    return before
