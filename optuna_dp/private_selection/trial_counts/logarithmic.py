"""The logarithmic law: the truncated negative binomial one of shape 0."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from optuna_dp.private_selection.trial_counts.negative_binomial import NegativeBinomial, given_mean


@dataclass(frozen=True, init=False, repr=False, eq=False)
class Logarithmic(NegativeBinomial):
    """Logarithmic law, P[T = k] proportional to (1-gamma)^k / k, k = 1, 2, 3, ...

    Args:
        mean: E[T], at least 1 (exactly 1: T = 1 always).

    Raises:
        InvalidArgumentError: If an argument is not allowed.
    """

    law: ClassVar[str] = "logarithmic"

    def __init__(self, mean: float) -> None:
        super().__init__(shape=0.0, mean=given_mean(mean))
