"""Probabilities as integers, so that the bounds hold without a tolerance.

A floating-point density that "sums to one" does so up to rounding, and the renormalisation hidden
in any draw from it can push a probability past the bound given to the accountant. Here the density
is held as integer shares ``k_i`` with the exact sum ``S``; an integer drawn uniformly from
``[0, S)`` chooses the candidate, so its probability *is* ``k_i / S``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from optuna_dp.core import validation
from optuna_dp.core.arrays import FloatArray, IntArray
from optuna_dp.errors import InvalidArgumentError

# Every share, and the sum of all, is below 2**53, hence exact as a float64.
_TOTAL_BITS = 53
# Masses of an informed prior; leaves at least 22 bits for the density ratio itself.
_MASS_BITS = 31


@dataclass(frozen=True, eq=False)
class BoundedDensity:
    """A law on N candidates with density in [c, C] relative to the prior.

    Made by :func:`enforce` (and by ``projection.project_log``); the constructor checks what is
    promised and raises ``ValueError`` rather than hold a density outside the bounds.

    Attributes:
        shares: ``k_i``, shape (N,).
        masses: ``m_i``, shape (N,), the prior's integer masses.
        unit: The share of one unit of mass under the prior itself.
        bounds: ``(c, C)``.

    Guarantees:
        * ``sum(shares) == unit * sum(masses)`` exactly.
        * ``c <= k_i / (unit * m_i) <= C`` in exact arithmetic, for every i.
        * :meth:`draw` returns i with probability ``k_i / sum(shares)``, up to the quality of the
          random source: no floating-point uniform is involved.
    """

    shares: IntArray
    masses: IntArray
    unit: int
    bounds: tuple[float, float]
    total: int = field(init=False)

    def __post_init__(self) -> None:
        lower, upper, total = share_limits(self.masses, self.unit, self.bounds)
        are_within = bool(((self.shares >= lower) & (self.shares <= upper)).all())
        if not are_within or int(self.shares.sum()) != total:
            raise ValueError("the shares break the bounds or do not add up; this is a bug")
        object.__setattr__(self, "total", total)

    def __len__(self) -> int:
        return len(self.shares)

    @property
    def ratios(self) -> FloatArray:
        """The density relative to the prior, ``f_i``: never below c, never above C."""
        result: FloatArray = self.shares / (self.masses * self.unit)
        return result

    def draw(self, rng: np.random.Generator) -> int:
        """Draws one candidate's index."""
        return int(self.draw_many(rng, 1)[0])

    def draw_many(self, rng: np.random.Generator, size: int) -> IntArray:
        """Draws ``size`` independent indices."""
        # Generator.integers is uniform by rejection, not by scaling a 53-bit float.
        ticket = rng.integers(0, self.total, size=size, dtype=np.int64)
        index: IntArray = np.searchsorted(np.cumsum(self.shares), ticket, side="right")
        return index


def uniform_masses(n: int) -> IntArray:
    """Masses of ``n`` equally likely candidates."""
    return np.ones(n, dtype=np.int64)


def integer_masses(weights: Sequence[float]) -> IntArray:
    """Turns positive prior weights into the integer masses that *are* the prior from then on.

    Whole-number weights are kept exactly. Others are rounded to multiples of ``2**-31`` of their
    sum; since the rounded masses are the law of the first run as well as the reference of every
    later one, rounding costs no privacy.

    Args:
        weights: Positive and finite, at least one.

    Raises:
        InvalidArgumentError: If a weight is not positive and finite, or is too small a part of
            the sum to be held (below about 5e-10).
    """
    if len(weights) == 0:
        raise InvalidArgumentError("weights", weights, allowed="at least one weight is needed")
    values = np.array([validation.positive(f"weights[{i}]", w) for i, w in enumerate(weights)])
    relative_weights = values / values.max()
    multiples = values / values.min()
    if np.all(multiples == np.rint(multiples)) and multiples.sum() < 2.0**_MASS_BITS:
        masses = multiples.astype(np.int64)
    else:
        parts = relative_weights / relative_weights.sum() * 2.0**_MASS_BITS
        if parts.min() < 1.0:
            raise InvalidArgumentError(
                "weights",
                float(values.min()),
                allowed=f"the smallest weight must be at least {2.0**-_MASS_BITS:.1e} of the sum, "
                f"it is {relative_weights.min() / relative_weights.sum():.1e}",
                fix="Leave the candidate out or raise its weight.",
            )
        masses = np.rint(parts).astype(np.int64)
    divisor = int(np.gcd.reduce(masses))
    result: IntArray = masses // divisor
    return result


def share_unit(masses: IntArray) -> int:
    """The largest power of two that keeps the sum of all shares at or below ``2**53``."""
    free_bits = _TOTAL_BITS - int(masses.sum() - 1).bit_length()
    if free_bits < 1:
        raise InvalidArgumentError(
            "masses", int(masses.sum()), allowed="their sum must be below 2**52"
        )
    return 1 << free_bits


def share_limits(
    masses: IntArray, unit: int, bounds: tuple[float, float]
) -> tuple[IntArray, IntArray, int]:
    """Smallest and largest allowed share of every candidate, and the sum of all shares.

    Rounded inwards: a share within these limits is inside [c, C] in exact arithmetic. The prior
    itself (``unit * masses``) always lies within.
    """
    c, big_c = bounds
    total = unit * int(masses.sum())
    big_c = min(big_c, float(total))
    if int(masses.max()) == 1:
        # Scaling by a power of two is exact, so both limits are; they are the same for everyone.
        common_limits = math.ceil(c * unit), min(math.floor(big_c * unit), total)
        lowest, highest = (
            np.broadcast_to(np.int64(limit), masses.shape) for limit in common_limits
        )
        return lowest, highest, total
    base = masses * unit
    # A product with any other mass is rounded: step inwards, though not past the prior itself.
    lower = np.ceil(np.nextafter(c * base, np.inf))
    upper = np.floor(np.minimum(np.nextafter(big_c * base, 0.0), float(total)))
    lowest = np.minimum(lower.astype(np.int64), base)
    highest = np.maximum(upper.astype(np.int64), base)
    return lowest, highest, total


def enforce(f: FloatArray, masses: IntArray, bounds: tuple[float, float]) -> BoundedDensity:
    """Rounds a density ratio onto exact shares within the bounds.

    The last step of every projection. ``f`` is expected to satisfy the bounds and the sum up to
    rounding, but nothing is assumed: any array of floats whatever ends inside the bounds.

    Args:
        f: Density ratio of each candidate, shape (N,); NaN counts as the lower bound.
        masses: The prior's integer masses, shape (N,).
        bounds: ``(c, C)``.
    """
    unit = share_unit(masses)
    lower, upper, total = share_limits(masses, unit, bounds)
    target = np.clip(f, bounds[0], min(bounds[1], float(total)))
    target *= masses * unit
    np.rint(np.minimum(target, float(total), out=target), out=target)
    np.copyto(target, 0.0, where=np.isnan(target))
    shares = target.astype(np.int64)
    np.clip(shares, lower, upper, out=shares)
    deficit = total - int(shares.sum())
    while deficit != 0:
        # What is missing (or too much) is spread evenly over the candidates that can still move,
        # those strictly inside the bounds first, so that f = C and f = c stay where they are.
        slack = upper - shares if deficit > 0 else shares - lower
        movable = np.flatnonzero((slack > 0) & (shares > lower) & (shares < upper))
        if movable.size == 0:
            movable = np.flatnonzero(slack > 0)
        share, remainder = divmod(abs(deficit), movable.size)
        if share == 0:
            movable = movable[:remainder]
        change = np.full(movable.size, share, dtype=np.int64)
        change[:remainder] += 1
        change = np.minimum(change, slack[movable])
        shares[movable] += change if deficit > 0 else -change
        deficit = total - int(shares.sum())
    return BoundedDensity(shares, masses, unit, bounds)
