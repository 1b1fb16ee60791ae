"""The binomial law."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from optuna_dp.core import validation
from optuna_dp.core.arrays import FloatArray
from optuna_dp.errors import InvalidArgumentError
from optuna_dp.selection.laws import exact, special
from optuna_dp.selection.laws.base import Mpf, TrialCount

if TYPE_CHECKING:
    from mpmath import MPContext

# Whole numbers up to here are floats, and so are their ratios to the mean.
_LARGEST_N = 10**15


@dataclass(frozen=True)
class Binomial(TrialCount):
    """Binomial law, T = 0, 1, ..., n, with success probability mean / n.

    Args:
        n: Largest T, from 1 to 10^15.
        mean: E[T], from 1e-100 to ``n`` (exactly ``n``: T = n always).

    Raises:
        InvalidArgumentError: If an argument is not allowed.
    """

    n: int
    mean: float
    law: ClassVar[str] = "binomial"

    def __post_init__(self) -> None:
        n = validation.whole("n", self.n, minimum=1)
        if n > _LARGEST_N:
            raise InvalidArgumentError("n", n, allowed=f"it must be at most {_LARGEST_N}")
        object.__setattr__(self, "n", n)
        mean = validation.positive("mean", self.mean)
        if not special.SMALLEST_MEAN <= mean <= n:
            raise InvalidArgumentError(
                "mean", self.mean, allowed=f"it must be from 1e-100 to n={n}"
            )
        object.__setattr__(self, "mean", mean)

    @property
    def maximum(self) -> int | None:
        return self.n

    @property
    def terms(self) -> int:
        return 1

    @property
    def _p(self) -> float:
        return self.mean / self.n

    @property
    def _q(self) -> float:
        return (self.n - self.mean) / self.n

    def _pmf(self, k: FloatArray) -> FloatArray:
        n, p, q = float(self.n), self._p, self._q
        if q == 0.0:
            return np.where(k == n, 1.0, 0.0)
        inner = (k >= 1.0) & (k <= n - 1.0)
        j = np.where(inner, k, 1.0)
        misses = np.where(inner, n - k, 1.0)
        # Loader's saddle-point form of the binomial probability.
        log_pmf = (
            special.stirling_error(np.asarray(n))
            - special.stirling_error(j)
            - special.stirling_error(misses)
            - special.deviance(j, n * p)
            - special.deviance(misses, n * q)
        )
        bulk = np.exp(log_pmf) * np.sqrt(n / (2.0 * math.pi * j * misses))
        at_zero = math.exp(float(special.scipy().xlog1py(n, -p)))
        at_n = math.exp(float(special.scipy().xlog1py(n, -q)))
        ends = np.where(k == 0.0, at_zero, np.where(k == n, at_n, 0.0))
        return np.where(inner, bulk, ends)

    def _tail(self, n: int) -> float:
        if n >= self.n:
            return 0.0
        return float(special.scipy().betainc(n + 1.0, float(self.n - n), self._p))

    def _cdf_at(self, k: int) -> float:
        if not 0 <= k < self.n:
            return 0.0 if k < 0 else 1.0
        return float(special.scipy().betaincc(k + 1.0, float(self.n - k), self._p))

    def _pgf(self, s: FloatArray) -> FloatArray:
        return np.asarray(np.exp(special.scipy().xlog1py(self.n, -self._p * (1.0 - s))))

    def _pgf_derivative(self, s: FloatArray) -> FloatArray:
        return np.asarray(
            self.mean * np.exp(special.scipy().xlog1py(self.n - 1, -self._p * (1.0 - s)))
        )

    def exact_tail(self, ctx: MPContext, n: int) -> Mpf:
        p = Fraction(self.mean) / self.n
        if n >= self.n or p == 1:
            return ctx.mpf(n < self.n)
        odds = p / (1 - p)

        def pmf(k: int) -> Mpf:
            with ctx.workprec(exact.PRECISION + 3 * self.n.bit_length()):
                choose = ctx.loggamma(self.n + 1) - ctx.loggamma(k + 1)
                choose -= ctx.loggamma(self.n - k + 1)
                success = ctx.mpf(p.numerator) / p.denominator
                failure = ctx.mpf((1 - p).numerator) / (1 - p).denominator
                return ctx.exp(choose + k * ctx.log(success) + (self.n - k) * ctx.log(failure))

        def ratio(k: int) -> tuple[int, int]:
            return (self.n - k) * odds.numerator, (k + 1) * odds.denominator

        return exact.tail_by_sums(ctx, n, Fraction(self.mean), pmf, ratio)

    def log_slope_ratios(
        self, a: FloatArray, forward: FloatArray, reverse: FloatArray
    ) -> FloatArray:
        q = self.mean / self.n
        if q >= 1.0:
            # T = n: phi' can differ without limit where it is taken at 0.
            return np.full(a.shape, np.inf if self.n > 1 else 0.0)
        growth = q * np.expm1(a) + q / (1.0 - q) * forward
        return np.asarray((self.n - 1) * np.log1p(growth), dtype=np.float64)
