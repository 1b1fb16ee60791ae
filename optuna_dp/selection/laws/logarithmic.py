"""The logarithmic law: the truncated negative binomial one of shape 0."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from optuna_dp.selection.laws.negative_binomial import NegativeBinomial


@dataclass(frozen=True, init=False, repr=False, eq=False)
class Logarithmic(NegativeBinomial):
    """Logarithmic law, P[T = k] proportional to (1-gamma)^k / k, k = 1, 2, 3, ...

    Args:
        mean: E[T], at least 1 (exactly 1: T = 1 always).
        gamma: From 1e-300 to below 1. Give either this or ``mean``.

    Raises:
        InvalidArgumentError: If an argument is not allowed.
    """

    law: ClassVar[str] = "logarithmic"

    def __init__(self, mean: float | None = None, *, gamma: float | None = None) -> None:
        super().__init__(shape=0.0, mean=mean, gamma=gamma)
