"""The guarantee for a person with several records, from the guarantee for one record.

If the output for neighbours is (epsilon, delta)-indistinguishable, that for data sets ``size``
records apart is (size * epsilon, delta * (1 + e^epsilon + ... + e^((size - 1) epsilon))): each
step multiplies what the earlier ones have added (Vadhan, The Complexity of Differential Privacy,
2017, lemma 2.2, with its sum not rounded up). It holds for every delta of the step; the largest
that fits is looked for, because a larger one has a smaller epsilon.
"""

from __future__ import annotations

import math

import numpy as np

from optuna_dp.accounting.guarantee import Guarantee
from optuna_dp.core import validation

# Deltas of the step that are tried, as powers of ten below the delta asked for.
_TRIED = np.arange(0.0, 25.0, 0.2)


def group_epsilon(guarantee: Guarantee, delta: float, size: int) -> float:
    """Returns an epsilon that holds at ``delta`` for ``size`` records together.

    Args:
        guarantee: For one record, under either relation.
        delta: In (0, 1).
        size: How many records are added, removed or replaced at once; at least 1.

    Returns:
        The smallest epsilon found; ``inf`` if none is known.

    Raises:
        InvalidArgumentError: If an argument is not allowed.
    """
    target = validation.open_unit("delta", delta)
    count = validation.whole("size", size, 1)
    if count == 1:
        return guarantee.epsilon(target)
    least_epsilon = math.inf
    too_large, small = 0, len(_TRIED)
    # Whatever fits is right, whether or not all smaller ones fit; the smallest may have no finite
    # epsilon at all.
    while too_large < small:
        middle = (too_large + small) // 2
        step = float(target * 10.0 ** -_TRIED[middle])
        epsilon = guarantee.epsilon(step)
        if epsilon == math.inf:
            small = middle
        elif math.log(step) + log_sum(epsilon, count) <= math.log(target):
            least_epsilon, small = min(least_epsilon, count * epsilon), middle
        else:
            too_large = middle + 1
    return least_epsilon


def log_sum(epsilon: float, size: int) -> float:
    """Log of 1 + e^epsilon + ... + e^((size - 1) epsilon), rounded up."""
    if epsilon == 0.0:
        return math.log(size)
    # (e^(size epsilon) - 1) / (e^epsilon - 1), without overflow.
    steep = (size - 1) * epsilon
    log_ratio = math.log(-math.expm1(-size * epsilon)) - math.log(-math.expm1(-epsilon))
    return (steep + log_ratio) * (1 + 1e-12) + 1e-12
