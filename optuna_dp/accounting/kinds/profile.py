"""Mechanisms that are known by points of their privacy profile, or by what implies such points.

Between points nothing is assumed. A profile is convex in e^epsilon, so it lies below the chord of
any two upper bounds; it does not increase, so beyond the last point it lies below that one; and
before the first it lies below the chord from delta = 1 at e^epsilon = 0
(:meth:`optuna_dp.accounting.dominating_pairs.DominatingPair.from_profile`). So any choice among
the points is sound, and the 500 that are kept are spread evenly over log(delta).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import cast

import attr
import numpy as np
import numpy.typing as npt
from dp_accounting import dp_event
from dp_accounting.pld import privacy_loss_distribution

from optuna_dp.accounting import plds
from optuna_dp.accounting.dominating_pairs import LARGEST_EPSILON, DominatingPair
from optuna_dp.accounting.kinds.base import OwnEvent
from optuna_dp.core import validation
from optuna_dp.core.arrays import BoolArray, FloatArray
from optuna_dp.errors import InvalidArgumentError

# A record of a study holds them all.
MOST_POINTS = 500
# Points that lie above the line between their neighbours by more were not read off a profile.
# Convolutions and minima over Rényi orders leave some that lie above it by less.
_RELATIVE, _ABSOLUTE = 1e-3, 1e-9
# Below this a delta is as good as none when points are chosen.
_FLOOR = 1e-18


def _numbers(name: str, values: object) -> tuple[float, ...]:
    if isinstance(values, str) or not hasattr(values, "__iter__"):
        raise InvalidArgumentError(name, values, allowed="it must be a sequence of numbers")
    numbers = tuple(validation.number(f"{name}[{i}]", v) for i, v in enumerate(values))
    for i, value in enumerate(numbers):
        if not 0.0 <= value < math.inf:
            raise InvalidArgumentError(
                f"{name}[{i}]", value, allowed="it must be finite and at least 0"
            )
    return numbers


def _given(values: object) -> tuple[float, ...]:
    return cast("tuple[float, ...]", values)  # Checked when the names of all are known.


@attr.s(frozen=True, slots=True, auto_attribs=True)
class ProfileDpEvent(OwnEvent):
    """A mechanism of which upper bounds of its privacy profile are known at some epsilons.

    Attributes:
        epsilons: Shape (n,), at least 0, ascending.
        deltas: Shape (n,), in [0, 1], convex in e^epsilon, not increasing.
        reverse_deltas: The like for the other direction (dp-accounting's "add"), or empty, if
            ``deltas`` hold for both.
    """

    epsilons: tuple[float, ...] = attr.ib(converter=_given)
    deltas: tuple[float, ...] = attr.ib(converter=_given)
    reverse_deltas: tuple[float, ...] = attr.ib(default=(), converter=_given)

    def __attrs_post_init__(self) -> None:
        for name in ("epsilons", "deltas", "reverse_deltas"):
            object.__setattr__(self, name, _numbers(name, getattr(self, name)))
        epsilons = np.array(self.epsilons)
        _check_ascending("epsilons", epsilons)
        for name in ("deltas", "reverse_deltas")[: 2 if self.reverse_deltas else 1]:
            _check_curve(name, getattr(self, name), epsilons)

    def words(self, of: Callable[[dp_event.DpEvent], str]) -> str:
        """See :class:`OwnEvent`."""
        last_delta = max(self._last)
        last_point = f"delta at most {last_delta:.3g} from epsilon {self.epsilons[-1]:.3g} on"
        return (
            f"a mechanism with a given privacy profile ({len(self.epsilons)} points, {last_point})"
        )

    def not_private(self) -> str | None:
        """See :class:`OwnEvent`."""
        return "a ProfileDpEvent has no delta below 1" if max(self._last) >= 1.0 else None

    def pair(
        self, relation: str, pair_of: Callable[[dp_event.DpEvent, str], DominatingPair]
    ) -> DominatingPair:
        """See :class:`OwnEvent`."""
        return DominatingPair.from_profile(
            self.epsilons, self.deltas, self.reverse_deltas or self.deltas
        )

    def pure(self, relation: str, pure_of: Callable[[dp_event.DpEvent, str], float]) -> float:
        """See :class:`OwnEvent`."""
        deltas = np.maximum(self.deltas, self.reverse_deltas or self.deltas)
        return self.epsilons[int(np.argmin(deltas))] if deltas[-1] == 0.0 else math.inf

    @property
    def _last(self) -> tuple[float, float]:
        return self.deltas[-1], (self.reverse_deltas or self.deltas)[-1]


def from_profile(
    epsilons: npt.ArrayLike, deltas: npt.ArrayLike, *, reverse_deltas: npt.ArrayLike = ()
) -> ProfileDpEvent:
    """Returns the event of any mechanism with these points on or above its privacy profile.

    For every point and all neighbouring data sets the mechanism must be
    (``epsilons[i]``, ``deltas[i]``)-DP, under the neighbouring relation of the guarantee.

    Args:
        epsilons: Shape (n,), at least 0, ascending.
        deltas: Shape (n,), in [0, 1], not increasing, convex in e^epsilon. Upper bounds, both for
            a record that is removed and for one that is added.
        reverse_deltas: Shape (n,): if they differ, those for a record that is added, and
            ``deltas`` are those for one that is removed.

    Returns:
        The event. Of more than 500 points it keeps 500, evenly over log(delta).

    Raises:
        InvalidArgumentError: If the points are no such curve; the message names the point.

    Example:
        >>> import optuna_dp as odp
        >>> run = odp.from_profile([0.0, 0.5, 1.0, 1.5], [0.2, 0.03, 1e-3, 1e-6])
        >>> round(odp.selection_guarantee(run, odp.Geometric(mean=10)).epsilon(1e-4), 2)
        2.32
    """
    event = ProfileDpEvent(epsilons, deltas, reverse_deltas)
    if len(event.epsilons) <= MOST_POINTS:
        return event
    points, forward, reverse = (np.array(v) for v in attr.astuple(event))
    indices = _evenly(np.maximum(forward, reverse) if reverse.size else forward)
    return ProfileDpEvent(
        points[indices], forward[indices], reverse[indices] if reverse.size else ()
    )


def from_pld(
    pld: privacy_loss_distribution.PrivacyLossDistribution, *, applications: int = 1_000_000
) -> ProfileDpEvent:
    """Returns the event of a mechanism given by its privacy loss distribution.

    Args:
        pld: A ``dp_accounting.pld.privacy_loss_distribution.PrivacyLossDistribution``, a
            pessimistic estimate, for the neighbouring relation of the guarantee. It speaks of
            both directions: one made with ``symmetric=True``, as
            ``from_two_probability_mass_functions`` does unasked, says that they are alike.
        applications: At least as many mechanisms as were composed into it. What the Fourier
            transform may have lost is added to every delta: 1.5e-10 for the default.

    Returns:
        The event of 500 points of its profile.

    Raises:
        InvalidArgumentError: If it is no such distribution, or an optimistic estimate.

    Example:
        >>> from dp_accounting.pld import privacy_loss_distribution
        >>> import optuna_dp as odp
        >>> pld = privacy_loss_distribution.from_gaussian_mechanism(4.0)
        >>> best = odp.selection_guarantee(odp.from_pld(pld), odp.Geometric(mean=10))
        >>> round(best.epsilon(delta=1e-5), 2)
        1.43
    """
    if not isinstance(pld, privacy_loss_distribution.PrivacyLossDistribution):
        raise InvalidArgumentError(
            "pld", pld, allowed="it must be a PrivacyLossDistribution of dp_accounting"
        )
    if not plds.is_pessimistic(pld):
        raise InvalidArgumentError(
            "pld",
            pld,
            allowed="it must be known to be a pessimistic estimate",
            fix="An optimistic one may lie below the truth. Make it with "
            "pessimistic_estimate=True.",
        )
    slack = plds.fft_slack(validation.whole("applications", applications, 1))
    pair = plds.pair_of_pld(pld, slack)
    losses = np.abs(pair.losses)
    epsilons = np.union1d([0.0], losses[losses <= LARGEST_EPSILON])
    # Their first point is the same up to rounding.
    forward, reverse = (np.minimum.accumulate(p.delta(epsilons)) for p in (pair, pair.reversed()))
    return from_profile(epsilons, forward, reverse_deltas=reverse)


def _check_ascending(name: str, points: FloatArray) -> None:
    if points.size == 0:
        raise InvalidArgumentError(name, (), allowed="it must not be empty")
    if np.any(falls := np.diff(points) <= 0.0):
        i = int(np.argmax(falls)) + 1
        raise InvalidArgumentError(f"{name}[{i}]", float(points[i]), allowed="they must ascend")


def _check_curve(name: str, values: tuple[float, ...], points: FloatArray) -> None:
    """Refuses what is no probability, grows, or is not convex in e^point.

    Args:
        name: The argument's name.
        values: Shape (n,).
        points: Shape (n,), ascending.
    """
    y = np.asarray(values, dtype=np.float64)
    if y.shape != points.shape:
        raise InvalidArgumentError(
            name, len(y), allowed=f"it must have as many points, {points.size}"
        )

    def refuse(is_wrong: BoolArray, offset: int, allowed: str, fix: str = "") -> None:
        if np.any(is_wrong):
            i = int(np.argmax(is_wrong)) + offset
            raise InvalidArgumentError(f"{name}[{i}]", float(y[i]), allowed=allowed, fix=fix)

    refuse(y > 1.0, 0, "it must be at most 1")
    refuse(np.diff(y) > 0.0, 1, "it must not be larger than the one before")
    if y.size > 2:
        with np.errstate(over="ignore", invalid="ignore"):  # Points that far apart say nothing.
            part = np.expm1(points[1:-1] - points[:-2]) / np.expm1(points[2:] - points[:-2])
        line = y[:-2] + part * (y[2:] - y[:-2])
        refuse(
            y[1:-1] > line * (1.0 + _RELATIVE) + _ABSOLUTE,
            1,
            "it lies above the line between its neighbours, so the curve is not convex",
            "Check the numbers. If all of them are valid bounds, leave this point out.",
        )


def _evenly(deltas: FloatArray) -> npt.NDArray[np.intp]:
    """Returns the indices of at most MOST_POINTS points, the first and the last among them."""
    depth = -np.log(np.maximum(deltas, _FLOOR))
    depths = np.linspace(depth[0], depth[-1], MOST_POINTS - 1)
    indices = np.minimum(np.searchsorted(depth, depths), depth.size - 1)
    return np.unique(np.append(indices, [0, depth.size - 1]))
