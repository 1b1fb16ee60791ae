"""Discrete dominating pairs: the currency between the accountants of this package.

One :class:`DominatingPair` describes one mechanism in one adjacency direction by two discrete
distributions (O, O') whose hockey-stick divergence H_{e^eps}(O || O') is at least that of the
mechanism at *every real* eps. Its :meth:`~DominatingPair.reversed` describes the other direction.

Everything here works in t = e^eps. The function h(t) = H_t(O || O') is convex and non-increasing
on [0, inf), with h(0) = 1 and h(t) >= 1 - t; it is piecewise linear, its knots are the atoms, and
the jump of its slope at t = e^loss is the O'-mass of that atom.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from optuna_dp.arrays import FloatArray
from optuna_dp.errors import InvalidArgumentError

# Atoms need e^loss and e^-loss as finite floats.
_LARGEST_LOSS = 700.0
# Points of a profile beyond this loss are not used: what is known up to here bounds the rest,
# because hockey sticks do not increase.
LARGEST_EPSILON = 600.0
_MASS_TOLERANCE = 1e-9
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
                "losses", losses.shape, f"it must be a vector as long as mass, {mass.shape}"
            )
        if not np.all(np.isfinite(losses)) or np.any(np.diff(losses) <= 0.0):
            raise InvalidArgumentError("losses", losses, "they must be finite and ascending")
        if losses.size and np.abs(losses).max() > _LARGEST_LOSS:
            raise InvalidArgumentError(
                "losses",
                float(np.abs(losses).max()),
                f"they must lie in [-{_LARGEST_LOSS}, {_LARGEST_LOSS}]",
                "Count atoms beyond as infinite_mass and null_mass.",
            )
        if not np.all(mass >= 0.0):
            raise InvalidArgumentError("mass", mass, "masses must be non-negative")
        for name in ("infinite_mass", "null_mass"):
            value = float(getattr(self, name))
            if not 0.0 <= value <= 1.0:
                raise InvalidArgumentError(name, value, "it must lie in [0, 1]")
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
                raise InvalidArgumentError(name, total, "the masses must sum to 1 up to 1e-9")

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
        for apart in (0.0, 1e-6, 1e-4, 1e-2):
            keep = _apart(eps, apart)
            hull = _lower_hull(eps[keep], forward[keep], reverse[keep])
            pair = _pair_of_hull(hull)
            if pair is not None:
                break
        else:
            return cls.infinite()
        # Twice, because the first repair rounds the masses anew.
        return _give_back_rounding(_give_back_rounding(pair, hull), hull)

    # -- what a pair can answer -----------------------------------------------------------------

    @cached_property
    def mass_prime(self) -> FloatArray:
        """O'-mass of the atoms, shape (n,)."""
        prime = self.mass * np.exp(-self.losses)
        prime.flags.writeable = False
        return prime

    @property
    def is_infinite(self) -> bool:
        """Whether the pair protects nothing at all."""
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
        if np.any(np.isnan(eps)):
            raise InvalidArgumentError("epsilon", epsilon, "it must not be NaN")
        result = np.empty(eps.shape, dtype=_LONG)
        above = eps >= 0.0
        result[above] = self.upper_delta(eps[above])
        # Below zero through the other direction, where nothing cancels.
        below = eps[~above]
        result[~above] = -np.expm1(below) + np.exp(below) * self._reverse.upper_delta(-below)
        return np.asarray(np.clip(result, 0.0, 1.0), dtype=np.float64)

    def epsilon(self, delta: float) -> float:
        """Returns the smallest epsilon >= 0 with ``delta(epsilon) <= delta``, rounded up.

        Args:
            delta: In [0, 1].

        Returns:
            The epsilon, ``inf`` when ``delta`` is below the mass of infinite loss.
        """
        # Guarantees invert their own bounds: hardly anything rests on it.
        from optuna_dp.accounting.pair_epsilon import smallest_epsilon_of_pair

        return smallest_epsilon_of_pair(self, delta)

    def reversed(self) -> DominatingPair:
        """Returns (O', O): the same mechanism in the other direction."""
        return self._reverse

    @cached_property
    def _reverse(self) -> DominatingPair:
        other = DominatingPair(
            -self.losses[::-1], self.mass_prime[::-1], self.null_mass, self.infinite_mass
        )
        other.__dict__["_reverse"] = self
        other.__dict__["mass_prime"] = self.mass[::-1]
        return other

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
        tail, prime = self.tails
        index = np.searchsorted(self.losses, eps, side="right")
        with np.errstate(over="ignore", invalid="ignore"):
            taken = np.exp(eps.astype(_LONG)) * prime[index]
        # Above the last atom nothing is taken, even where e^eps overflowed (inf * 0).
        taken = np.where(prime[index] == 0.0, _LONG(0.0), taken)
        return np.asarray(np.clip(tail[index] - taken, _LONG(0.0), _LONG(1.0)))


# -- from a profile to a pair -----------------------------------------------------------------


def _checked_profile(
    epsilons: npt.ArrayLike, delta_forward: npt.ArrayLike, delta_reverse: npt.ArrayLike
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Returns (epsilons, forward, reverse) with a point at 0, none above the largest loss."""
    eps = np.asarray(epsilons, dtype=np.float64)
    if eps.ndim != 1 or eps.size == 0 or not np.all(eps >= 0.0) or np.any(np.diff(eps) <= 0.0):
        raise InvalidArgumentError("epsilons", epsilons, "they must be non-negative and ascending")
    deltas = []
    for name, given in (("delta_forward", delta_forward), ("delta_reverse", delta_reverse)):
        values = np.asarray(given, dtype=np.float64)
        if values.shape != eps.shape:
            raise InvalidArgumentError(name, values.shape, f"it must have shape {eps.shape}")
        if not np.all(values >= 0.0):
            raise InvalidArgumentError(name, given, "values must be non-negative, not NaN")
        # Hockey sticks do not increase with epsilon, so neither need their bounds.
        deltas.append(np.minimum.accumulate(np.minimum(values, 1.0)))
    forward, reverse = deltas
    if eps[0] > 0.0:
        eps = np.concatenate(([0.0], eps))
        forward, reverse = (np.concatenate(([1.0], d)) for d in (forward, reverse))
    keep = eps <= LARGEST_EPSILON
    eps, forward, reverse = eps[keep], forward[keep].copy(), reverse[keep].copy()
    # At epsilon = 0 both directions are the total variation distance.
    forward[0] = reverse[0] = min(forward[0], reverse[0])
    return eps, np.minimum.accumulate(forward), np.minimum.accumulate(reverse)


# A point of the hull: (x, value) with x = log t; value is h(t) for x >= 0 and, for x < 0, the
# reverse direction's hockey stick d at 1/t, so that h(t) = 1 - t + t d keeps its small part d.
_Point = tuple[float, float]
_START: _Point = (-math.inf, 0.0)  # h(0) = 1
_END: _Point = (math.inf, 0.0)  # stands for slope zero


def _height(point: _Point) -> float:
    x, value = point
    return value if x >= 0.0 else -math.expm1(x) + math.exp(x) * value


def _jump(a: _Point, b: _Point, c: _Point) -> float:
    """The mass the hull puts on b: O-mass if b is at or above x = 0, O'-mass below.

    With d(x) = 1 - (1 - h)/t the slope from a to b, plus one, is
    d_b + (d_b - d_a)/expm1(x_b - x_a) or d_a + (d_b - d_a)/-expm1(x_a - x_b):
    on either side of x = 0, and across it, only differences of small numbers appear.
    """
    if b[0] >= 0.0:
        before = 1.0 if a[0] == -math.inf else _height(a)
        right = 0.0 if c[0] == math.inf else (b[1] - c[1]) / math.expm1(c[0] - b[0])
        return (before - b[1]) / -math.expm1(a[0] - b[0]) - right
    after = c[1] if c[0] <= 0.0 else 1.0 - (1.0 - c[1]) * math.exp(-c[0])
    left = 0.0 if a[0] == -math.inf else (b[1] - a[1]) / math.expm1(b[0] - a[0])
    return (after - b[1]) / -math.expm1(b[0] - c[0]) - left


def _lower_hull(eps: FloatArray, forward: FloatArray, reverse: FloatArray) -> list[_Point]:
    """Returns the knots of the lower convex hull, x ascending, sentinels included."""
    points: list[_Point] = list(zip((-eps[:0:-1]).tolist(), reverse[:0:-1].tolist(), strict=True))
    points += zip(eps.tolist(), forward.tolist(), strict=True)
    heights = [_height(point) for point in points]
    # Beyond its lowest point the hull is flat.
    points = points[: heights.index(min(heights)) + 1]
    chain: list[_Point] = [_START]
    for point in [*points, _END]:
        while len(chain) > 1 and _jump(chain[-2], chain[-1], point) <= 0.0:
            chain.pop()
        chain.append(point)
    return chain


def _apart(eps: FloatArray, apart: float) -> FloatArray:
    """Returns the indices of points at least so far apart, the first among them."""
    kept = [0]
    for i in range(1, eps.size):
        if eps[i] - eps[kept[-1]] >= apart:
            kept.append(i)
    return np.array(kept)


def _pair_of_hull(hull: Sequence[_Point]) -> DominatingPair | None:
    """Returns the pair of the hull's slope jumps; None if rounding keeps them from adding up."""
    knots = hull[1:-1]
    if not knots:
        return DominatingPair.infinite()
    losses = np.array([x for x, _ in knots])
    jumps = np.array([_jump(*hull[i : i + 3]) for i in range(len(knots))])
    mass = np.where(losses >= 0.0, jumps, jumps * np.exp(np.minimum(losses, 0.0)))
    first, last = knots[0], knots[-1]
    null_mass = first[1] if first[0] <= 0.0 else 1.0 + (_height(first) - 1.0) / math.exp(first[0])
    infinite, null = _unit(_height(last)), _unit(null_mass)
    off = max(
        abs(float(mass.sum()) + infinite - 1.0),
        abs(float((mass * np.exp(-losses)).sum()) + null - 1.0),
    )
    return DominatingPair(losses, mass, infinite, null) if off <= _MASS_TOLERANCE else None


def _unit(value: float) -> float:
    return min(max(value, 0.0), 1.0)


def _give_back_rounding(pair: DominatingPair, hull: Sequence[_Point]) -> DominatingPair:
    """Returns the pair with what rounding took from its profile at the knots as infinite mass.

    Mixing with a mechanism that shows the data, at weight w, makes the profile (1-w) h + w.
    """
    weight = 0.0
    for sign, one in ((1.0, pair), (-1.0, pair.reversed())):
        knots = [(sign * x, v) for x, v in hull[1:-1] if sign * x >= 0.0]
        eps = np.array([x for x, _ in knots])
        wanted = np.array([v for _, v in knots])
        # Half a unit in the last place is below what the given doubles can say; without this
        # allowance a profile near one, which mixing can hardly raise, would need a large weight.
        short = wanted.astype(_LONG) - one.upper_delta(eps) - np.spacing(wanted) / 2
        slack = (wanted > 0.0) & (wanted < 1.0) & (short > -_ROUNDING * wanted)
        if np.any(slack):
            needed = (short[slack] + _ROUNDING * wanted[slack]) / (1.0 - wanted[slack])
            weight = max(weight, float(needed.max()))
    if weight <= 0.0:
        return pair
    keep = 1.0 - weight
    return DominatingPair(
        pair.losses,
        pair.mass * keep,
        _unit(pair.infinite_mass + weight * (1.0 - pair.infinite_mass)),
        _unit(pair.null_mass + weight * (1.0 - pair.null_mass)),
    )
