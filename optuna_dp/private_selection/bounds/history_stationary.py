"""The stationary recursion of the history bound, solved to rounding and then made sound.

For a law of T whose probabilities have ratios P[T=k+1]/P[T=k] in [r_low, r_high] for every
k >= N, r_high < 1, the scaled values V_k / P[T=k] are all bounded by the solution of

    V = S + R K V,    R v = max(r_low v, r_high v)

(lemma 8 of ``docs/explanation/history-bound.md``; geometric laws have r_low = r_high, N = 1).
"""

from __future__ import annotations

import numpy as np
from scipy.linalg import lapack

from optuna_dp.arrays import FloatArray, IntArray
from optuna_dp.private_selection.bounds.history_kernel import SLACK, Removal, Values

_MAX_POLICIES = 50


def solve_stationary(
    removal: Removal,
    source: Values,
    low: float,
    high: float,
    systems: LinearSystems | None = None,
) -> Values:
    """Returns an upper bound on the solution of V = source + R K V.

    K is the maximum of linear kernels, so Newton's method is policy iteration: guess where V and
    K V are negative, solve the linear system (banded), look again. Whatever it returns is then
    made sound: its residual T V - V <= a r + b s is measured on the whole grid, and
    (a r + b s) / (1 - high) is added. By monotonicity of T and T(V + g) <= T V + high g for
    linear g, the sum W satisfies T W <= W, hence bounds the fixed point from above.

    Args:
        removal: The operator K.
        source: S, of the grid's shape.
        low: Smallest ratio, positive.
        high: Largest ratio, below one.
        systems: Those of ``removal``, if they are made already.

    Guarantees:
        * The result W satisfies W >= S + R K W exactly: the residual is computed and added.
    """
    g = removal.grid
    one_ratio = low == high
    high = high * (1.0 + SLACK)
    low = low * (1.0 - SLACK)
    right = source.right / (1.0 - np.minimum(high * removal.keep_right, high))
    left = source.left / (1.0 - low * removal.keep_left)
    inner = np.empty_like(source.inner)
    # V and K V do not decrease: how many of the first states are negative says which.
    signs = (int(np.count_nonzero(g.x < 0.0)),) * 2
    systems = systems or LinearSystems(removal)
    constant = systems.constant(left, right)
    for row in range(inner.shape[0]):
        for _ in range(_MAX_POLICIES):
            found = systems.solve(row, source.inner[row], signs, (low, high), constant[row])
            inner[row] = found
            after = signs[1] if one_ratio else int(np.count_nonzero(found < source.inner[row]))
            # The next interval of p starts from this policy: it rarely changes much.
            before, signs = signs, (int(np.count_nonzero(found < 0.0)), after)
            if signs == before:
                break
    return _made_sound(removal, source, Values(inner, left, right), low, high)


def ratio_step(
    removal: Removal, source: Values, values: Values, low: float, high: float
) -> Values:
    """Returns source + R K values."""
    after = removal.apply(values)
    return Values(
        source.inner + np.maximum(low * after.inner, high * after.inner),
        source.left + low * after.left,
        source.right + high * after.right,
    )


def _made_sound(
    removal: Removal, source: Values, values: Values, low: float, high: float
) -> Values:
    g = removal.grid
    step = ratio_step(removal, source, values, low, high)
    excess = np.maximum(step.inner - values.inner, 0.0)
    # Far left V grows like t, and so does its rounding: measure it there in units of t.
    scale = (1.0 + 1e-6) / (1.0 - high)
    flat = np.maximum(excess[:, g.t <= 1.0].max(axis=1), step.right - values.right)
    steep = np.zeros_like(flat)
    if np.any(g.t > 1.0):
        steep = (excess / g.t)[:, g.t > 1.0].max(axis=1)
    steep = np.maximum(steep, step.left - values.left)
    flat, steep = np.maximum(flat, 0.0) * scale, np.maximum(steep, 0.0) * scale
    return Values(
        values.inner + flat[:, None] + steep[:, None] * g.t,
        np.minimum(values.left + steep, 0.0),
        values.right + flat,
    )


class LinearSystems:
    """The linear systems of all intervals of p, for any guess of the signs.

    Args:
        removal: The operator K.
        kept: Whether the last system of each interval is kept, for :meth:`again`.
    """

    def __init__(self, removal: Removal, kept: bool = False) -> None:
        g = removal.grid
        n, taps = g.size, g.taps.size
        lo, hi = removal.keep_lo, removal.keep_hi
        prime = np.exp(-g.taps)
        index = np.arange(n)
        # Taps of state i that land before the first point, and (from `beyond` on) after the last.
        before = np.clip(-index - g.first_tap, 0, taps)
        beyond = np.clip(n - index - g.first_tap, 0, taps)
        self._first = tuple(_heads(k)[:, before] for k in (lo, hi))
        # States too far from the end for any tap have a zero beside this factor.
        reach = np.exp(np.minimum(g.x[-1] - g.x, 700.0))
        self._last = tuple(_tails(k * prime)[:, beyond] * reach for k in (lo, hi))
        self._to_left = _heads(hi * prime)[:, before] * g.t - self._first[1] * g.t[0]
        self._to_right = _tails(lo)[:, beyond] - self._last[0] + removal.keep_infinite[:, None]
        self._lower = min(max(0, -g.first_tap), n - 1)
        self._upper = min(max(0, g.last_tap), n - 1)
        # Kernels by diagonal, from the highest tap to the lowest, as LAPACK stores bands.
        offsets = np.arange(self._upper, -self._lower - 1, -1) - g.first_tap
        valid = (offsets >= 0) & (offsets < taps)
        at = np.where(valid, offsets, 0)
        self._bands = tuple(np.where(valid, -k[:, at], 0.0) for k in (lo, hi))
        # One column of the matrix in each row: LAPACK's bands, and above them the space it wants.
        self._kept = kept
        rows = removal.keep_right.size if kept else 1
        self._columns = np.zeros((rows, n, self._lower + at.size))
        self._factored: dict[int, tuple[FloatArray, IntArray, FloatArray]] = {}

    def constant(self, left: FloatArray, right: FloatArray) -> FloatArray:
        """Returns what the kernels make of V's ends, shape (..., intervals, n)."""
        return np.asarray(left[..., None] * self._to_left + right[..., None] * self._to_right)

    def solve(
        self,
        row: int,
        source: FloatArray,
        signs: tuple[int, int],
        ratios: tuple[float, float],
        constant: FloatArray | float = 0.0,
    ) -> FloatArray:
        """Returns V = source + r (kernel V + constant) of one interval.

        Each equation divided by its r: then kernels go into the matrix as they are.

        Args:
            row: Which interval.
            source: S there, shape (n,).
            signs: At how many of the first states V is negative, and at how many K V is.
            ratios: r where K V is negative, and elsewhere.
            constant: See :meth:`constant`.
        """
        n, lower, upper = source.shape[0], self._lower, self._upper
        negative, shrunk = signs
        columns = self._columns[row if self._kept else 0]
        matrix = columns[:, lower:]
        matrix[negative:], matrix[:negative] = (band[row] for band in self._bands)
        reach = min(lower + 1, n)
        matrix[0, upper : upper + reach] -= self._first[negative > 0][row, :reach]
        reach = min(upper + 1, n)
        matrix[-1, upper + 1 - reach : upper + 1] -= self._last[negative == n][row, n - reach :]
        inverse = np.full(n, 1.0 / ratios[1])
        inverse[:shrunk] = 1.0 / ratios[0]
        matrix[:, upper] += inverse
        # LAPACK itself, without the checks of solve_banded, which take as long as the solution.
        factors, pivots, solution, failed = lapack.dgbsv(
            lower,
            upper,
            columns.T,
            source * inverse + constant,
            overwrite_ab=True,
            overwrite_b=True,
        )
        if failed:
            raise np.linalg.LinAlgError(f"dgbsv: {failed}")
        if self._kept:
            self._factored[row] = factors, pivots, inverse
        return np.asarray(solution, dtype=np.float64)

    def again(self, row: int, sources: FloatArray) -> FloatArray:
        """Returns V for other sources, shape (several, n), by the interval's last system, kept."""
        factors, pivots, inverse = self._factored[row]
        solution, failed = lapack.dgbtrs(
            factors, self._lower, self._upper, (sources * inverse).T, pivots, overwrite_b=True
        )
        if failed:
            raise np.linalg.LinAlgError(f"dgbtrs: {failed}")
        return np.asarray(solution.T, dtype=np.float64)


def _heads(values: FloatArray) -> FloatArray:
    """Returns the sums of the first 0, 1, ..., n values of each row."""
    sums = np.zeros((values.shape[0], values.shape[1] + 1))
    np.cumsum(values, axis=1, out=sums[:, 1:])
    return sums


def _tails(values: FloatArray) -> FloatArray:
    """Returns the sums of all values from 0, 1, ..., n on, of each row."""
    return _heads(values[:, ::-1])[:, ::-1]
