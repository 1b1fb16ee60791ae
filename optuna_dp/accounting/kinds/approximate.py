"""Mechanisms that are known only to be (epsilon, delta)-DP, and answers at random."""

from __future__ import annotations

import math
from collections.abc import Callable

import attr
import numpy as np
from dp_accounting import dp_event
from scipy.stats import binom

from optuna_dp.accounting.dominating_pairs import LARGEST_EPSILON, DominatingPair
from optuna_dp.accounting.kinds.base import OwnEvent, Part, checked
from optuna_dp.core import validation
from optuna_dp.core.arrays import FloatArray
from optuna_dp.errors import InvalidArgumentError


def _below_one(name: str, value: object) -> float:
    delta = validation.number(name, value)
    if not 0.0 <= delta < 1.0:
        raise InvalidArgumentError(
            name, value, allowed="it must lie in [0, 1)", fix="delta = 1 protects nothing."
        )
    return delta


@attr.s(frozen=True, slots=True, auto_attribs=True)
class ApproximateDpEvent(OwnEvent):
    """A mechanism known only to be (epsilon, delta)-DP; pure when delta is 0.

    Attributes:
        epsilon: Non-negative, finite.
        delta: In [0, 1).
    """

    epsilon: float = checked(validation.non_negative, "epsilon")
    delta: float = checked(_below_one, "delta", default=0.0)

    def words(self, of: Callable[[dp_event.DpEvent], str]) -> str:
        """See :class:`OwnEvent`."""
        if self.delta == 0.0:
            return f"a mechanism of epsilon {self.epsilon:g}"
        return f"a mechanism of epsilon {self.epsilon:g} and delta {self.delta:g}"

    def part(self, count: int, relation: str) -> Part:
        """See :class:`OwnEvent`; equal ones together have a closed form."""
        return Part(dp_event.SelfComposedDpEvent(self, count), 1)

    def pair_of_many(self, count: int) -> DominatingPair:
        """See :class:`OwnEvent`; exactly."""
        return _repeated_response(self.epsilon, self.delta, count)

    def pure(self, relation: str, pure_of: Callable[[dp_event.DpEvent, str], float]) -> float:
        """See :class:`OwnEvent`."""
        return self.epsilon if self.delta == 0.0 else math.inf


def pure_dp(epsilon: float) -> ApproximateDpEvent:
    """Returns the event of any epsilon-DP mechanism.

    Args:
        epsilon: Non-negative, finite.

    Raises:
        InvalidArgumentError: If it is negative, infinite or NaN.
    """
    return ApproximateDpEvent(epsilon, 0.0)


def approximate_dp(epsilon: float, delta: float) -> ApproximateDpEvent:
    """Returns the event of any (epsilon, delta)-DP mechanism.

    Args:
        epsilon: Non-negative, finite.
        delta: In [0, 1).

    Raises:
        InvalidArgumentError: If an argument is not allowed.
    """
    return ApproximateDpEvent(epsilon, delta)


def randomized_response(epsilon: float, delta: float = 0.0) -> DominatingPair:
    """Returns the pair that dominates every (epsilon, delta)-DP mechanism.

    Kairouz, Oh & Viswanath, arXiv 1311.0776v4: with probability delta the data are
    shown, otherwise one bit is answered truthfully with probability e^eps / (1 + e^eps).

    Args:
        epsilon: Non-negative.
        delta: In [0, 1].
    """
    if delta == 1.0 or epsilon > LARGEST_EPSILON:
        # e^-600 is as good as zero: the unlikely answer counts as proof, which claims less.
        return DominatingPair.infinite()
    hidden_mass = 1.0 - delta
    if epsilon == 0.0:
        return DominatingPair(np.zeros(1), np.array([hidden_mass]), delta, delta)
    low = hidden_mass * math.exp(-epsilon) / (1.0 + math.exp(-epsilon))
    high = hidden_mass / (1.0 + math.exp(-epsilon))
    return DominatingPair(np.array([-epsilon, epsilon]), np.array([low, high]), delta, delta)


def _repeated_response(epsilon: float, delta: float, count: int) -> DominatingPair:
    """The pair of ``count`` adaptive (epsilon, delta)-DP mechanisms, exactly.

    Kairouz, Oh & Viswanath, arXiv 1311.0776v4: randomised response dominates each, so the loss
    is a binomial number of +epsilon less the rest, unless some mechanism showed the data.
    """
    infinite_mass = -math.expm1(count * math.log1p(-delta))
    if count == 1 or epsilon == 0.0:
        return randomized_response(epsilon, infinite_mass)
    positive_counts = np.arange(count + 1)
    losses = np.asarray((2.0 * positive_counts - count) * epsilon, dtype=np.float64)
    mass = (1.0 - infinite_mass) * binom.pmf(
        positive_counts, count, 1.0 / (1.0 + math.exp(-epsilon))
    )
    return without_extremes(losses, mass, mass[::-1], infinite_mass)


def without_extremes(
    losses: FloatArray, mass: FloatArray, prime: FloatArray, infinite_mass: float
) -> DominatingPair:
    """A pair of these atoms; losses too large for floats count as infinite, which claims less."""
    is_finite = np.abs(losses) <= LARGEST_EPSILON
    return DominatingPair(
        losses[is_finite],
        mass[is_finite],
        min(infinite_mass + float(mass[~is_finite].sum()), 1.0),
        min(infinite_mass + float(prime[~is_finite].sum()), 1.0),
    )


def k_ary_response(noise_parameter: float, buckets: int) -> DominatingPair:
    """Returns the pair of an answer at random among several, exactly.

    When the input changes, the answer is it, the other or a third.

    Args:
        noise_parameter: The chance that the answer is drawn at random, in (0, 1].
        buckets: How many answers there are; at least 2.
    """
    third_mass = noise_parameter / buckets
    true_mass = 1.0 - noise_parameter + third_mass
    loss = math.log1p((1.0 - noise_parameter) / third_mass)
    mass = np.array([third_mass, max((buckets - 2) * third_mass, 0.0), true_mass])
    return without_extremes(np.array([-loss, 0.0, loss]), mass, mass[::-1], 0.0)
