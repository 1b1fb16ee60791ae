"""Discrete dominating pairs: the currency between the accountants of this package.

One :class:`DominatingPair` describes one mechanism in one adjacency direction by two discrete
distributions (O, O') whose hockey-stick divergence H_{e^eps}(O || O') is at least that of the
mechanism at *every real* eps. Its :meth:`~DominatingPair.reversed` describes the other direction.

Everything here works in t = e^eps. The function h(t) = H_t(O || O') is convex and non-increasing
on [0, inf), with h(0) = 1 and h(t) >= 1 - t; it is piecewise linear, its knots are the atoms, and
the jump of its slope at t = e^loss is the O'-mass of that atom.
"""

from __future__ import annotations

import bisect
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from optuna_dp.accounting.bounds import smallest_epsilon
from optuna_dp.core import validation
from optuna_dp.core.arrays import FloatArray
from optuna_dp.errors import InvalidArgumentError

# Atoms need e^loss and e^-loss as finite floats.
_LARGEST_LOSS = 700.0
# Points of a profile beyond this loss are not used: what is known up to here bounds the rest,
# because hockey sticks do not increase.
LARGEST_EPSILON = 600.0
_MASS_TOLERANCE = 1e-9
# Values computed at a time: what fits into a cache.
_AT_ONCE = 50_000
# More than any power of e that meets a mass.
_HUGE = 1e305
# Sums run in extended precision where the platform has it.
_LONG = np.longdouble
_ROUNDING = float(16 * np.finfo(np.longdouble).eps)


@dataclass(frozen=True, eq=False)
class DominatingPair:
    """A pair (O, O') of discrete distributions given by its privacy losses.

    Attributes:
        losses: log(O/O') of the atoms with both masses positive, shape (n,), ascending, finite.
        mass: O-mass of those atoms, shape (n,), non-negative.
        infinite_mass: O-mass where O' has none (loss +inf).
        null_mass: O'-mass where O has none (loss -inf).

    Guarantees:
        * Masses of O and of O' each sum to one up to 1e-9; the constructor refuses anything else.
        * :meth:`delta` is the hockey stick of exactly this pair at every real epsilon.
        * :meth:`epsilon` returns the safe side: ``delta(epsilon(d)) <= d``.
        * ``reversed()`` twice is the same object.
    """

    losses: FloatArray
    mass: FloatArray
    infinite_mass: float = 0.0
    null_mass: float = 0.0

    def __post_init__(self) -> None:
        losses = np.array(self.losses, dtype=np.float64)
        mass = np.array(self.mass, dtype=np.float64)
        if losses.ndim != 1 or losses.shape != mass.shape:
            raise InvalidArgumentError(
                "losses",
                losses.shape,
                allowed=f"it must be a vector as long as mass, {mass.shape}",
            )
        if not np.all(np.abs(losses) <= _LARGEST_LOSS) or np.any(np.diff(losses) <= 0.0):
            raise InvalidArgumentError(
                "losses",
                losses,
                allowed=f"they must ascend within [-{_LARGEST_LOSS}, {_LARGEST_LOSS}]",
                fix="Count atoms beyond as infinite_mass and null_mass.",
            )
        if not np.all(mass >= 0.0):
            raise InvalidArgumentError("mass", mass, allowed="masses must be non-negative")
        for name in ("infinite_mass", "null_mass"):
            value = float(getattr(self, name))
            if not 0.0 <= value <= 1.0:
                raise InvalidArgumentError(name, value, allowed="it must lie in [0, 1]")
            object.__setattr__(self, name, value)
        losses.flags.writeable = False
        mass.flags.writeable = False
        object.__setattr__(self, "losses", losses)
        object.__setattr__(self, "mass", mass)
        for name, total in (
            ("mass", float(mass.sum()) + self.infinite_mass),
            ("mass_prime", float(self.mass_prime.sum()) + self.null_mass),
        ):
            if not abs(total - 1.0) <= _MASS_TOLERANCE:
                raise InvalidArgumentError(
                    name, total, allowed="the masses must sum to 1 up to 1e-9"
                )

    # -- constructors ------------------------------------------------------------------------

    @classmethod
    def identity(cls) -> DominatingPair:
        """Returns the pair of a mechanism that ignores the data."""
        return cls(np.zeros(1), np.ones(1))

    @classmethod
    def infinite(cls) -> DominatingPair:
        """Returns the pair of a mechanism that protects nothing: O and O' are disjoint."""
        return cls(np.zeros(0), np.zeros(0), infinite_mass=1.0, null_mass=1.0)

    @classmethod
    def from_profile(
        cls,
        epsilons: npt.ArrayLike,
        delta_forward: npt.ArrayLike,
        delta_reverse: npt.ArrayLike,
    ) -> DominatingPair:
        """Returns the tightest pair that upper bounds of both directions' profiles allow.

        The points (e^eps, delta_forward) for eps >= 0 and, by the identity
        H_t(P || P') = 1 - t + t H_{1/t}(P' || P), the points (e^-eps, 1 - t + t delta_reverse)
        lie on or above the true convex h; so the lower convex hull of them all (with h(0) = 1,
        flat beyond its minimum) lies above h everywhere, between and beyond the points too. Its
        slope jumps are the pair. This is the "connect the dots" discretisation of Doroshenko et
        al., arXiv 2207.04380v1, Algorithm 1, applied to both directions at once.

        Args:
            epsilons: Shape (n,), non-negative, ascending.
            delta_forward: Shape (n,), upper bounds of the forward direction's delta there.
            delta_reverse: Shape (n,), upper bounds of the reverse direction's delta there.

        Guarantees:
            * ``pair.delta(e) >= delta_forward`` and ``pair.reversed().delta(e) >= delta_reverse``
              at the given points, unless the given values are not the hockey sticks of any pair
              (not convex in e^eps, increasing, or at odds with each other): then the pair lies
              on the tightest such function *below* them, which still dominates whatever mechanism
              they bound.
            * Rounding only ever adds delta: what floating point lost is measured at every point
              and given back as mass of infinite loss (some 1e-16), to one part in 2^52.
        """
        eps, forward, reverse = _checked_profile(epsilons, delta_forward, delta_reverse)
        # Slopes between points that are too close are all rounding, and their masses do not add
        # up. Fewer points are as sound: the hull of some lies above the hull of all.
        for distance in (0.0, 1e-6, 1e-4, 1e-2):
            indices = _apart(eps, distance)
            hull = _lower_hull(eps[indices], forward[indices], reverse[indices])
            pair = _pair_of_hull(hull)
            if pair is not None:
                break
        else:
            return cls.infinite()
        # Twice, because the first repair rounds the masses anew.
        return give_back_rounding(give_back_rounding(pair, hull), hull)

    # -- what a pair can answer -----------------------------------------------------------------

    @cached_property
    def mass_prime(self) -> FloatArray:
        """O'-mass of the atoms, shape (n,)."""
        prime = self.mass * np.exp(-self.losses)
        prime.flags.writeable = False
        return prime

    @property
    def is_infinite(self) -> bool:
        """Returns whether the pair protects nothing at all."""
        return self.infinite_mass >= 1.0

    def delta(self, epsilon: npt.ArrayLike) -> FloatArray:
        """Returns H_{e^epsilon}(O || O').

        Args:
            epsilon: Any real numbers, any shape (a scalar gives a 0-d array, which is a float to
                every caller).

        Returns:
            An array of the shape of ``epsilon`` with values in [0, 1].
        """
        eps = np.asarray(epsilon, dtype=np.float64)
        return _delta(self._sticks(eps, _power(eps)))

    def mixture(self, eps: FloatArray, kinks: FloatArray, weights: FloatArray) -> FloatArray:
        """Returns the sum over i of ``weights[i] * delta(eps - log kinks[i])`` at each eps.

        Shapes (n,), (m,), (m,). Takes n powers of e instead of n m.
        """
        shifts, shrunk = np.log(kinks), 1.0 / kinks.astype(_LONG)
        largest = max(np.abs(eps).max(initial=0.0), np.abs(shifts).max(initial=0.0))
        grown = _power(eps)[:, None]
        deltas = np.empty(eps.size)
        rows = max(1, _AT_ONCE // (shifts.size + 1))
        for start in range(0, eps.size, rows):
            part = slice(start, start + rows)
            shifted_eps = eps[part, None] - shifts
            # The product of two powers, unless one of them may not be a float.
            power = grown[part] * shrunk if largest <= LARGEST_EPSILON else _power(shifted_eps)
            deltas[part] = _delta(self._sticks(shifted_eps, power)) @ weights
        return deltas

    def _sticks(
        self, eps: FloatArray, power: npt.NDArray[np.longdouble]
    ) -> npt.NDArray[np.longdouble]:
        """Returns the hockey sticks at eps, given e^eps (callers clip)."""
        if np.any(np.isnan(eps)):
            raise InvalidArgumentError("epsilon", eps, allowed="it must not be NaN")
        knots, tail, prime = self._signed_tails
        index = np.searchsorted(knots, eps, side="right")
        # Above the last atom nothing is taken, even where e^eps overflowed (inf * 0).
        result = np.asarray(tail[index] - np.minimum(power, _HUGE) * prime[index])
        is_negative = eps < 0.0
        result[is_negative] -= np.expm1(eps[is_negative])
        return result

    @cached_property
    def _signed_tails(
        self,
    ) -> tuple[FloatArray, npt.NDArray[np.longdouble], npt.NDArray[np.longdouble]]:
        """Knots; after each what is given, and what e^x times is taken, of a hockey stick.

        Below zero 1 - e^x is given besides, and the rest goes through the other direction, where
        nothing cancels: e^x times its hockey stick at -x. Zero is a knot, atom or not.
        """
        low, high = (int(np.searchsorted(self.losses, 0.0, side)) for side in ("left", "right"))
        knots = np.concatenate([self.losses[:low], [0.0], self.losses[high:]])
        given, taken = (
            np.concatenate([-tail_below[::-1][: low + 1], tail_above[high:]])
            for tail_above, tail_below in zip(self.tails, self._reverse.tails[::-1], strict=True)
        )
        return knots, given, taken

    def epsilon(self, delta: float) -> float:
        """Returns an epsilon >= 0 with ``delta(epsilon) <= delta``, to 1e-9 relative, rounded up.

        Args:
            delta: In (0, 1).

        Returns:
            The epsilon, ``inf`` when ``delta`` is below the mass of infinite loss.
        """
        return smallest_epsilon(self.delta, validation.open_unit("delta", delta))

    def reversed(self) -> DominatingPair:
        """Returns (O', O): the same mechanism in the other direction."""
        return self._reverse

    def sampled(self, rate: float) -> DominatingPair:
        """Returns a pair for the mechanism on a sample of the records, drawn independently.

        The proof is in docs/explanation/sampling.md. With the record the output has law O where it
        was sampled and O' where not, so ``((1 - rate) O' + rate O, O')`` dominates for removing a
        record, and exchanged for adding one. This pair must be that for removing one.

        Args:
            rate: The chance of each record to join the sample, in (0, 1].
        """
        if rate == 1.0:
            return self
        # The loss log(1 - rate + rate e^l) grows with l, by at most l; mass O' stays as it is.
        losses = np.logaddexp(np.log1p(-rate), np.log(rate) + self.losses)
        mass = (1.0 - rate) * self.mass_prime + rate * self.mass
        never = np.log1p(-rate)  # the loss where only O' has mass
        losses = np.concatenate([[never], losses])
        mass = np.concatenate([[(1.0 - rate) * self.null_mass], mass])
        # Outputs whose losses rounding has made equal become one; the larger loss claims less.
        distinct_losses, group = np.unique(losses, return_inverse=True)
        merged = np.asarray(np.bincount(group, mass), dtype=np.float64)
        return DominatingPair(distinct_losses, merged, rate * self.infinite_mass)

    @cached_property
    def _reverse(self) -> DominatingPair:
        reverse = DominatingPair(
            -self.losses[::-1], self.mass_prime[::-1], self.null_mass, self.infinite_mass
        )
        reverse.__dict__["_reverse"] = self
        reverse.__dict__["mass_prime"] = self.mass[::-1]
        return reverse

    @cached_property
    def tails(self) -> tuple[npt.NDArray[np.longdouble], npt.NDArray[np.longdouble]]:
        """Masses of O and of O' at and above each atom, shape (n + 1,) each."""
        tail = np.zeros(self.losses.size + 1, dtype=_LONG)
        prime = np.zeros(self.losses.size + 1, dtype=_LONG)
        tail[:-1] = np.cumsum(self.mass[::-1], dtype=_LONG)[::-1]
        # O'-masses anew from the loss: mass_prime is rounded to a double.
        exact = self.mass.astype(_LONG) * np.exp(-self.losses.astype(_LONG))
        prime[:-1] = np.cumsum(exact[::-1])[::-1]
        return tail + _LONG(self.infinite_mass), prime

    def upper_delta(self, eps: FloatArray) -> npt.NDArray[np.longdouble]:
        """The hockey stick at eps >= 0 (callers clip)."""
        return self._sticks(eps, _power(eps))


def _delta(sticks: npt.NDArray[np.longdouble]) -> FloatArray:
    return np.clip(sticks.astype(np.float64), 0.0, 1.0)


def _power(x: FloatArray) -> npt.NDArray[np.longdouble]:
    """Returns e^x, inf where it overflows."""
    with np.errstate(over="ignore"):
        return np.asarray(np.exp(x.astype(_LONG)))


# -- from a profile to a pair -----------------------------------------------------------------


def _checked_profile(
    epsilons: npt.ArrayLike, delta_forward: npt.ArrayLike, delta_reverse: npt.ArrayLike
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Returns (epsilons, forward, reverse) with a point at 0, none above the largest loss."""
    eps = np.asarray(epsilons, dtype=np.float64)
    if eps.ndim != 1 or eps.size == 0 or not np.all(eps >= 0.0) or np.any(np.diff(eps) <= 0.0):
        raise InvalidArgumentError(
            "epsilons", epsilons, allowed="they must be non-negative and ascending"
        )
    deltas = []
    for name, argument in (("delta_forward", delta_forward), ("delta_reverse", delta_reverse)):
        values = np.asarray(argument, dtype=np.float64)
        if values.shape != eps.shape:
            raise InvalidArgumentError(
                name, values.shape, allowed=f"it must have shape {eps.shape}"
            )
        if not np.all(values >= 0.0):
            raise InvalidArgumentError(
                name, argument, allowed="values must be non-negative, not NaN"
            )
        # Hockey sticks do not increase with epsilon, so neither need their bounds.
        deltas.append(np.minimum.accumulate(np.minimum(values, 1.0)))
    forward, reverse = deltas
    if eps[0] > 0.0:
        eps = np.concatenate(([0.0], eps))
        forward, reverse = (np.concatenate(([1.0], d)) for d in (forward, reverse))
    is_finite = eps <= LARGEST_EPSILON
    eps, forward, reverse = eps[is_finite], forward[is_finite].copy(), reverse[is_finite].copy()
    # At epsilon = 0 both directions are the total variation distance.
    forward[0] = reverse[0] = min(forward[0], reverse[0])
    return eps, np.minimum.accumulate(forward), np.minimum.accumulate(reverse)


# A chain is an array of shape (3, n): rows x = log t, ascending, h(t), and d = 1 - (1 - h)/t, the
# other direction's hockey stick at 1/t. Left of x = 0 it is d that is given, and right of it h: of
# each the small values are never lost. The first point stands for h(0) = 1, the last for slope 0.

# Rows x and h of a chain, or one point (x, h).
_Points: TypeAlias = FloatArray | tuple[float, float]


def _bend(a: _Points, b: _Points, c: _Points) -> FloatArray | float:
    """The mass that points (x, h) of a convex chain put on the middle one, b.

    It is e^x_b times the slope of h after b less that before, and holds for numbers and arrays.
    Callers let e^x overflow.
    """
    before, after = (a[1] - b[1]) / -np.expm1(a[0] - b[0]), (b[1] - c[1]) / np.expm1(c[0] - b[0])
    mass: FloatArray | float = before - after
    return mass


def _mirrored(chain: FloatArray) -> FloatArray:
    """Returns the points (-x, d), which are (x, h) of the other direction."""
    return chain[[0, 2]] * [[-1.0], [1.0]]


@np.errstate(over="ignore")
def _masses(chain: FloatArray) -> FloatArray:
    """The mass on each inner point: O-mass from x = 0 on, O'-mass below, where h is not small."""
    mirrored = _mirrored(chain)
    on = _bend(chain[:, :-2], chain[:, 1:-1], chain[:, 2:])
    off = _bend(mirrored[:, 2:], mirrored[:, 1:-1], mirrored[:, :-2])
    return np.asarray(np.where(chain[0, 1:-1] >= 0.0, on, off))


@np.errstate(over="ignore")
def _lower_hull(eps: FloatArray, forward: FloatArray, reverse: FloatArray) -> FloatArray:
    """Returns the lower convex hull: a scan that drops what lies on or above a chord."""
    left, right = (delta * np.exp(-eps) - np.expm1(-eps) for delta in (reverse, forward))
    x = np.concatenate([[-np.inf], -eps[:0:-1], eps, [np.inf]])
    h = np.concatenate([[1.0], left[:0:-1], forward, [0.0]])
    d = np.concatenate([[0.0], reverse[:0:-1], right, [1.0]])
    # Beyond its lowest point the hull is flat.
    chain = np.array([x, h, d])[:, [*range(int(h[:-1].argmin()) + 1), -1]]
    bent = [*(np.flatnonzero(_masses(chain) <= 0.0) + 1).tolist(), chain.shape[1] - 1]
    positions, forward_sticks, reverse_sticks = chain.tolist()
    corners, i = [0], 1
    while i < chain.shape[1]:
        while len(corners) > 1:
            a, b = corners[-2:]
            if positions[b] >= 0.0:
                mass = _bend(*((positions[k], forward_sticks[k]) for k in (a, b, i)))
            else:
                mass = _bend(*((-positions[k], reverse_sticks[k]) for k in (i, b, a)))
            if mass > 0.0:
                break
            corners.pop()
        corners.append(i)
        if corners[-2] == i - 1:
            # Neighbours that were seen above to lie as they should.
            onward = bent[bisect.bisect_left(bent, i)]
            corners += range(i + 1, onward + 1)
            i = onward
        i += 1
    return chain[:, corners]


def _apart(eps: FloatArray, distance: float) -> FloatArray:
    """Returns the indices of points at least ``distance`` apart, the first among them."""
    indices = [0]
    for i in range(1, eps.size):
        if eps[i] - eps[indices[-1]] >= distance:
            indices.append(i)
    return np.array(indices)


def _pair_of_hull(hull: FloatArray) -> DominatingPair | None:
    """Returns the pair of the hull's slope jumps; None if rounding keeps them from adding up."""
    losses, h, d = hull[:, 1:-1]
    if losses.size == 0:
        return DominatingPair.infinite()
    mass = _masses(hull) * np.exp(np.minimum(losses, 0.0))
    infinite, null = _unit(float(h[-1])), _unit(float(d[0]))
    off = max(
        abs(float(mass.sum()) + infinite - 1.0),
        abs(float((mass * np.exp(-losses)).sum()) + null - 1.0),
    )
    return DominatingPair(losses, mass, infinite, null) if off <= _MASS_TOLERANCE else None


def _unit(value: float) -> float:
    return min(max(value, 0.0), 1.0)


def give_back_rounding(pair: DominatingPair, hull: FloatArray) -> DominatingPair:
    """Returns the pair with what rounding took from its profile at the knots as infinite mass.

    Mixing with a mechanism that shows the data, at weight w, makes the profile (1-w) h + w.
    """
    weight = 0.0
    x, h, d = hull[:, 1:-1]
    for positions, values, side in ((x, h, pair), (-x, d, pair.reversed())):
        eps, targets = positions[positions >= 0.0], values[positions >= 0.0]
        # Half a unit in the last place is below what the given doubles can say; without this
        # allowance a profile near one, which mixing can hardly raise, would need a large weight.
        shortfall = targets.astype(_LONG) - side.upper_delta(eps) - np.spacing(targets) / 2
        slack = (targets > 0.0) & (targets < 1.0) & (shortfall > -_ROUNDING * targets)
        if np.any(slack):
            weights = (shortfall[slack] + _ROUNDING * targets[slack]) / (1.0 - targets[slack])
            weight = max(weight, float(weights.max()))
    if weight <= 0.0:
        return pair
    remainder = 1.0 - weight
    return DominatingPair(
        pair.losses,
        pair.mass * remainder,
        _unit(pair.infinite_mass + weight * (1.0 - pair.infinite_mass)),
        _unit(pair.null_mass + weight * (1.0 - pair.null_mass)),
    )
