"""The privacy profile of selection when the density may depend on the data.

The theorem and its proof are our own: ``docs/explanation/profile-bound.md``. For one direction of
adjacency, a dominating pair (O, O') of one run, a law of T and densities in [c, C],

    delta_A(eps) <= E_{L ~ O}[ Phi(e^(eps - L)) ] + P[T = 0] (1 - e^eps)_+,
    Phi(t) = sup_p [ C phi'(1 - lo(p)) - t c phi'(1 - hi(G(p))) ]_+ .

=========  ==========================  ====================================================
code       notation                    meaning
=========  ==========================  ====================================================
gain       A(p) = C phi'(1 - lo(p))    density bound of the winner on D
cost       B(p) = c phi'(1 - hi(G(p))) density bound of the winner on D'
trade-off  G(p)                        sup{O'(E) : O(E) <= p}, concave, piecewise linear
lines      A - B t                     Phi is the upper envelope of the lines and of zero
weights    w_i                         gain differences along the envelope, from the right
kinks      s_i                         where the envelope bends; Phi = floor + sum w (1 - t/s)_+
=========  ==========================  ====================================================

Because Phi is a mixture of hinges, the bound is a mixture of the run's own hockey-stick values,
``floor + sum_i w_i H(eps - log s_i)``: a sum of non-negative terms, free of cancellation, and of
e^60 in either direction.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from optuna_dp.accounting.bounds import smallest_epsilon
from optuna_dp.accounting.dominating_pairs import DominatingPair
from optuna_dp.core import validation
from optuna_dp.core.arrays import FloatArray
from optuna_dp.selection.laws.base import TrialCount

STEP = 1e-3
"""Largest relative change of gain or cost over one cell of the grid of p (the error is O(STEP^2),
always upward)."""

_MAX_CELLS = 60_000
_SMALLEST_P = 1e-100
# A cell whose gain is below this part of the largest gain adds at most that part to delta.
_NEGLIGIBLE_GAIN = 1e-15
# Costs this small change the result only at eps - L above 50: runs without privacy.
_NEGLIGIBLE_COST = 1e-25
_GRADING = 16.0
# Pairs with so few vertices have bends that show; a narrow cell is put before each.
_FEW_VERTICES, _BEFORE = 64, 1e-7
# Laws whose phi' is a sum of more terms than this take so much coarser steps, for time.
_LONG_SUM = 100_000
_COARSER = 5.0
# While a look at all points of a hull at once drops more than one in fifty, it is worth another.
_MANY_LEFT = 0.98


class DataProfile:
    """Upper bound on the privacy profile of selection, in one direction of adjacency.

    Implements the theorem of ``docs/explanation/profile-bound.md``. The policy may see the data.
    The guarantee of a selection needs both directions: the larger of the profiles built from
    ``pair`` and from ``pair.reversed()``.

    Guarantees:
        * ``delta(eps)`` is at least the hockey-stick divergence at e^eps of the selection's
          released output, for every real eps, every law of T drawn before the data are touched,
          and every policy whose density lies in [c, C] relative to the prior.
        * The grid rounds upward; refining it (smaller ``step``) converges from above.
        * The result lies in [0, 1], is non-increasing in eps and is never NaN.

    Args:
        pair: Dominates one run, whatever its hyperparameters, in this direction.
        trials: The law of T.
        density_bounds: (c, C), with 0 < c <= 1 <= C.
        step: Largest relative change of gain or cost over one cell of the grid.

    Attributes:
        grid_size: Number of points p at which gain and cost were evaluated.
    """

    def __init__(
        self,
        pair: DominatingPair,
        trials: TrialCount,
        density_bounds: tuple[float, float] = (1.0, 1.0),
        *,
        step: float = STEP,
    ) -> None:
        c, big_c = validation.density_bounds(density_bounds)
        step = validation.positive("step", step)
        self._pair = pair
        self._none = float(trials.pmf(0))
        if (c, big_c) == (1.0, 1.0) and _reveals_nothing(pair):
            # A selection among runs that do not depend on the data does not depend on the data.
            self.grid_size = 0
            self._floor, self._kinks = 0.0, np.ones(1)
            self._weights = np.array([1.0 - self._none])
            return
        lines = Lines(pair, trials, c, big_c)
        if lines.slack > 1.0:
            # Rounding outweighs the bound: say what holds always.
            self.grid_size = 0
            self._floor, self._kinks, self._weights = 1.0, np.ones(1), np.zeros(1)
            return
        if trials.terms > _LONG_SUM:
            step *= _COARSER
        p, gain, cost = lines_on_grid(lines, step)
        self.grid_size = p.size
        low, high = cost * (1.0 - lines.slack), cost * (1.0 + lines.slack)
        below = np.append(extended(-p[None], low[None], high[None]), low[-1])
        gain *= 1.0 + lines.slack
        self._floor, self._weights, self._kinks = _hinges(gain, np.maximum(below, 0.0))

    def delta(self, epsilons: npt.ArrayLike) -> FloatArray:
        """Returns the bound on delta at each epsilon (any real number; same shape)."""
        eps = np.asarray(epsilons, dtype=np.float64)
        flat = eps.reshape(-1)
        out = self._floor + self._pair.mixture(flat, self._kinks, self._weights)
        out += self._none * -np.expm1(np.minimum(flat, 0.0))
        return np.minimum(out, 1.0).reshape(eps.shape)

    def epsilon(self, delta: float) -> float:
        """Returns an epsilon >= 0 with ``delta(epsilon) <= delta``; ``inf`` if there is none.

        Bisection to 1e-9 relative; the upper end is returned.
        """
        return smallest_epsilon(self.delta, validation.open_unit("delta", delta))

    def phi(self, t: npt.ArrayLike) -> FloatArray:
        """Returns the envelope that is used, an upper bound on Phi(t) for each t >= 0."""
        at = np.asarray(t, dtype=np.float64)
        hinges = np.maximum(0.0, 1.0 - at[..., None] / self._kinks)
        return np.asarray(self._floor + hinges @ self._weights)


def _reveals_nothing(pair: DominatingPair) -> bool:
    return bool(
        pair.infinite_mass == 0.0
        and pair.null_mass == 0.0
        and np.all(pair.losses[pair.mass > 0.0] == 0.0)
    )


class Lines:
    """Gain A(p) and cost B(p), from the vertices of the trade-off curve G."""

    def __init__(self, pair: DominatingPair, trials: TrialCount, c: float, big_c: float) -> None:
        self._trials, self.c, self.big_c = trials, c, big_c
        prime = pair.mass_prime
        below = np.concatenate([[0.0], np.cumsum(pair.mass)])
        reached = pair.null_mass + np.concatenate([[0.0], np.cumsum(prime)])
        missed = np.concatenate([np.cumsum(prime[::-1])[::-1], [0.0]])
        # Where O has no more mass to give, G is the last value reached there: keep the largest.
        is_last = np.append(np.diff(below) > 0.0, True)
        self.vertices = below[is_last]
        # The pair is normalised up to rounding; whatever is missing is given to G.
        shortfall = max(0.0, 1.0 - float(reached[-1]))
        self.reached = np.minimum(1.0, reached[is_last] + shortfall)
        self._missed = missed[is_last]
        # Sums of n numbers, and generating functions whose logarithm has slope ~ mean.
        self.slack = 1e-12 * max(1.0, trials.mean)

    def trade_off(self, p: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Returns (G(p), 1 - G(p)), each accurate where it is small."""
        reached = np.interp(p, self.vertices, self.reached)
        missed = np.interp(p, self.vertices, self._missed)
        return reached, np.where(reached < 0.5, 1.0 - reached, missed)

    def at(self, p: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Returns (A(p), B(p))."""
        c, big_c = self.c, self.big_c
        reached, missed = self.trade_off(p)
        one_minus_lo = np.minimum(1.0 - c * p, big_c * (1.0 - p))
        one_minus_hi = np.maximum(1.0 - big_c * reached, c * missed)
        return big_c * self.slope(one_minus_lo), c * self.slope(one_minus_hi)

    def slope(self, s: FloatArray) -> FloatArray:
        """Returns phi'(s)."""
        return np.asarray(self._trials.pgf_derivative(np.clip(s, 0.0, 1.0)), dtype=np.float64)


def lines_on_grid(lines: Lines, step: float) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Returns (p, A(p), B(p)) for 0 = p_0 < ... < p_n = 1, close enough to change little per cell.

    Any grid is sound; this one decides only how tight the bound is.
    """
    c, big_c = lines.c, lines.big_c
    decades = np.logspace(math.log10(_SMALLEST_P), -1.0, 100)
    stride = max(1, lines.vertices.size // 2000)
    pieces = [np.array([0.0, 1.0]), decades, 1.0 - np.logspace(-12, -1, 23)]
    pieces += [np.linspace(0.1, 0.9, 17), lines.vertices[::stride], lines.vertices[-1:]]
    # The cost bends at a vertex, and with hi; the line from beyond says little in the cell before.
    bends = lines.vertices if lines.vertices.size <= _FEW_VERTICES else np.zeros(0)
    if big_c > c:
        of_hi = np.interp((1.0 - c) / (big_c - c), lines.reached, lines.vertices)
        bends = np.append(bends, of_hi)
    pieces += [bends, bends * (1.0 - _BEFORE)]
    if big_c > c:
        # Here lo bends; the gain is convex on either side, so the bend must be a grid point.
        pieces.append(np.array([(big_c - 1.0) / (big_c - c)]))
    p = np.unique(np.clip(np.concatenate(pieces), 0.0, 1.0))
    gain, cost = lines.at(p)
    while p.size < _MAX_CELLS:
        uneven = (gain[:-1] > (1.0 + step) * gain[1:]) | (cost[:-1] > (1.0 + step) * cost[1:])
        # Neighbours of like width, so that the line through the one serves the other.
        width = np.diff(p)
        uneven |= width > _GRADING * np.append(width[1:], np.inf)
        matters = (gain[:-1] > _NEGLIGIBLE_GAIN * gain[0]) & (p[:-1] > 0.0)
        matters &= cost[:-1] > _NEGLIGIBLE_COST * cost[0]
        split = np.flatnonzero(uneven & matters)
        middle = _between(p[split], p[split + 1])
        inside = (middle > p[split]) & (middle < p[split + 1])
        split, middle = split[inside] + 1, middle[inside]
        if middle.size == 0:
            break
        more_gain, more_cost = lines.at(middle)
        p = np.insert(p, split, middle)
        gain, cost = np.insert(gain, split, more_gain), np.insert(cost, split, more_cost)
    # Both are non-increasing; enforce it upward for the gain, downward for the cost.
    return p, np.maximum.accumulate(gain[::-1])[::-1], np.minimum.accumulate(cost)


def _between(left: FloatArray, right: FloatArray) -> FloatArray:
    """Returns a point inside each interval, on the scale of p near 0 and of 1 - p near 1."""
    high = np.maximum(1.0 - right, 1e-16)
    near_one = 1.0 - np.sqrt((1.0 - left) * high)
    middle = np.where(1.0 - left > 4.0 * high, near_one, 0.5 * (left + right))
    return np.asarray(np.where(right > 4.0 * left, np.sqrt(left * right), middle))


def extended(s: FloatArray, low: FloatArray, high: FloatArray) -> FloatArray:
    """Returns at all points but the last of each row a number below the cost of the cell there.

    The cost is convex in s. So in a cell it is above the line through the two points after the
    cell, where it is between ``low`` and ``high``; the gain is below its chord. The largest value
    of a line less a line is at an end of the cell.

    Args:
        s: Falling points, a row for each problem; the cost falls with them.
        low: The cost at the points, rounded down.
        high: The same, rounded up.
    """
    width = s[:, :-1] - s[:, 1:]
    fall = np.maximum(low[:, 1:-1] - high[:, 2:], 0.0)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        rise = np.where(width[:, 1:] > 0.0, fall / width[:, 1:] * width[:, :-1], 0.0)
    costs = np.concatenate([low[:, 1:-1] + rise, low[:, -1:]], axis=1)
    return np.asarray(np.minimum(costs, low[:, :-1]))


def _hinges(gain: FloatArray, cost: FloatArray) -> tuple[float, FloatArray, FloatArray]:
    """Returns (floor, w, s) with max_i (A_i - B_i t)_+ = floor + sum_i w_i (1 - t/s_i)_+.

    Args:
        gain: A_i, in the order of growing p.
        cost: B_i >= 0.
    """
    order = np.lexsort((cost, -gain))
    gain, cost = gain[order], cost[order]
    # A line with a smaller gain shows only if its cost is smaller as well.
    best = np.minimum.accumulate(np.concatenate([[np.inf], cost[:-1]]))
    keep = cost < best
    gain, cost = gain[keep][::-1], cost[keep][::-1]
    floor = float(gain[0]) if cost[0] == 0.0 else 0.0
    if cost[0] > 0.0:
        gain, cost = np.concatenate([[0.0], gain]), np.concatenate([[0.0], cost])
    hull = _upper_hull(cost, gain)
    weights, fall = np.diff(gain[hull]), np.diff(cost[hull])
    return floor, weights, weights / fall


def _upper_hull(x: FloatArray, y: FloatArray) -> npt.NDArray[np.intp]:
    """Returns the indices of the concave hull of points with growing x.

    Points below the chord of their neighbours are dropped all at once, as long as that drops many:
    none of them can be a corner (each is below a chord whose ends are at least as high as the
    hull's). The rest go one by one.
    """
    index, previous_size = np.arange(x.size), math.inf
    while 2 < index.size < _MANY_LEFT * previous_size:
        previous_size = index.size
        slope = np.diff(y[index]) / np.diff(x[index])
        index = index[np.concatenate([[True], slope[:-1] > slope[1:], [True]])]
    # Numbers of Python, which are compared one by one much sooner than those of arrays.
    at, height = x[index].tolist(), y[index].tolist()
    corners: list[int] = []
    for i in range(index.size):
        while len(corners) >= 2:
            a, b = corners[-2], corners[-1]
            rise, onward = height[b] - height[a], height[i] - height[b]
            if rise * (at[i] - at[b]) > onward * (at[b] - at[a]):
                break
            corners.pop()
        corners.append(i)
    return index[corners]
