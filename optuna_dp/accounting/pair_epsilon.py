"""The epsilon of a dominating pair at one delta, to the last digit."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from optuna_dp import validation
from optuna_dp.errors import InvalidArgumentError

if TYPE_CHECKING:
    from optuna_dp.accounting.dominating_pairs import DominatingPair


def smallest_epsilon_of_pair(pair: DominatingPair, delta: float) -> float:
    """See :meth:`DominatingPair.epsilon`."""
    delta = validation.number("delta", delta)
    if not 0.0 <= delta <= 1.0:
        raise InvalidArgumentError("delta", delta, "it must lie in [0, 1]")
    if delta < pair.infinite_mass:
        return math.inf
    if float(pair.delta(0.0)) <= delta:
        return 0.0
    knots = pair.losses[pair.losses > 0.0]
    if knots.size == 0:
        # All finite losses are negative: h(1) is the infinite mass, handled above.
        return 0.0
    # First knot where the profile is low enough; the last one is (delta >= infinite_mass).
    first = int(np.argmax(pair.upper_delta(knots) <= delta))
    start = pair.losses.size - knots.size + first
    tail, tail_prime = float(pair.tails[0][start]), float(pair.tails[1][start])
    guess = float(knots[first])
    if tail > delta and tail_prime > 0.0:
        guess = min(guess, math.log(tail - delta) - math.log(tail_prime))
    guess = max(guess, 0.0)
    step = math.ulp(guess)
    while guess < knots[first] and float(pair.delta(guess)) > delta:
        guess, step = guess + step, 2.0 * step
    return min(guess, float(knots[first]))
