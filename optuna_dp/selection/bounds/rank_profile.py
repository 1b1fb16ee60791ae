"""The privacy profile of selection by the ranks of outputs: tight for every law of T.

The theorem and its proof are our own: ``docs/explanation/rank-profile.md``. For one direction of
adjacency, a dominating pair (O, O') of one run, a law of T and densities in [c, C],

    delta(eps) <= integral over a in [0, 1] of
                  sup over s in [0, 1 - a] of [ gain(s) - e^eps rate(a) cost(x(a, s)) ]_+
                  + P[T = 0] (1 - e^eps)_+,
    x(a, s) = G(1 - a) - G(1 - a - s).

========  ============================  ========================================================
code      notation                      meaning
========  ============================  ========================================================
``a``     a                             O-mass of an event's outputs above one of them
``s``     s = 1 - q - a                 O-mass below that output; q: that of others above it
``x``     x(a, s)                       a bound on the O'-mass below that output
``gain``  C phi'(1 - lo(1 - s))         density bound of the winner on D
``cost``  c phi'(1 - hi(1 - x))         density bound of the winner on D'
``rate``  beta'(a) = e^-l(a)            O'-mass for each O-mass at rank a, by falling loss l
``kinks``, ``reached``  q, G(q)         largest O'-mass of a set of O-mass q
========  ============================  ========================================================
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from optuna_dp.accounting.bounds import smallest_epsilon
from optuna_dp.accounting.dominating_pairs import DominatingPair
from optuna_dp.core import validation
from optuna_dp.core.arrays import FloatArray
from optuna_dp.selection.bounds.profile_bound import extended
from optuna_dp.selection.laws.base import TrialCount

STEP = 0.03
"""By how much the logarithm of the gain changes between neighbouring points where it is large."""

# Steps grow with the depth below the largest gain: small gains matter to small deltas alone.
_GROWTH = 0.05
# Outputs with a gain below this part of the largest are charged with that part.
_NEGLIGIBLE_GAIN = 1e-15
# Atoms of the pair that are told apart. Pairs with more are split onto some of their losses.
_ATOMS = 400
# The kinks of G are grid points if there are so few of them.
_FEW_ATOMS = 64
# Relative error of phi' for each unit of the mean, above what laws of T promise.
_SLOPE_ERROR = 1e-12
# Relative error of the argument of the gain.
_ARGUMENT_ERROR = 1e-15
# Sums of as many masses lose less than this.
_SUM_ERROR = 1e-13
# G is steep near zero, where the loss is smallest.
_SMALL_Q = np.logspace(-9.0, -1.0, 33)
# Laws whose phi' is a sum of more terms have no such bound: it would take too long.
LONGEST_SUM = 2_000
# Larger epsilons and rates are taken for these, which only adds to delta.
_LARGEST_EXPONENT = 700.0
_HUGE = 1e300


class RankProfile:
    """Upper bound on the privacy profile of selection, in one direction of adjacency.

    Implements the theorem of ``docs/explanation/rank-profile.md``. For runs drawn from the prior
    some run and some order of outputs attain the bound up to a few per cent of delta, whatever the
    law of T. The policy may see the data. The guarantee of a selection needs both directions.

    Guarantees:
        * ``delta(eps)`` is at least the hockey-stick divergence at e^eps of the selection's
          released output, for every real eps, every law of T drawn before the data are touched,
          and every policy whose density lies in [c, C] relative to the prior.
        * Every grid is sound. A smaller ``step`` converges from above.
        * The result lies in [0, 1], does not increase with eps and is never NaN.

    Args:
        pair: Dominates one run, whatever its hyperparameters, in this direction.
        trials: The law of T.
        density_bounds: (c, C), with 0 < c <= 1 <= C.
        step: Change of the logarithm of the gain between neighbouring grid points, above 0.

    Attributes:
        shape: (ranks, points for each) of the grid; zeros if the bound says nothing (delta 1).
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
        self._none = float(trials.pmf(0))
        slope_error = _SLOPE_ERROR * max(1.0, trials.mean)
        losses, mass = _few_atoms(pair)
        mass_prime = mass * np.exp(-losses)
        rounding = abs(1.0 - pair.infinite_mass - float(mass.sum())) + _SUM_ERROR
        rounding += abs(1.0 - pair.null_mass - float(mass_prime.sum()))
        # What rounding lost is paid back as outputs that tell everything (section "Numerics").
        distance = pair.infinite_mass + float(np.maximum(mass - mass_prime, 0.0).sum())
        leak = 2.0 * rounding / (1.0 - distance) if distance < 1.0 else math.inf
        if slope_error > 1e-3 or leak > 1e-3:
            # Rounding outweighs the bound: say what holds always.
            self.shape, self._rest = (0, 0), 1.0
            self._widths, self._rates = np.zeros(0), np.zeros(0)
            self._gains, self._costs = np.zeros((0, 1)), np.zeros((0, 1))
            return

        def slope(s: FloatArray) -> FloatArray:
            return np.asarray(trials.pgf_derivative(np.clip(s, 0.0, 1.0)), dtype=np.float64)

        def gain(s: FloatArray) -> FloatArray:
            one_minus_lo = np.minimum((1.0 - c) + c * s, big_c * s)
            return big_c * slope(one_minus_lo * (1.0 + _ARGUMENT_ERROR))

        def cost(x: FloatArray) -> FloatArray:
            return c * slope(np.maximum(big_c * x - (big_c - 1.0), c * x))

        # The largest O'-mass of a set of O-mass q, at its kinks.
        kinks = np.concatenate([[0.0], np.cumsum(mass)])
        reached = pair.null_mass + np.concatenate([[0.0], np.cumsum(mass_prime)])
        levels = _levels(gain, step)
        if big_c > c:
            # Here lo bends; the gain is convex on either side.
            levels = np.union1d(levels, (1.0 - c) / (big_c - c))
        largest = float(gain(np.ones(1))[0])
        self._rest = _NEGLIGIBLE_GAIN * largest
        a, self._rates, self._widths = _ranks(pair.infinite_mass + leak, losses, mass, levels)
        matters = gain(1.0 - a) > self._rest
        a, self._rates, self._widths = a[matters], self._rates[matters], self._widths[matters]

        kink_points = kinks if losses.size <= _FEW_ATOMS else kinks[:1]
        s = _points(1.0 - a, levels, np.union1d(kink_points, _SMALL_Q))
        x_low, x_high = _below(a, s, kinks, reached, leak)
        self._gains = gain(s[:, :-1]) * (1.0 + slope_error) + np.finfo(np.float64).tiny
        self._costs = extended(
            s, cost(x_low) * (1.0 - slope_error), cost(x_high) * (1.0 + slope_error)
        )
        self.shape = (self._costs.shape[0], self._costs.shape[1])

    def delta(self, epsilons: npt.ArrayLike) -> FloatArray:
        """Returns the bound on delta at each epsilon (any real number; same shape)."""
        eps = np.asarray(epsilons, dtype=np.float64)
        out = np.array([self._integral(epsilon) for epsilon in eps.reshape(-1).tolist()])
        out += self._none * -np.expm1(np.minimum(eps.reshape(-1), 0.0))
        return np.asarray(np.minimum(out, 1.0).reshape(eps.shape))

    def epsilon(self, delta: float) -> float:
        """Returns an epsilon >= 0 with ``delta(epsilon) <= delta``; ``inf`` if there is none."""
        return smallest_epsilon(self.delta, validation.open_unit("delta", delta))

    def _integral(self, epsilon: float) -> float:
        """Returns the integral of the theorem, rounded up."""
        if not self._widths.size:
            return self._rest
        with np.errstate(over="ignore"):
            rates = np.minimum(math.exp(min(epsilon, _LARGEST_EXPONENT)) * self._rates, _HUGE)
        values: FloatArray = self._gains - rates[:, None] * self._costs
        values = values.max(axis=1, initial=0.0)
        return self._rest + float(np.dot(self._widths, values))


def _few_atoms(pair: DominatingPair) -> tuple[FloatArray, FloatArray]:
    """Returns losses and O-masses of a pair with few atoms that dominates the finite part.

    Each atom is split onto the kept losses beside it so that its O-mass and its O'-mass stay: it
    is a garbling of the two.
    """
    losses, mass = pair.losses, pair.mass
    if losses.size <= _ATOMS:
        return losses, mass
    # Kept are losses at equal distances of a coordinate that grows with the loss, with the masses
    # below it, and with the logarithms of the two tails.
    above, below = np.cumsum(mass[::-1])[::-1], np.cumsum(pair.mass_prime)
    tails = np.log(np.maximum(below, 1e-16)) - np.log(np.maximum(above, 1e-16))
    coordinate = np.zeros(losses.size)
    for part in (losses, tails, -above):
        length = part[-1] - part[0]
        coordinate += np.maximum.accumulate(part - part[0]) / (length if length > 0.0 else 1.0)
    steps = np.floor(coordinate * (_ATOMS / 3.0))
    knot_indices = np.flatnonzero(np.concatenate([[True], np.diff(steps) > 0.0]))
    knots: FloatArray = losses[np.union1d(knot_indices, losses.size - 1)]
    below_it = np.minimum(np.searchsorted(knots, losses, side="right"), knots.size - 1) - 1
    to_next, gap = knots[below_it + 1] - losses, knots[below_it + 1] - knots[below_it]
    # (e^to_next - 1) / (e^gap - 1), of which neither needs to be a float.
    low = mass * np.exp(to_next - gap) * np.expm1(-to_next) / np.expm1(-gap)
    split = np.zeros(knots.size)
    np.add.at(split, below_it, low)
    np.add.at(split, below_it + 1, mass - low)
    return knots, split


def _levels(gain: Callable[[FloatArray], FloatArray], step: float) -> FloatArray:
    """Returns s from 0 to 1 between which the logarithm of the gain changes by about a step."""
    ends = np.logspace(-13.0, -2.0, 1_000)
    s = np.unique(np.concatenate([[0.0, 1.0], ends, 1.0 - ends, np.linspace(0.01, 0.99, 10_000)]))
    gains = gain(s)
    depth = -np.log(np.maximum(gains / gains[-1], _NEGLIGIBLE_GAIN))[::-1]
    count = np.arange(math.ceil(depth[-1] / step) + 1)
    depths = step * count * (1.0 + _GROWTH * step * count)
    points = np.interp(depths[depths < depth[-1]], np.maximum.accumulate(depth), s[::-1])
    # Where the gain is flat the cost may not be.
    return np.union1d(points, np.linspace(0.0, 1.0, math.ceil(0.6 / step) + 1))


def _ranks(
    infinite: float, losses: FloatArray, mass: FloatArray, levels: FloatArray
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Returns left ends, rates and widths of cells of [0, 1], none with two atoms.

    Args:
        infinite: O-mass of infinite loss, which comes first.
        losses: Ascending.
        mass: O-mass of each.
        levels: Where the gain falls, as 1 - a.
    """
    ends = infinite + np.concatenate([[0.0], np.cumsum(mass[::-1])])
    borders = np.union1d(
        np.concatenate([ends[ends < 1.0], 1.0 - levels]), np.logspace(-12, -1, 12)
    )
    left = borders[:-1]
    atom = np.minimum(np.searchsorted(ends, left, side="right"), losses.size)
    return left, np.concatenate([[0.0], np.exp(-losses[::-1])])[atom], np.diff(borders)


def _points(top: FloatArray, levels: FloatArray, q: FloatArray) -> FloatArray:
    """Returns falling points of [0, top], a row for each top: levels, and q below the top."""
    rows = top[:, None]
    s = np.concatenate([np.minimum(levels, rows), np.maximum(rows - q, 0.0)], axis=1)
    return np.asarray(np.sort(s, axis=1)[:, ::-1])


def _below(
    a: FloatArray, s: FloatArray, kinks: FloatArray, reached: FloatArray, leak: float
) -> tuple[FloatArray, FloatArray]:
    """Returns x(a, s) = G(1 - a) - G(1 - a - s), rounded down and up.

    Both are numbers beside one function, which is convex in s and below the true x.
    """
    q = (1.0 - a)[:, None] - s
    top = np.interp(1.0 - a, kinks, reached)[:, None] - leak
    low = top - np.interp(q + leak, kinks, reached) - 2.0 * leak
    return low, top - np.interp(q - leak, kinks, reached) + leak
