"""The Poisson law."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from optuna_dp import validation
from optuna_dp.arrays import FloatArray
from optuna_dp.errors import InvalidArgumentError
from optuna_dp.private_selection.trial_counts import exact_sums, special
from optuna_dp.private_selection.trial_counts.base import Mpf, TrialCount

_LARGEST_MEAN = 1e8


@dataclass(frozen=True)
class Poisson(TrialCount):
    """Poisson law, T = 0, 1, 2, ...; when T = 0 nothing is released.

    Args:
        mean: E[T], from 1e-100 to 1e8.

    Raises:
        InvalidArgumentError: If an argument is not allowed.
    """

    mean: float
    law: ClassVar[str] = "poisson"

    def __post_init__(self) -> None:
        mean = validation.positive("mean", self.mean)
        if not special.SMALLEST_MEAN <= mean <= _LARGEST_MEAN:
            raise InvalidArgumentError(
                "mean", self.mean, "it must be at least 1e-100 and at most 1e8"
            )
        object.__setattr__(self, "mean", mean)

    def _pmf(self, k: FloatArray) -> FloatArray:
        # Loader's saddle-point form: k log(mean) - mean - log k! without cancellation.
        safe = np.maximum(k, 1.0)
        log_pmf = -special.deviance(safe, self.mean) - special.stirling_error(safe)
        bulk = np.exp(log_pmf) / np.sqrt(2.0 * math.pi * safe)
        return np.where(k == 0.0, math.exp(-self.mean), bulk)

    def _tail(self, n: int) -> float:
        return float(special.scipy().gammainc(n + 1.0, self.mean))

    def _cdf_at(self, k: int) -> float:
        return 0.0 if k < 0 else float(special.scipy().gammaincc(k + 1.0, self.mean))

    def _pgf(self, s: FloatArray) -> FloatArray:
        return np.asarray(np.exp(-self.mean * (1.0 - s)))

    def _pgf_derivative(self, s: FloatArray) -> FloatArray:
        return np.asarray(self.mean * np.exp(-self.mean * (1.0 - s)))

    def exact_tail(self, ctx: Any, n: int) -> Mpf:
        return exact_sums.poisson_tail(ctx, n, self.mean)
