"""The cost of the choice: optimal composition of pure mechanisms, and its events."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from optuna_dp import validation
from optuna_dp.errors import InvalidArgumentError

if TYPE_CHECKING:
    import dp_accounting

# The sum has a term per iteration, all in memory.
_MOST_ITERATIONS = 2_000_000


def iteration_event(epsilon: float, iterations: int = 1) -> dp_accounting.DpEvent:
    """``iterations`` adaptive mechanisms, each ``epsilon``-DP, as one event.

    The accountants compose it optimally; :func:`composed_epsilon` is the same number in closed
    form.
    """
    import dp_accounting  # start-up time

    from optuna_dp.accounting.kinds.approximate import ApproximateDpEvent  # start-up time

    epsilon = validation.positive("epsilon", epsilon)
    iterations = validation.whole("iterations", iterations, minimum=1)
    event = ApproximateDpEvent(epsilon, 0.0)
    return event if iterations == 1 else dp_accounting.SelfComposedDpEvent(event, iterations)


def composed_delta(epsilon: float, per_iteration: float, iterations: int) -> float:
    """Smallest delta for which the composition is (epsilon, delta)-DP, rounded up.

    Kairouz, Oh & Viswanath 2015 (arXiv 1311.0776v4, Theorem 3.3): m adaptive mechanisms, each
    ``per_iteration``-DP, are dominated by m randomised responses, whose hockey-stick is
    ``sum_l C(m,l) [e^((m-l) e0) - e^(eps + l e0)]_+ / (1 + e^e0)^m``. It is attained.
    """
    epsilon = validation.non_negative("epsilon", epsilon)
    e0 = validation.positive("per_iteration", per_iteration)
    m = validation.whole("iterations", iterations, minimum=1)
    if m > _MOST_ITERATIONS:
        raise InvalidArgumentError(
            "iterations",
            m,
            f"it must be at most {_MOST_ITERATIONS}",
            "Use a larger granularity or fewer iterations.",
        )
    if epsilon >= m * e0:
        return 0.0
    last = max(0, min(m, math.ceil((m - epsilon / e0) / 2)))
    number = np.arange(last + 1)
    log_binomial = np.zeros(last + 1)
    log_binomial[1:] = np.cumsum(np.log((m - number[1:] + 1) / number[1:]))
    log_weight = log_binomial - number * e0 - m * math.log1p(math.exp(-e0))
    gain = -np.expm1(np.minimum(0.0, epsilon - (m - 2 * number) * e0))
    # The running sum of m logarithms, each at most m log 2, is off by less than m^2 2**-53.
    rounding = 1e-9 + 2e-16 * m * m
    return min(1.0, float(np.sum(np.exp(log_weight) * gain)) * (1.0 + rounding))


def composed_epsilon(delta: float, per_iteration: float, iterations: int) -> float:
    """An epsilon for which the composition is (epsilon, delta)-DP; ``delta=0`` gives ``m e0``.

    The bisection returns the end on which the bound was checked to hold.
    """
    m = validation.whole("iterations", iterations, minimum=1)
    high = m * validation.positive("per_iteration", per_iteration)
    if validation.number("delta", delta) == 0.0:
        return high
    delta = validation.open_unit("delta", delta)

    def holds(epsilon: float) -> bool:
        return composed_delta(epsilon, per_iteration, m) <= delta

    return 0.0 if holds(0.0) else _bisected(holds, good=high, bad=0.0)


def epsilon_per_iteration(total_epsilon: float, delta: float, iterations: int) -> float:
    """The largest privacy per iteration found whose composition stays within the total.

    Returns the side that stays: ``composed_epsilon(delta, result, iterations) <= total_epsilon``.
    """
    total = validation.positive("total_epsilon", total_epsilon)
    m = validation.whole("iterations", iterations, minimum=1)
    low = math.nextafter(total / m, 0.0)  # basic composition, always enough
    if composed_epsilon(delta, low, m) > total:
        low = math.nextafter(low, 0.0)
    high = total
    while composed_epsilon(delta, high, m) <= total:  # a large delta allows more than the total
        low, high = high, 2 * high
    return _bisected(lambda e0: composed_epsilon(delta, e0, m) <= total, low, high, 1e-12)


def _bisected(
    holds: Callable[[float], bool], good: float, bad: float, tolerance: float = 0.0
) -> float:
    """The number closest to ``bad`` that was found to hold, from ``good``, which does."""
    while abs(bad - good) > tolerance * max(good, bad):
        middle = (good + bad) / 2
        if middle in (good, bad):
            break
        good, bad = (middle, bad) if holds(middle) else (good, middle)
    return good
