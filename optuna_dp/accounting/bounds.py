"""Bounds on the privacy loss of an event: their interface, and the two kinds every event has."""

from __future__ import annotations

import functools
import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Protocol, SupportsFloat

import numpy as np
import numpy.typing as npt
from scipy import optimize

from optuna_dp.core.arrays import FloatArray


def smallest_epsilon(
    profile: Callable[[float], SupportsFloat], delta: float, *, highest: float = 1e4
) -> float:
    """Returns an epsilon >= 0 at which a non-increasing ``profile(eps)`` is at most ``delta``.

    At most 1e-9 above the smallest one, relative, and the promise is checked at the number
    returned; ``inf`` if the profile is above ``delta`` even at ``highest``.
    """

    @functools.cache
    def over(eps: float) -> float:
        # Of normal floats only: others may count as zero (torch.set_flush_denormal).
        log_ratio = math.log(max(float(profile(eps)) / delta, 1e-300))
        # Never zero, or any epsilon of a profile that stays at delta would do.
        return log_ratio if log_ratio > 0.0 else min(log_ratio, -1e-15)

    if over(0.0) < 0.0:
        return 0.0
    low, high = 0.0, 1.0
    while over(high) > 0.0:
        low, high = high, 2.0 * high
        if low > highest:
            return math.inf
    epsilon = float(optimize.brentq(over, low, high, xtol=1e-300, rtol=1e-10, maxiter=1000))
    step = 1e-10 * epsilon
    # The profile itself is asked: a ratio that rounds to one is no promise.
    while float(profile(epsilon)) > delta:
        epsilon, step = epsilon + step, 2.0 * step
    return epsilon


class Method(ABC):
    """One valid upper bound on the privacy loss of an event."""

    @abstractmethod
    def delta(self, epsilons: npt.ArrayLike) -> FloatArray:
        """Returns the bound on delta at each epsilon >= 0."""

    def epsilon(self, delta: float) -> float:
        """Returns an epsilon at which :meth:`delta` is at most ``delta``, inf if there is none."""
        return smallest_epsilon(self.delta, delta)

    def why_infinite(self, delta: float) -> str:
        """Returns why there is no finite epsilon at ``delta``."""
        return "nothing is known for this event"


class _OneDirection(Protocol):
    def delta(self, epsilons: npt.ArrayLike) -> FloatArray: ...


class ProfileMethod(Method):
    """The larger of the profiles of the two directions.

    Args:
        forward: The one direction.
        reverse: The other.
        reason: Why every epsilon is infinite, if it is.
        coarse_reverse: A profile that is nowhere below ``reverse``, and takes less time. Where it
            is at most ``forward``, ``reverse`` is not computed.

    Attributes:
        directions: The two profiles.
    """

    def __init__(
        self,
        forward: _OneDirection,
        reverse: _OneDirection,
        reason: str | None = None,
        *,
        coarse_reverse: _OneDirection | None = None,
    ) -> None:
        self.directions = (forward, reverse)
        self._reason = reason
        self._coarse_reverse = coarse_reverse

    def delta(self, epsilons: npt.ArrayLike) -> FloatArray:
        """See :class:`Method`."""
        forward, reverse = self.directions
        deltas, coarse = np.asarray(forward.delta(epsilons)), self._coarse_reverse
        if coarse is not None and np.all(np.asarray(coarse.delta(epsilons)) <= deltas):
            return deltas
        return np.maximum(deltas, np.asarray(reverse.delta(epsilons)))

    def epsilon(self, delta: float) -> float:
        """See :class:`Method`: the larger of both, the second one sought only if it is."""
        epsilon = smallest_epsilon(self.directions[0].delta, delta)
        if epsilon < np.inf and float(self.delta(epsilon)) > delta:
            epsilon = max(epsilon, smallest_epsilon(self.directions[1].delta, delta))
        # Where a profile is flat its last bit may grow again.
        while epsilon < np.inf and float(self.delta(epsilon)) > delta:
            epsilon = math.nextafter(epsilon, math.inf)
        return epsilon

    def why_infinite(self, delta: float) -> str:
        """See :class:`Method`."""
        if self._reason is not None:
            return self._reason
        floor = float(self.delta(np.array([500.0]))[0])
        return f"the runs' own deltas add up to {floor:.3g}, which is more than delta={delta:g}"


class PureMethod(Method):
    """A pure epsilon."""

    def __init__(self, epsilon: float) -> None:
        self._epsilon = epsilon

    def delta(self, epsilons: npt.ArrayLike) -> FloatArray:
        """See :class:`Method`."""
        return np.where(np.asarray(epsilons, dtype=np.float64) >= self._epsilon, 0.0, 1.0)

    def epsilon(self, delta: float) -> float:
        """See :class:`Method`."""
        return self._epsilon

    def why_infinite(self, delta: float) -> str:
        """See :class:`Method`."""
        return "a part of the event has no pure epsilon, or the selection has none"
