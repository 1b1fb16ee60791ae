"""The law of min(T, n), for any law of T."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from optuna_dp import validation
from optuna_dp.arrays import FloatArray
from optuna_dp.errors import InvalidArgumentError
from optuna_dp.private_selection.trial_counts.base import Mpf, TrialCount

_LARGEST_CAP = 2_000_000
# Coefficients that are summed at once.
_BLOCK = 256
# Probabilities that are computed at once: their formulas take ten times the memory.
_AT_ONCE = 1_000_000


@dataclass(frozen=True, repr=False)
class Capped(TrialCount):
    """Law of min(T, n) for T of another law; made by ``law.capped(n)``.

    The RDP formulas of selection do not hold for capped laws (see
    ``docs/explanation/rdp-of-selection.md``); the profile bounds do.

    Args:
        base: The law of T, not itself capped.
        n: The cap, from 1 to 2 million.

    Attributes:
        mean: E[min(T, n)].

    Raises:
        InvalidArgumentError: If an argument is not allowed.
    """

    base: TrialCount
    n: int
    mean: float = field(init=False, compare=False)
    law: ClassVar[str] = "capped"

    def __post_init__(self) -> None:
        if not isinstance(self.base, TrialCount) or isinstance(self.base, Capped):
            raise InvalidArgumentError(
                "base", self.base, "it must be an uncapped law of T", "Use law.capped(n)."
            )
        n = validation.whole("n", self.n, minimum=1)
        if n > _LARGEST_CAP:
            raise InvalidArgumentError("n", n, f"it must be at most {_LARGEST_CAP}")
        object.__setattr__(self, "n", n)
        object.__setattr__(self, "mean", float(np.sum(self.weights)))

    def __repr__(self) -> str:
        return f"{self.base!r}.capped({self.n})"

    def capped(self, n: int) -> TrialCount:
        n = validation.whole("n", n, minimum=1)
        return self if n >= self.n else self.base.capped(n)

    @property
    def maximum(self) -> int | None:
        return self.n

    @property
    def uncapped(self) -> TrialCount:
        return self.base

    @property
    def terms(self) -> int:
        return self.n

    @cached_property
    def _probabilities(self) -> FloatArray:
        """P[T = k] for k = 0, ..., n (trailing zeros and what is negligible cut off)."""
        parts = [
            self.base._pmf(np.arange(start, min(start + _AT_ONCE, self.n), dtype=np.float64))
            for start in range(0, self.n, _AT_ONCE)
        ]
        p = np.concatenate([*parts, [self.base._tail(self.n - 1)]])
        # phi'(s) >= P[T=1] for every s, so the terms cut off are below its rounding error.
        k = np.arange(p.size, dtype=np.float64)
        indices = np.flatnonzero(k * p > 1e-24 * p[1])
        return p[: int(indices[-1]) + 1] if indices.size else p

    @cached_property
    def weights(self) -> FloatArray:
        """k P[T = k] for k = 1, 2, ...: the coefficients of phi'."""
        p = self._probabilities
        return np.arange(1.0, p.size) * p[1:]

    def _pmf(self, k: FloatArray) -> FloatArray:
        below = k < self.n
        inner = self.base._pmf(np.where(below, k, 1.0))
        return np.where(below, inner, np.where(k == self.n, self.base._tail(self.n - 1), 0.0))

    def _tail(self, n: int) -> float:
        return self.base._tail(n) if n < self.n else 0.0

    def _cdf_at(self, k: int) -> float:
        return self.base._cdf_at(k) if k < self.n else 1.0

    def _pgf(self, s: FloatArray) -> FloatArray:
        return _polynomial(self._probabilities, s)

    def _pgf_derivative(self, s: FloatArray) -> FloatArray:
        return _polynomial(self.weights, s)

    def exact_tail(self, ctx: Any, n: int) -> Mpf:
        return self.base.exact_tail(ctx, n) if n < self.n else ctx.mpf(0)


def _polynomial(coefficients: FloatArray, s: FloatArray) -> FloatArray:
    """Horner's rule; all coefficients and s are non-negative, so nothing cancels.

    Long polynomials in blocks: a matrix product gives each block's value at each s, Horner's rule
    joins them.
    """
    if coefficients.size <= 4 * _BLOCK:
        total = np.zeros_like(s)
        for coefficient in coefficients[::-1]:
            total = total * s + coefficient
        return total
    points, place = np.unique(s.ravel(), return_inverse=True)
    padding = np.zeros(-coefficients.size % _BLOCK)
    blocks = np.concatenate([coefficients, padding]).reshape(-1, _BLOCK).T
    # Terms so far beyond the first one are less than its rounding, which the sum is at least.
    lowest = int(np.flatnonzero(coefficients)[0])
    negligible = math.log(1e18) + math.log(coefficients.sum()) - math.log(coefficients[lowest])
    with np.errstate(divide="ignore"):
        terms = lowest + negligible / np.abs(np.log(points))
    ends = np.minimum(terms, coefficients.size) // _BLOCK + 2
    values = np.empty_like(points)
    chunk = max(1, 4_000_000 // blocks.shape[1])
    for start in range(0, points.size, chunk):
        part = slice(start, start + chunk)
        at = points[part]
        inner = at[:, None] ** np.arange(_BLOCK) @ blocks[:, : int(ends[part].max())]
        total, step = np.zeros_like(at), at**_BLOCK
        for column in inner.T[::-1]:
            total = total * step + column
        values[part] = total
    return values[place].reshape(s.shape)
