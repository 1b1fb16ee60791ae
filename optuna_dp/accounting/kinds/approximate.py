"""Mechanisms that are known only to be (epsilon, delta)-DP."""

from __future__ import annotations

import math

import numpy as np

from optuna_dp import validation
from optuna_dp.accounting.dominating_pairs import LARGEST_EPSILON, DominatingPair
from optuna_dp.errors import InvalidArgumentError


def randomized_response(epsilon: float, delta: float = 0.0) -> DominatingPair:
    """Returns the pair that dominates every (epsilon, delta)-DP mechanism.

    Kairouz, Oh & Viswanath, arXiv 1311.0776v4: with probability delta the data are
    shown, otherwise one bit is answered truthfully with probability e^eps / (1 + e^eps).

    Args:
        epsilon: Non-negative.
        delta: In [0, 1].
    """
    epsilon = validation.number("epsilon", epsilon)
    if epsilon < 0.0:
        raise InvalidArgumentError("epsilon", epsilon, "it must be non-negative")
    delta = validation.number("delta", delta)
    if not 0.0 <= delta <= 1.0:
        raise InvalidArgumentError("delta", delta, "it must lie in [0, 1]")
    if delta == 1.0 or epsilon > LARGEST_EPSILON:
        # e^-600 is as good as zero: the unlikely answer counts as proof, which claims less.
        return DominatingPair.infinite()
    rest = 1.0 - delta
    if epsilon == 0.0:
        return DominatingPair(np.zeros(1), np.array([rest]), delta, delta)
    low = rest * math.exp(-epsilon) / (1.0 + math.exp(-epsilon))
    high = rest / (1.0 + math.exp(-epsilon))
    return DominatingPair(np.array([-epsilon, epsilon]), np.array([low, high]), delta, delta)
