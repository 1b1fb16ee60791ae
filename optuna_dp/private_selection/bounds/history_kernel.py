"""The operator K of the history bound, on a grid, rounded upward.

Theorem and proof: ``docs/explanation/history-bound.md`` (our own).

============  ========================  ========================================================
code          notation                  meaning
============  ========================  ========================================================
``inner``     V(1, t_i), t_i = e^-x_i   value at log-likelihood ratio x_i, shape (intervals, n)
``left``      V(0, 1) <= 0              slope of V(1, t) towards t = inf (x = -inf)
``right``     V(1, 0) >= 0              value at t = 0 (x = +inf)
``taps``      l_j = j h                 losses of the pair, split onto the grid
``keep_lo``   k_lo                      O-mass of each tap after removing its lowest-loss part lo
``keep_hi``   k_hi                      the same for hi
============  ========================  ========================================================

V(1, t) is convex in t, so between two grid points it lies below the chord. An atom that lands
between (or beyond) grid points is therefore replaced by a mixture of grid points with the same
O-mass and O'-mass, which can only raise K V (lemma 6 of the page).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from optuna_dp.accounting.dominating_pairs import DominatingPair
from optuna_dp.arrays import BoolArray, FloatArray, IntArray

NEGLIGIBLE_MASS = 1e-13
"""O-mass beyond the outermost taps; what lies there is split between the tap and infinity."""

FEW_LOSSES = 4
"""Pairs with so few atoms have a grid that their largest loss is a point of."""

SLACK = 1e-13
"""Relative slack, outward, that covers the rounding of everything that is not a direct sum."""

_EPS = float(np.finfo(np.float64).eps)
_MAX_TAPS = 1500
_MAX_POINTS = 1000
# e^x and its product with e^600 must be floats; the linear ends take over beyond.
_FARTHEST_STATE = 100.0


@dataclass(frozen=True, eq=False)
class Values:
    """A function V on the grid, one per interval of p. Shapes (intervals, n), (intervals,) x 2."""

    inner: FloatArray
    left: FloatArray
    right: FloatArray

    def take(self, which: BoolArray | slice) -> Values:
        """Returns some of the functions."""
        return Values(self.inner[which], self.left[which], self.right[which])

    def joined(self, other: Values) -> Values:
        """Returns the functions of both, on the same grid."""
        return Values(
            np.concatenate([self.inner, other.inner]),
            np.concatenate([self.left, other.left]),
            np.concatenate([self.right, other.right]),
        )


class HistoryGrid:
    """The grid of states x = log(a/b), and the pair split onto it.

    Args:
        pair: The dominating pair, with at least one atom of positive mass.
        spacing: Wanted grid spacing, in losses.
        left: The grid reaches down to at least -left (unless that takes too many points).
        right: The grid reaches up to at least right.

    Guarantees:
        * The split pair dominates ``pair`` (every atom is replaced by two that carry the same
          O-mass and the same O'-mass; the tails likewise, with infinity as one of the two).
        * x = 0 is a grid point.
    """

    def __init__(self, pair: DominatingPair, spacing: float, left: float, right: float) -> None:
        losses, mass = pair.losses, pair.mass
        above = np.cumsum(mass[::-1])[::-1]
        below = np.cumsum(mass)
        # First and last atoms that are not in a negligible tail.
        last = int(np.flatnonzero(above > min(NEGLIGIBLE_MASS, 0.5 * above[0]))[-1])
        first = int(np.argmax(below > min(NEGLIGIBLE_MASS, 0.5 * below[-1])))
        low, high = float(losses[first]), float(losses[last])
        left, right = min(left, _FARTHEST_STATE), min(right, _FARTHEST_STATE)
        # Padding reaches from 0 to the farthest tap, so that counts as well as their range.
        reach = max(high - low, abs(low), abs(high))
        h = max(spacing, reach / _MAX_TAPS, (left + right) / _MAX_POINTS)
        if losses.size <= FEW_LOSSES:
            # Few atoms: let the largest be a grid point, so that symmetric pairs split exactly.
            largest = max(abs(low), abs(high))
            whole = largest / max(1, int(largest / h))
            # Unless they are so small that the grid would have too many points.
            h = whole if whole >= (left + right) / _MAX_POINTS else h
        j_low, j_high = int(np.floor(low / h + 1e-9)), int(np.ceil(high / h - 1e-9))
        self.spacing = h
        self.first_tap, self.last_tap = j_low, j_high
        self.taps: FloatArray = h * np.arange(j_low, j_high + 1, dtype=np.float64)
        self.mass, self.infinite_mass = _split(pair, h, j_low, j_high)
        self.hit_mass = pair.infinite_mass
        count_left, count_right = int(np.ceil(left / h)), int(np.ceil(right / h))
        self.x: FloatArray = h * np.arange(-count_left, count_right + 1, dtype=np.float64)
        self.t: FloatArray = np.exp(-self.x)
        self.size = self.x.size
        #: Taps that carry any mass; few of them if the pair has few atoms.
        self.used = np.flatnonzero(self.mass > 0.0)
        # Taps reach this far beyond the two ends of the grid.
        self.pad_left, self.pad_right = max(0, -j_low), max(0, j_high)
        #: Weight of the last grid point at states beyond it; the rest goes to t = 0.
        self.right_weight: FloatArray = np.exp(-h * np.arange(1, self.pad_right + 1))
        #: t - t_0 at the states before the first grid point, which multiplies V(0, 1).
        self.left_excess: FloatArray = self.t[0] * np.expm1(h * np.arange(self.pad_left, 0, -1))


def _split(pair: DominatingPair, h: float, low: int, high: int) -> tuple[FloatArray, float]:
    """Returns the O-masses of taps low..high and of what the tails send to infinite loss.

    The pair's own infinite mass is not among it: it is accounted for outside the recursion.
    """
    # Below the lowest tap: all O-mass goes to that tap, the excess of O'-mass becomes O-null.
    losses = np.maximum(pair.losses, low * h)
    tap = np.clip(np.floor(losses / h + 1e-9).astype(np.int64), low, high)
    offset = np.maximum(losses - tap * h, 0.0)
    inside = tap < high
    # Shares that keep O-mass and O'-mass: to the tap above, or beyond the last tap to infinity.
    rise = -np.expm1(-offset)
    share = np.where(inside, np.minimum(rise / -np.expm1(-h), 1.0), rise)
    moved = pair.mass * share
    mass = np.zeros(high - low + 1)
    np.add.at(mass, tap - low, pair.mass - moved)
    np.add.at(mass, tap[inside] - low + 1, moved[inside])
    infinite = float(moved[~inside].sum())
    # A pair is normalised up to rounding; O-mass that is missing counts as infinite loss.
    missing = max(0.0, 1.0 - pair.infinite_mass - infinite - float(mass.sum()))
    return mass, infinite + missing


class Removal:
    """K for a batch of intervals of p: a part of the lowest losses is removed, lo to hi of it.

    On each interval [p1, p2] every p in it has lo(p) >= lo(p1) and hi(p) <= hi(p2); the maximum
    over u in [lo(p1), hi(p2)] covers them all. With V non-decreasing along the losses,

        max_u (integral of V without its lowest part u) = k_lo * V_+ - k_hi * V_-,

    a difference of two direct sums of non-negative terms; the kernels are widened outward by the
    rounding of those sums.

    Histories that contain an output of infinite loss are counted apart (lemma 7 of the page), so
    the pair's infinite atom is not kept; as part of what is removed it may serve or not serve.

    Args:
        grid: The grid.
        keep_most: 1 - lo at the left end of each interval, shape (intervals,).
        keep_least: 1 - hi at the right end of each interval, shape (intervals,).

    Guarantees:
        * ``apply`` returns at least K V for every p of the interval, for every V that the given
          values bound from above.
    """

    def __init__(self, grid: HistoryGrid, keep_most: FloatArray, keep_least: FloatArray) -> None:
        self.grid = grid
        above = np.concatenate([np.cumsum(grid.mass[::-1])[::-1][1:], [0.0]]) + grid.infinite_mass
        #: 1 - lo, widened: the factor of V(1, 0), all of whose mass is alike.
        self.keep_right: FloatArray = keep_most * (1.0 + SLACK)
        least = keep_least * (1.0 - SLACK)
        # Counting from the highest losses keeps small remainders accurate; the slack pays for
        # the rounding of the sums above.
        rounding = (grid.mass.size + 64) * _EPS
        most = self.keep_right * (1.0 + rounding)
        least = least * (1.0 - rounding)
        self.keep_lo: FloatArray = np.clip(most[:, None] - above, 0.0, grid.mass)
        self.keep_hi: FloatArray = np.clip(
            least[:, None] - (above + grid.hit_mass), 0.0, grid.mass
        )
        self.keep_lo *= 1.0 + rounding
        self.keep_hi *= 1.0 - rounding
        self.keep_infinite: FloatArray = np.minimum(grid.infinite_mass * (1.0 + SLACK), most)
        #: O'-mass that stays at u = hi: the factor of V(0, 1).
        self.keep_left: FloatArray = np.minimum(self.keep_hi @ np.exp(-grid.taps), 1.0)

    @classmethod
    def from_kernels(
        cls,
        grid: HistoryGrid,
        keep_lo: FloatArray,
        keep_hi: FloatArray,
        keep_infinite: FloatArray,
    ) -> Removal:
        """Returns the operator of kernels made elsewhere, already widened for rounding.

        Args:
            grid: The grid.
            keep_lo: O-mass of each tap that counts where V is positive, shape (rows, taps).
            keep_hi: The same where V is negative, at most ``keep_lo``.
            keep_infinite: The same of the infinite loss that the grid's tails made, shape (rows,).
        """
        made = object.__new__(cls)
        made.grid = grid
        made.keep_lo, made.keep_hi, made.keep_infinite = keep_lo, keep_hi, keep_infinite
        made.keep_right = (keep_lo.sum(axis=1) + keep_infinite) * (1.0 + SLACK)
        made.keep_left = np.minimum(keep_hi @ np.exp(-grid.taps) * (1.0 - SLACK), 1.0)
        return made

    def take(self, rows: slice | IntArray) -> Removal:
        """Returns the operator of some of the intervals."""
        part = object.__new__(Removal)
        part.grid = self.grid
        for name in ("keep_right", "keep_lo", "keep_hi", "keep_infinite", "keep_left"):
            setattr(part, name, getattr(self, name)[rows])
        return part

    def apply(self, values: Values) -> Values:
        """Returns an upper bound on K V."""
        g = self.grid
        rows, n = values.inner.shape
        start = g.pad_left
        gain = np.empty((rows, n + g.pad_left + g.pad_right))
        cost = np.empty_like(gain)
        np.maximum(values.inner, 0.0, out=gain[:, start : start + n])
        np.maximum(-values.inner, 0.0, out=cost[:, start : start + n])
        first, last = gain[:, start, None], gain[:, start + n - 1, None]
        gain[:, :start] = first
        gain[:, start + n :] = last * g.right_weight + values.right[:, None] * (
            1.0 - g.right_weight
        )
        first, last = cost[:, start, None], cost[:, start + n - 1, None]
        cost[:, :start] = first - values.left[:, None] * g.left_excess
        cost[:, start + n :] = last * g.right_weight
        inner = self._correlate(gain, self.keep_lo) - self._correlate(cost, self.keep_hi)
        inner += (self.keep_infinite * values.right)[:, None]
        return Values(inner, self.keep_left * values.left, self.keep_right * values.right)

    def _correlate(self, padded: FloatArray, kernel: FloatArray) -> FloatArray:
        """Returns sum_j kernel_j V(x_i + l_j) for each state i: direct sums, no FFT."""
        g = self.grid
        # Position of the first tap's state, for the first grid point.
        begin = g.pad_left + g.first_tap
        if 8 * g.used.size < kernel.shape[1]:
            total = np.zeros((padded.shape[0], g.size))
            for tap in g.used.tolist():
                total += kernel[:, tap, None] * padded[:, begin + tap : begin + tap + g.size]
            return total
        # What sliding_window_view returns, without its checks: they took as long as the sum.
        row, step = padded.strides
        windows: FloatArray = np.ndarray(
            (padded.shape[0], g.size, kernel.shape[1]),
            np.float64,
            padded,
            begin * step,
            (row, step, step),
        )
        return np.asarray(np.einsum("pij,pj->pi", windows, kernel))
