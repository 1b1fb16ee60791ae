"""The grid of the pointwise bound: states of a history, and the pair split onto it.

Proof that every grid is sound: lemma 6 of ``docs/explanation/history-bound.md`` (our own).

============  ========================  ========================================================
code          notation                  meaning
============  ========================  ========================================================
``inner``     V(1, t_i), t_i = e^-x_i   value at log-likelihood ratio x_i, shape (cells, n)
``left``      V(0, 1) <= 0              slope of V(1, t) towards t = inf (x = -inf)
``right``     V(1, 0) >= 0              value at t = 0 (x = +inf)
``taps``      l_j = j h                 losses of the pair, split onto the grid
============  ========================  ========================================================

V(1, t) is convex in t, so between two grid points it lies below the chord. An atom that lands
between (or beyond) grid points is therefore replaced by a mixture of grid points with the same
O-mass and O'-mass, which can only raise K V.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from optuna_dp.accounting.dominating_pairs import DominatingPair
from optuna_dp.core.arrays import BoolArray, FloatArray, IntArray

SLACK = 1e-13
"""Relative slack, outward, that covers the rounding of everything that is not a direct sum."""

FEW_LOSSES = 4
"""Pairs with so few atoms have a grid that their largest loss is a point of."""

# O-mass beyond the outermost taps; what lies there is split between the tap and infinity.
_NEGLIGIBLE_MASS = 1e-13
_MAX_TAPS = 1500
_MAX_POINTS = 1000
# e^x and its product with e^600 must be floats; the linear ends take over beyond.
_FARTHEST_STATE = 100.0


@dataclass(frozen=True, eq=False)
class Values:
    """A function V on the grid, one per cell. Shapes (cells, n), (cells,), (cells,)."""

    inner: FloatArray
    left: FloatArray
    right: FloatArray

    def take(self, selection: BoolArray | slice) -> Values:
        """Returns some of the functions; for a slice, the same memory."""
        return Values(self.inner[selection], self.left[selection], self.right[selection])

    def put(self, selection: IntArray, values: Values) -> None:
        """Replaces some of the functions."""
        self.inner[selection] = values.inner
        self.left[selection], self.right[selection] = values.left, values.right

    def add(self, addend: Values) -> None:
        """Adds the functions of ``addend``, in place."""
        self.inner[...] += addend.inner
        self.left[...] += addend.left
        self.right[...] += addend.right

    def scaled(self, factor: float) -> Values:
        """Returns ``factor`` V, for a factor that is not negative."""
        return Values(factor * self.inner, factor * self.left, factor * self.right)

    def joined(self, addition: Values) -> Values:
        """Returns the functions of both, on the same grid."""
        return Values(
            np.concatenate([self.inner, addition.inner]),
            np.concatenate([self.left, addition.left]),
            np.concatenate([self.right, addition.right]),
        )


class LossGrid:
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
        mass_above = np.cumsum(mass[::-1])[::-1]
        mass_below = np.cumsum(mass)
        # First and last atoms that are not in a negligible tail.
        last_atom = int(
            np.flatnonzero(mass_above > min(_NEGLIGIBLE_MASS, 0.5 * mass_above[0]))[-1]
        )
        first_atom = int(np.argmax(mass_below > min(_NEGLIGIBLE_MASS, 0.5 * mass_below[-1])))
        low, high = float(losses[first_atom]), float(losses[last_atom])
        left, right = min(left, _FARTHEST_STATE), min(right, _FARTHEST_STATE)
        # Padding reaches from 0 to the farthest tap, so that counts as well as their range.
        reach = max(high - low, abs(low), abs(high))
        h = max(spacing, reach / _MAX_TAPS, (left + right) / _MAX_POINTS)
        if losses.size <= FEW_LOSSES:
            # Few atoms: let the largest be a grid point, so that symmetric pairs split exactly.
            largest = max(abs(low), abs(high))
            even_spacing = largest / max(1, int(largest / h))
            # Unless they are so small that the grid would have too many points.
            h = even_spacing if even_spacing >= (left + right) / _MAX_POINTS else h
        j_low, j_high = int(np.floor(low / h + 1e-9)), int(np.ceil(high / h - 1e-9))
        self.spacing = h
        self.first_tap, self.last_tap = j_low, j_high
        self.taps: FloatArray = h * np.arange(j_low, j_high + 1, dtype=np.float64)
        self.mass, self.infinite_mass = _split(pair, h, j_low, j_high)
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
    is_inside = tap < high
    # Shares that keep O-mass and O'-mass: to the tap above, or beyond the last tap to infinity.
    rise = -np.expm1(-offset)
    share = np.where(is_inside, np.minimum(rise / -np.expm1(-h), 1.0), rise)
    moved_mass = pair.mass * share
    mass = np.zeros(high - low + 1)
    np.add.at(mass, tap - low, pair.mass - moved_mass)
    np.add.at(mass, tap[is_inside] - low + 1, moved_mass[is_inside])
    infinite = float(moved_mass[~is_inside].sum())
    # A pair is normalised up to rounding; O-mass that is missing counts as infinite loss.
    deficit = max(0.0, 1.0 - pair.infinite_mass - infinite - float(mass.sum()))
    return mass, infinite + deficit
