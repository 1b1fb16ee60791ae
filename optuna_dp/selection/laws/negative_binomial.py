"""The truncated negative binomial laws, geometric (shape 1) included."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from optuna_dp.core import validation
from optuna_dp.core.arrays import FloatArray
from optuna_dp.core.value_types import JsonValue
from optuna_dp.errors import InvalidArgumentError
from optuna_dp.selection.laws import exact
from optuna_dp.selection.laws.base import Mpf, TrialCount

if TYPE_CHECKING:
    from mpmath import MPContext

# Beyond it the law is a point to working precision, and its logarithms lose their digits.
_LARGEST_SHAPE = 1e6
_MEAN_ALLOWED = "the mean of a law on 1, 2, 3, ... must be finite and at least 1"


@dataclass(frozen=True, init=False, repr=False, eq=False)
class NegativeBinomial(TrialCount):
    """Truncated negative binomial law: T = 1, 2, 3, ...

    P[T = k] = (1-gamma)^k / (gamma^-shape - 1) * product over l < k of (l+shape)/(l+1), continued
    to (1-gamma)^k / (k log(1/gamma)) at shape 0 (arXiv:2110.03620v2, Definition 1). Larger shapes
    concentrate T around its mean and cost more privacy: 2 + shape times epsilon for pure DP runs.

    Args:
        shape: Above -1, at most 1e6. 1 is the geometric law, 0 the logarithmic one.
        gamma: From 1e-300 to below 1. Give either this or ``mean``.
        mean: E[T], at least 1. Exactly 1 stands for the limit gamma = 1, in which T = 1 always.

    Raises:
        InvalidArgumentError: If an argument is not allowed.

    Example:
        >>> from optuna_dp import NegativeBinomial
        >>> law = NegativeBinomial(shape=0.5, mean=10)
        >>> round(law.tail(30), 4)
        0.0618
    """

    shape: float
    gamma: float
    mean: float
    _typed: str  # which of "gamma" and "mean" the user gave
    law: ClassVar[str] = "negative_binomial"

    def __init__(
        self, *, shape: float, gamma: float | None = None, mean: float | None = None
    ) -> None:
        argument, shape = shape, validation.number("shape", shape)
        if not -1.0 < shape <= _LARGEST_SHAPE:
            raise InvalidArgumentError(
                "shape", argument, allowed="it must be above -1 and at most 1e6"
            )
        if (gamma is None) == (mean is None):
            raise InvalidArgumentError(
                "gamma, mean",
                (gamma, mean),
                allowed="exactly one of them must be given",
                fix="Each determines the other.",
            )
        if gamma is not None:
            gamma = validation.open_unit("gamma", gamma)
            if gamma < exact.SMALLEST_GAMMA:
                raise InvalidArgumentError(
                    "gamma", gamma, allowed=f"it must be at least {exact.SMALLEST_GAMMA:g}"
                )
            law_mean = mean_from_gamma(shape, gamma)
            if not law_mean < math.inf:
                raise InvalidArgumentError(
                    "gamma",
                    gamma,
                    problem=f"at shape {shape!r} the mean would not be a finite number",
                )
            self._set(shape, gamma, law_mean, typed="gamma")
        else:
            law_mean = validation.number("mean", mean)
            if not 1.0 <= law_mean < math.inf:
                raise InvalidArgumentError("mean", mean, allowed=_MEAN_ALLOWED)
            self._set(shape, _gamma_from_mean(shape, law_mean), law_mean, typed="mean")

    def _set(self, shape: float, gamma: float, mean: float, *, typed: str) -> None:
        # 0.0 + x turns -0.0 into 0.0, so that equal laws print alike.
        values = {"shape": 0.0 + shape, "gamma": gamma, "mean": mean, "_typed": typed}
        for name, value in values.items():
            object.__setattr__(self, name, value)

    def __repr__(self) -> str:
        shape = f"shape={self.shape!r}, " if type(self) is NegativeBinomial else ""
        return f"{type(self).__name__}({shape}{self._typed}={getattr(self, self._typed)!r})"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, NegativeBinomial):
            return NotImplemented
        # The mean is a function of these two (up to the last digit of how it was typed).
        return (self.shape, self.gamma) == (other.shape, other.gamma)

    def __hash__(self) -> int:
        return hash((NegativeBinomial, self.shape, self.gamma))

    @property
    def maximum(self) -> int | None:
        return 1 if self.gamma == 1.0 else None

    @property
    def log_inverse_gamma(self) -> float:
        """log(1/gamma), natural; 0 in the limit gamma = 1."""
        return -math.log(self.gamma)

    def _pmf(self, k: FloatArray) -> FloatArray:
        if self.gamma == 1.0:
            return np.where(k == 1.0, 1.0, 0.0)
        safe = np.maximum(k, 1.0)
        if self.shape == 1.0:
            values = self.gamma * np.exp((safe - 1.0) * math.log1p(-self.gamma))
        else:
            values = _other_shapes().pmf(safe, self.shape, self.gamma)
        return np.where(k >= 1.0, values, 0.0)

    def _tail(self, n: int) -> float:
        if n == 0:
            return 1.0
        if self.gamma == 1.0:
            return 0.0
        if self.shape == 1.0:
            return math.exp(n * math.log1p(-self.gamma)) if n < 1e300 else 0.0
        return float(_other_shapes().tail(n, self.shape, self.gamma))

    def _pgf(self, s: FloatArray) -> FloatArray:
        if self.gamma == 1.0:
            return s
        if self.shape == 1.0:
            return np.asarray(self.gamma * s / (self.gamma + (1.0 - self.gamma) * (1.0 - s)))
        return np.asarray(_other_shapes().pgf(s, self.shape, self.gamma))

    def _pgf_derivative(self, s: FloatArray) -> FloatArray:
        z = 1.0 - self.gamma
        growth = np.log1p(z * (1.0 - s) / self.gamma)
        return np.asarray(self.mean * np.exp(-(1.0 + self.shape) * growth))

    def exact_tail(self, ctx: MPContext, n: int) -> Mpf:
        if n <= 0 or self.gamma == 1.0:
            return ctx.mpf(n <= 0)
        if self.shape == 1.0:
            return (1 - ctx.mpf(self.gamma)) ** n
        return _other_shapes().exact_tail(ctx, n, self.shape, self.gamma)

    @property
    def pure_factor(self) -> float:
        # arXiv:2110.03620v2, Corollary of Theorem 2; DP-HyPO, arXiv:2306.05734v2, Theorem 2.
        return 2.0 + self.shape

    @property
    def is_memoryless(self) -> bool:
        return self.shape == 1.0

    def ratios(self, k: int) -> tuple[float, float]:
        z = 1.0 - self.gamma
        return z * (k + self.shape) / (k + 1.0), z

    @property
    def rdp_may_be_smaller(self) -> bool:
        # For the geometric law, the default, the profile was smaller wherever it was compared.
        return not self.is_memoryless

    def why_no_rdp(self, density_bounds: tuple[float, float] = (1.0, 1.0)) -> str | None:
        return None

    def _rdp(self, a: FloatArray, run: FloatArray, c: float, big_c: float) -> FloatArray:
        """Theorem 2 of arXiv:2110.03620v2 under density bounds.

        eps(a) + log(C/c) + log(C)/(a-1) + log(m)/(a-1)
        + (1+eta) min over b of [(1-1/b)(eps(b) + log(1/c)) + log(C) + log(1/gamma)/b].

        At C = c = 1 it is the theorem. For density bounds it is never larger than DP-HyPO's
        Theorem 1; the proof is ours (docs/explanation/rdp-of-selection.md), since the printed one
        takes a step that fails for suprema.
        """
        # Lazy: only Rényi curves need it.
        from optuna_dp.accounting import rdp_curves

        term = self.rdp_term(a, run, -math.log(c), math.log(big_c))
        extra = -math.log(c) + math.log(big_c)
        per_order = rdp_curves.over_order(a, math.log(self.mean) + math.log(big_c))
        bound = run + extra + per_order + term
        return rdp_curves.running_minimum(a, rdp_curves.at_orders_above_one(a, bound))

    def rdp_term(self, a: FloatArray, run: FloatArray, per_run: float, constant: float) -> float:
        # b = 1 needs nothing of the run: 0 * inf is 0 there, by the proof and not by convention.
        weighted = np.where(a > 1.0, (1.0 - 1.0 / a) * np.where(a > 1.0, run + per_run, 0.0), 0.0)
        terms = weighted + constant + self.log_inverse_gamma / a
        return (1.0 + self.shape) * float(np.min(terms))

    def log_slope_ratios(
        self, a: FloatArray, forward: FloatArray, reverse: FloatArray
    ) -> FloatArray:
        # log(e^a + x) = a + log(1 + x e^-a), which cannot overflow.
        x = (1.0 - self.gamma) / self.gamma * reverse
        return np.asarray((1.0 + self.shape) * (a + np.log1p(x * np.exp(-a))), dtype=np.float64)

    def to_json(self) -> dict[str, JsonValue]:
        entry: dict[str, JsonValue] = {"law": self.law, "shape": self.shape, "gamma": self.gamma}
        if self._typed == "mean":
            entry["mean"] = self.mean
        return entry

    @classmethod
    def _read(cls, data: dict[str, JsonValue]) -> TrialCount:
        by_mean = "mean" in data
        names = {"law", "shape", "gamma", *(["mean"] if by_mean else [])}
        if set(data) != names:
            raise cls.refusal(data, f"an entry of the {cls.law} law has the keys {sorted(names)}")
        shape = validation.number("shape", data["shape"])
        mean = validation.number("mean", data["mean"]) if by_mean else None
        parameter = {"mean": mean} if by_mean else {"gamma": data["gamma"]}
        law: Callable[..., NegativeBinomial] = cls
        result = law(**parameter) if cls is not NegativeBinomial else law(shape=shape, **parameter)
        if shape != result.shape:
            raise cls.refusal(data, f"the shape of the {cls.law} law is {result.shape}")
        if mean is None:
            return result
        gamma = validation.number("gamma", data["gamma"])
        consistent = 0.0 < gamma <= 1.0 and abs(mean_from_gamma(shape, gamma) / mean - 1.0) < 1e-9
        if not consistent:
            raise cls.refusal(data, f"mean {mean!r} belongs to gamma {result.gamma!r}")
        # The recorded gamma is the law; solving for it again may differ in the last digit.
        object.__setattr__(result, "gamma", gamma)
        return result


@dataclass(frozen=True, init=False, repr=False, eq=False)
class Geometric(NegativeBinomial):
    """Geometric law, P[T = k] = gamma (1 - gamma)^(k-1), k = 1, 2, 3, ..., of mean 1/gamma.

    Args:
        mean: E[T], at least 1 (exactly 1: T = 1 always).
        gamma: From 1e-300 to below 1. Give either this or ``mean``.

    Raises:
        InvalidArgumentError: If an argument is not allowed.
    """

    law: ClassVar[str] = "geometric"

    def __init__(self, mean: float | None = None, *, gamma: float | None = None) -> None:
        super().__init__(shape=1.0, mean=mean, gamma=gamma)


def mean_from_gamma(shape: float, gamma: float) -> float:
    """Returns E[T] = shape (1-gamma) / (gamma (1 - gamma^shape)), continued to shape 0."""
    if gamma == 1.0:
        return 1.0
    if shape == 1.0:
        return 1.0 / gamma
    try:
        return math.exp(_other_shapes().log_mean(shape, -math.log(gamma)))
    except OverflowError:
        return math.inf


def _gamma_from_mean(shape: float, mean: float) -> float:
    if mean == 1.0:
        return 1.0
    gamma = 1.0 / mean if shape == 1.0 else float(_other_shapes().solve_gamma(shape, mean))
    if gamma < exact.SMALLEST_GAMMA:
        raise InvalidArgumentError(
            "mean",
            mean,
            problem=f"at shape {shape!r} it would need gamma below {exact.SMALLEST_GAMMA:g}",
            fix="Use a smaller mean or a shape further from -1.",
        )
    return gamma


def _other_shapes() -> ModuleType:
    # Lazy: draws from a geometric distribution do not need it.
    from optuna_dp.selection.laws import other_shapes

    return other_shapes
