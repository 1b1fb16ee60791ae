"""The Poisson law, and its Rényi theorem.

The theorem and its proof: ``docs/explanation/rdp-of-selection.md``, Theorem 2.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import numpy.typing as npt

from optuna_dp.core import validation
from optuna_dp.core.arrays import FloatArray
from optuna_dp.errors import InvalidArgumentError
from optuna_dp.selection.laws import exact, special
from optuna_dp.selection.laws.base import Mpf, TrialCount

if TYPE_CHECKING:
    from mpmath import MPContext

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
                "mean", self.mean, allowed="it must be at least 1e-100 and at most 1e8"
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

    def exact_tail(self, ctx: MPContext, n: int) -> Mpf:
        mu = Fraction(self.mean)

        def pmf(k: int) -> Mpf:
            with ctx.workprec(exact.PRECISION + 3 * max(k, int(mu) + 1).bit_length()):
                m = ctx.mpf(self.mean)
                return ctx.exp(k * ctx.log(m) - m - ctx.loggamma(k + 1))

        def ratio(k: int) -> tuple[int, int]:
            return mu.numerator, mu.denominator * (k + 1)

        return exact.tail_by_sums(ctx, n, mu, pmf, ratio)

    @property
    def rdp_may_be_smaller(self) -> bool:
        return True

    def why_no_rdp(self, density_bounds: tuple[float, float] = (1.0, 1.0)) -> str | None:
        if density_bounds == (1.0, 1.0):
            return None
        return "no RDP formula is used for Poisson laws with density bounds: the profiles say more"

    def _rdp(self, a: FloatArray, run: FloatArray, c: float, big_c: float) -> FloatArray:
        return poisson_rdp(a, run, self.mean, _implied_deltas(a, run))

    def log_slope_ratios(
        self, a: FloatArray, forward: FloatArray, reverse: FloatArray
    ) -> FloatArray:
        return np.asarray(self.mean * (np.expm1(a) + forward), dtype=np.float64)


def poisson_rdp(
    orders: npt.ArrayLike, run_rdp: npt.ArrayLike, mean: float, deltas: npt.ArrayLike
) -> FloatArray:
    """Returns log(1 + mu e^((a-1) mu delta_hat) (e^((a-1) eps(a)) - 1)) / (a-1), any mu > 0.

    Own result, with the T = 0 outcome counted (docs/explanation/rdp-of-selection.md, Theorem 2).
    It is never larger than Theorem 6 of arXiv:2110.03620v2, which holds for mu >= 1.

    Args:
        orders: Shape (n,), at least 1.
        run_rdp: The run's curve there, shape (n,).
        mean: mu, E[T].
        deltas: delta_hat, the run's delta at e^eps_hat = a/(a-1) for each order, shape (n,).
    """
    # Lazy: only Rényi curves need it.
    from optuna_dp.accounting import rdp_curves

    a, run = rdp_curves.checked_curve(orders, run_rdp)
    mean = validation.positive("mean", mean)
    s = np.where((a > 1.0) & np.isfinite(a), a - 1.0, 1.0)
    exponent = mean * np.asarray(deltas)
    value = np.logaddexp(0.0, math.log(mean) + s * exponent + _log_expm1(s * run)) / s
    at_infinity = np.where(run > 0.0, run + exponent, 0.0)  # the limit a -> inf
    bound = np.where(np.isinf(a), at_infinity, value)
    return rdp_curves.running_minimum(a, rdp_curves.at_orders_above_one(a, bound))


def _implied_deltas(a: FloatArray, run: FloatArray) -> FloatArray:
    """What a Renyi curve implies for delta at log(a / (a - 1)); 1 stands in at order 1."""
    # Lazy: only Rényi curves need it.
    from optuna_dp.accounting.rdp_curves import rdp_to_delta

    epsilons = np.where(a > 1.0, -np.log1p(-1.0 / np.maximum(a, 1.0 + 1e-15)), 1.0)
    finite = np.isfinite(a)
    pure = float(np.min(run[~finite], initial=np.inf))
    deltas = np.where(epsilons < pure, 1.0, 0.0)
    if finite.any():
        deltas = np.minimum(deltas, rdp_to_delta(a[finite], run[finite], epsilons))
    return deltas


def _log_expm1(x: FloatArray) -> FloatArray:
    """log(e^x - 1) for x >= 0, -inf at 0."""
    with np.errstate(divide="ignore"):
        small = np.minimum(x, 40.0)
        return np.asarray(np.where(x < 40.0, np.log(np.expm1(small)), x))
