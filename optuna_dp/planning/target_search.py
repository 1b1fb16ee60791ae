"""The search behind calibration: the most that a target epsilon allows, from the private side.

What is searched is always a logarithm u that the cost grows with, so that noise, means and ratios
are all alike: log(cost) is nearly straight in u.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple

TOLERANCE = 0.005
"""The epsilon that is reached lies within this fraction below the target."""

_MAX_EVALUATIONS = 60
_LONGEST_STEP = 2.5  # of the search, in u
_BESIDE = 0.01  # where a slope is read
# Points as near as this say more about rounding than about the slope.
_TOO_CLOSE = 1e-3


@dataclass(frozen=True)
class Scale:
    """What is searched, as a logarithm u that the cost grows with.

    Attributes:
        sign: +1 if the cost grows with the quantity, -1 if it falls.
        low: Smallest u.
        high: Largest u.
        start: Where the search starts.
        slope: A guess of d log(cost) / du there.
    """

    sign: float
    low: float
    high: float
    start: float
    slope: float

    def value(self, u: float) -> float:
        """Returns the quantity at u."""
        return math.exp(self.sign * u)

    def starting_at(self, point: SearchResult) -> Scale:
        """Returns the same scale with the start and the slope of an earlier search."""
        return replace(self, start=point.at, slope=point.slope)


class SearchResult(NamedTuple):
    """A point of the search and what it costs.

    Attributes:
        at: The point, u.
        cost: There.
        slope: d log(cost) / du near it.
    """

    at: float
    cost: float
    slope: float


def largest_within(
    cost: Callable[[float], float], target: float, scale: Scale, *, tolerance: float = TOLERANCE
) -> SearchResult:
    """Returns the largest u found with ``cost(u) <= target``.

    A secant in (u, log cost), kept between the points found on either side of the target. It ends
    at a cost in [(1 - tolerance) target, target], at ``scale.high`` if that is within the target,
    or at the last point within it if the cost jumps over the target.

    Returns:
        The point. Its cost exceeds the target only if that of ``scale.low``, where it is then,
        does.
    """
    aim = math.log(target) + math.log1p(-0.5 * tolerance)
    inner_point: _Point | None = None
    outer_point: _Point | None = None
    slope, u = scale.slope, min(max(scale.start, scale.low), scale.high)
    repeated = 0
    for _ in range(_MAX_EVALUATIONS):
        value = cost(u)
        if math.isnan(value):
            value = math.inf
        point = _Point(u, math.log(value) - aim if value > 0.0 else -math.inf, value)
        previous = inner_point if value <= target else outer_point
        if value <= target:
            repeated = repeated + 1 if repeated > 0 else 1
            inner_point = point
            if value >= (1.0 - tolerance) * target or u >= scale.high:
                break
        else:
            repeated = repeated - 1 if repeated < 0 else -1
            outer_point = point
            if u <= scale.low:
                return SearchResult(u, value, slope)
        slope = _slope(previous or outer_point or inner_point, point, slope)
        if inner_point is None or outer_point is None:
            u = _onward(point, slope, scale, tolerance)
            continue
        if outer_point.u - inner_point.u <= 1e-9 * max(1.0, abs(inner_point.u)):
            break
        u = _between(inner_point, outer_point, repeated)
    if inner_point is None:
        assert outer_point is not None
        return SearchResult(outer_point.u, outer_point.value, slope)
    return SearchResult(inner_point.u, inner_point.value, slope)


def guided(
    cost: Callable[[float], float],
    rough: Callable[[float], float],
    target: float,
    scale: Scale,
    *,
    ratio: float,
    tolerance: float = TOLERANCE,
) -> SearchResult:
    """Returns what :func:`largest_within` promises, with one or two evaluations of ``cost``.

    Args:
        cost: The cost at u; slow.
        rough: About proportional to the cost near the answer; quick. If it is not, or not finite,
            only time is lost.
        target: See :func:`largest_within`.
        scale: See :func:`largest_within`.
        ratio: A guess of cost over rough cost: the better, the fewer evaluations. If it is not
            positive and finite, ``rough`` says nothing, and is not asked.
        tolerance: See :func:`largest_within`.
    """
    if not 0.0 < ratio < math.inf:
        return largest_within(cost, target, scale, tolerance=tolerance)
    aim = target * (1.0 - 0.5 * tolerance) / ratio
    estimate = largest_within(rough, aim, scale, tolerance=0.1 * tolerance)
    neighbour = max(estimate.at - _BESIDE, scale.low)
    if (
        neighbour < estimate.at
        and 0.0 < (neighbour_cost := rough(neighbour)) < estimate.cost < math.inf
    ):
        estimate = estimate._replace(
            slope=math.log(estimate.cost / neighbour_cost) / (estimate.at - neighbour)
        )
    return largest_within(cost, target, scale.starting_at(estimate), tolerance=tolerance)


class _Point(NamedTuple):
    u: float
    above: float  # log(cost) - log(aim)
    value: float


def _slope(earlier: _Point | None, later: _Point, default: float) -> float:
    if earlier is None or not math.isfinite(earlier.above + later.above):
        return default
    if abs(later.u - earlier.u) < _TOO_CLOSE:
        return default
    slope = (later.above - earlier.above) / (later.u - earlier.u)
    return min(max(slope, 0.05), 10.0)


def _onward(point: _Point, slope: float, scale: Scale, tolerance: float) -> float:
    """Returns the next place to look while all points lie on one side of the target."""
    step = min(1.05 * max(abs(point.above), tolerance) / slope, _LONGEST_STEP)
    return max(scale.low, point.u - step) if point.above > 0.0 else min(scale.high, point.u + step)


def _between(inner_point: _Point, outer_point: _Point, repeated: int) -> float:
    low, high = inner_point.above, outer_point.above
    if not math.isfinite(low + high):
        return 0.5 * (inner_point.u + outer_point.u)
    # Illinois: an end that stays put counts for less and less, lest the secant creep.
    if repeated > 1:
        high *= 0.5 ** (repeated - 1)
    elif repeated < -1:
        low *= 0.5 ** (-repeated - 1)
    share = min(max(low / (low - high), 0.02), 0.98)
    return inner_point.u + share * (outer_point.u - inner_point.u)
