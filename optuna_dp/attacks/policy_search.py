"""Common parts of the searches for policies.

The epsilon that an attack shows, and distributions of T cut short.
"""

from __future__ import annotations

import math

import numpy as np

from optuna_dp.core.arrays import FloatArray
from optuna_dp.selection.laws.base import TrialCount

# Taken from the attack's advantage for the rounding of sums and of linear systems.
_ROUNDING = 1e-9
_LONGEST_RUN = 20_000

Masses = tuple[tuple[float, ...], ...]
#: Epsilon, prior masses, ``tops`` and ``events`` of the notation of ``policy_attack``.
Found = tuple[float, tuple[float, ...], Masses, Masses]


def shown_epsilon(on: float, off: float, delta: float) -> float:
    """Returns the epsilon that (A(E), A'(E)) shows at delta, rounded down."""
    excess = on * (1.0 - _ROUNDING) - delta
    if excess <= 0.0:
        return -math.inf
    return math.log(excess) - math.log(off * (1.0 + _ROUNDING) + 1e-300) - _ROUNDING


def rows(table: FloatArray) -> Masses:
    """Returns a table as it is reported."""
    return tuple(tuple(row) for row in table.tolist())


def truncated(trials: TrialCount, delta: float, epsilon: float) -> tuple[FloatArray, float]:
    """Returns (P[T = 1..N], P[T > N]) with a tail that hardly matters to the attack."""
    tail_limit = 1e-4 * delta * math.exp(-max(epsilon, 0.0))
    n = 1
    while float(trials.tail(n)) > tail_limit and n < _LONGEST_RUN:
        n = n + max(1, n // 8)
    if trials.maximum is not None:
        n = min(n, trials.maximum)
    return np.array([float(trials.pmf(k)) for k in range(1, n + 1)]), float(trials.tail(n))
