"""The stationary recursion of the pointwise bound: what is proved first, then the solver.

For a law of T whose probabilities have ratios P[T=k+1]/P[T=k] in [r_low, r_high] for every
k >= N, r_high < 1, the scaled values V_k / P[T=k] are all bounded by the solution of

    V = T V,    T V = S + R K V,    R v = max(r_low v, r_high v)

(lemma 8 of ``docs/explanation/history-bound.md``; geometric laws have r_low = r_high, N = 1).

Any W is sound. Let e = a r + b s, a linear function that is not negative, be at least T W - W
everywhere. T is monotone and T(V + g) <= T V + r_high g for linear g >= 0. So
W' = W + e / (1 - r_high) satisfies

    T W' <= T W + r_high e / (1 - r_high) <= W + e + r_high e / (1 - r_high) = W',

and iterating T from W' falls to the solution, which is therefore at most W'. ``_made_sound``
measures e on the whole grid and adds it. The solver below only has to make it small: an error in
it makes the bound larger, never wrong.
"""

from __future__ import annotations

import numpy as np
from scipy.linalg import lapack

from optuna_dp.core.arrays import FloatArray
from optuna_dp.selection.bounds.pointwise_grid import SLACK, Values
from optuna_dp.selection.bounds.pointwise_kernel import Kernel

_MAX_POLICIES = 20


def solve_stationary(kernel: Kernel, source: Values, low: float, high: float) -> Values:
    """Returns an upper bound on the solution of V = source + R K V, for every cell.

    Args:
        kernel: The operator K.
        source: S, of the grid's shape.
        low: Smallest ratio, positive.
        high: Largest ratio, below one.

    Guarantees:
        * The result W satisfies W >= S + R K W exactly: the residual is computed and added.
    """
    one_ratio = low == high
    low, high = low * (1.0 - SLACK), high * (1.0 + SLACK)
    guess = proposed_solution(kernel, source, low, high, one_ratio)
    return _made_sound(kernel, source, guess, low, high)


def _made_sound(kernel: Kernel, source: Values, values: Values, low: float, high: float) -> Values:
    """Returns W' of the proof above from W = ``values``."""
    g = kernel.grid
    step = ratio_step(kernel, source, values, low, high)
    excess = np.maximum(step.inner - values.inner, 0.0)
    # Far left V grows like t, and so does its rounding: measure it there in units of t.
    scale = (1.0 + 1e-6) / (1.0 - high)
    constant = np.maximum(excess[:, g.t <= 1.0].max(axis=1), step.right - values.right)
    slope = (excess / g.t)[:, g.t > 1.0].max(axis=1, initial=0.0)
    slope = np.maximum(slope, step.left - values.left)
    constant, slope = np.maximum(constant, 0.0) * scale, np.maximum(slope, 0.0) * scale
    return Values(
        values.inner + constant[:, None] + slope[:, None] * g.t,
        np.minimum(values.left + slope, 0.0),
        values.right + constant,
    )


def ratio_step(kernel: Kernel, source: Values, values: Values, low: float, high: float) -> Values:
    """Returns source + R K values."""
    product = kernel.apply(values)
    return Values(
        source.inner + np.maximum(low * product.inner, high * product.inner),
        source.left + low * product.left,
        source.right + high * product.right,
    )


# -- the solver: nothing here needs trust --------------------------------------------------------


def proposed_solution(
    kernel: Kernel, source: Values, low: float, high: float, one_ratio: bool
) -> Values:
    """Returns V = source + R K V up to rounding, for every cell.

    Iterating T itself would be shorter, but takes a number of steps in proportion to the mean of T
    (20,000 at a mean of 1000 for nine digits). K is piecewise linear, so Newton's method is policy
    iteration: guess where V and K V are negative, solve the linear system (banded), look again.
    """
    values = Values(
        np.empty_like(source.inner),
        source.left / (1.0 - low * kernel.keep_left),
        source.right / (1.0 - np.minimum(high * kernel.keep_right, high)),
    )
    systems = _LinearSystems(kernel, source, values, low, high)
    # V and K V do not decrease: how many of the first states are negative says which.
    negative = shrunk = int(np.count_nonzero(kernel.grid.x < 0.0))
    for row in range(values.inner.shape[0]):
        for _ in range(_MAX_POLICIES):
            # The next cell starts from the last one's policy: it rarely changes much.
            guess = negative, shrunk
            solution = values.inner[row] = systems.solve(row, *guess)
            negative = int(np.count_nonzero(solution < 0.0))
            if not one_ratio:
                shrunk = int(np.count_nonzero(solution < source.inner[row]))
            if (negative, shrunk) == guess:
                break
    return values


class _LinearSystems:
    """The linear systems V = S + r (kernel V) of all cells, for any guess of the signs.

    Args:
        kernel: The operator K.
        source: S.
        end_values: V at the two ends of the grid, which is known.
        low: r where K V is negative.
        high: r elsewhere.
    """

    def __init__(
        self, kernel: Kernel, source: Values, end_values: Values, low: float, high: float
    ) -> None:
        g = kernel.grid
        n, taps = g.size, g.taps.size
        lo, hi = kernel.keep_lo, kernel.keep_hi
        prime = np.exp(-g.taps)
        index = np.arange(n)
        # Taps of state i that land before the first point, and after the last (from that tap on).
        taps_before = np.clip(-index - g.first_tap, 0, taps)
        taps_after = np.clip(n - index - g.first_tap, 0, taps)
        self._first = tuple(_heads(k)[:, taps_before] for k in (lo, hi))
        # States too far from the end for any tap have a zero beside this factor.
        reach = np.exp(np.minimum(g.x[-1] - g.x, 700.0))
        self._last = tuple(_tails(k * prime)[:, taps_after] * reach for k in (lo, hi))
        to_left = _heads(hi * prime)[:, taps_before] * g.t - self._first[1] * g.t[0]
        to_right = _tails(lo)[:, taps_after] - self._last[0] + kernel.keep_infinite[:, None]
        self._constant = end_values.left[:, None] * to_left + end_values.right[:, None] * to_right
        self._source, self._ratios = source.inner, (low, high)
        self._lower = min(max(0, -g.first_tap), n - 1)
        self._upper = min(max(0, g.last_tap), n - 1)
        # Kernels by diagonal, from the highest tap to the lowest, as LAPACK stores bands.
        offsets = np.arange(self._upper, -self._lower - 1, -1) - g.first_tap
        valid = (offsets >= 0) & (offsets < taps)
        columns = np.where(valid, offsets, 0)
        self._bands = tuple(np.where(valid, -k[:, columns], 0.0) for k in (lo, hi))
        # One column of the matrix in each row: LAPACK's bands, and before them the space it wants.
        self._columns = np.zeros((n, self._lower + columns.size))

    def solve(self, row: int, negative: int, shrunk: int) -> FloatArray:
        """Returns V of one cell, shape (n,).

        Each equation is divided by its r: then kernels go into the matrix as they are.

        Args:
            row: Which cell.
            negative: At how many of the first states V is taken to be negative.
            shrunk: At how many K V is.
        """
        n, lower, upper = self._source.shape[1], self._lower, self._upper
        matrix = self._columns[:, lower:]
        matrix[negative:], matrix[:negative] = (band[row] for band in self._bands)
        reach = min(lower + 1, n)
        matrix[0, upper : upper + reach] -= self._first[negative > 0][row, :reach]
        reach = min(upper + 1, n)
        matrix[-1, upper + 1 - reach : upper + 1] -= self._last[negative == n][row, n - reach :]
        inverse = np.full(n, 1.0 / self._ratios[1])
        inverse[:shrunk] = 1.0 / self._ratios[0]
        matrix[:, upper] += inverse
        # LAPACK itself, without the checks of solve_banded, which take as long as the solution.
        *_, solution, status = lapack.dgbsv(
            lower,
            upper,
            self._columns.T,
            self._source[row] * inverse + self._constant[row],
            overwrite_ab=True,
            overwrite_b=True,
        )
        if status:
            raise np.linalg.LinAlgError(f"dgbsv: {status}")
        return np.asarray(solution, dtype=np.float64)


def _heads(values: FloatArray) -> FloatArray:
    """Returns the sums of the first 0, 1, ..., n values of each row."""
    sums = np.zeros((values.shape[0], values.shape[1] + 1))
    np.cumsum(values, axis=1, out=sums[:, 1:])
    return sums


def _tails(values: FloatArray) -> FloatArray:
    """Returns the sums of all values from 0, 1, ..., n on, of each row."""
    return _heads(values[:, ::-1])[:, ::-1]
