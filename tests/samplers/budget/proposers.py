"""The worst proposer of hyperparameters there is, for runs that are small discrete mechanisms."""

from __future__ import annotations

import math
from collections.abc import Sequence

from optuna_dp.core.arrays import FloatArray

# By hyperparameter: the laws of the output on D and on D', (hyperparameters, 2, outputs).
Run = FloatArray


def worst(runs: Sequence[Run], epsilon: float) -> float:
    """The largest hockey-stick divergence of all outputs together, over every proposer."""

    def value(a: float, b: float, left: Sequence[Run]) -> float:
        if not left:
            return max(0.0, a - math.exp(epsilon) * b)
        return max(
            sum(value(a * p, b * q, left[1:]) for p, q in zip(laws[0], laws[1], strict=True))
            for laws in left[0]
        )

    return value(1.0, 1.0, list(runs))
