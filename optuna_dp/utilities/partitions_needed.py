"""Estimates the error of a private choice beforehand, and the number of partitions it needs."""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass

from optuna_dp import validation
from optuna_dp.errors import InvalidArgumentError
from optuna_dp.utilities.doubling import DoublingPlan
from optuna_dp.utilities.report_noisy_max import NoisyMaxPlan
from optuna_dp.utilities.utility_values import RESOLUTION

# Rounding to the grid, and the half grid points by which whole-number noise exceeds real noise.
_GRID_ERROR = 2.0 / RESOLUTION
# Means carry a sensitivity one grid point above that of scores.
_GRID_FACTOR = 1.0 + 1.0 / RESOLUTION


class NoiseWarning(UserWarning):
    """The noise hides differences that the user wants to resolve."""


@dataclass(frozen=True)
class ErrorBound:
    """An error in utility as a function of the number of partitions, ``fixed + scaled / k``."""

    fixed: float
    scaled: float

    def at(self, n_partitions: int) -> float:
        """Returns the error with so many partitions."""
        return self.fixed + self.scaled / n_partitions

    def partitions(self, resolve: float) -> int | None:
        """Returns the smallest k at which the error is at most ``resolve``; None if none is."""
        margin = resolve - self.fixed
        # One part in 10**9 above, so that the error at the returned k is not above by rounding.
        count = self.scaled / margin * (1 + 1e-9) if margin > 0 else math.inf
        return max(2, math.ceil(count)) if count < math.inf else None


def above_threshold_error(n_candidates: int, epsilon: float, beta: float = 0.05) -> ErrorBound:
    """Error of one AboveThreshold call that is exceeded with probability at most ``beta``.

    ``(4 ln|S| + 6 ln(2/beta)) / (k epsilon)``: threshold noise below ``2 ln(2/beta)/(k epsilon)``
    with probability ``1 - beta/2``, all query noises below ``4 ln(2|S|/beta)/(k epsilon)``
    likewise. It implies the textbook's ``8 (ln|S| + ln(2/beta)) / (k epsilon)`` (Dwork & Roth
    2014, Theorem 3.24). An accepted utility is at least the threshold minus the error; if none is
    accepted, all utilities are below the threshold plus the error.
    """
    factor = (4 * math.log(n_candidates) + 6 * math.log(2 / beta)) / epsilon
    return ErrorBound(_GRID_ERROR, _GRID_FACTOR * factor)


def noisy_max_error(n_candidates: int, epsilon: float, beta: float = 0.05) -> ErrorBound:
    """Loss in utility of report-noisy-max that is exceeded with probability at most ``beta``.

    ``2 ln(|S|/beta) / (k epsilon)``: the noise is exponential with mean ``2/(k epsilon)``, never
    negative, and the loss is at most the largest of them.
    """
    factor = 2 * math.log(n_candidates / beta) / epsilon
    return ErrorBound(_GRID_ERROR, _GRID_FACTOR * factor)


def loop_error(plan: DoublingPlan, n_candidates: int, beta: float = 0.05) -> ErrorBound:
    """Loss in utility of the doubling loop that is exceeded with probability at most ``beta``.

    ``g + 2a``, with a the error of one call at ``beta/m``: all m calls keep within a at once; the
    last accepted candidate is within a below the accumulated u, and nothing reached ``u + g + a``
    when the step fell to zero. It needs the best utility to be at least ``u0 + g + a`` (else
    nothing need be accepted), and a loop that ends before ``max_iterations`` cuts it short.
    """
    iteration_error = above_threshold_error(
        n_candidates, plan.epsilon, beta / plan.iteration_bound
    )
    return ErrorBound(plan.granularity + 2 * iteration_error.fixed, 2 * iteration_error.scaled)


@dataclass(frozen=True)
class UtilityPlan:
    """What a choice would resolve, and what it costs. Depends on no data.

    Attributes:
        error: Loss in utility, exceeded with probability at most ``beta``.
        resolve: Difference in utility that the user wants to see.
        beta: Probability of failure of the error bound.
        n_partitions: Planned k.
        partitions_needed: The k at which the error is at most ``resolve``, or None if none is.
        total_epsilon: Epsilon of the whole choice at ``delta``.
        delta: The delta of ``total_epsilon``; report-noisy-max does not need it.
        noisy_max_error: The same error for report-noisy-max at the same total epsilon.
        noisy_max_partitions: The k that report-noisy-max would need at that epsilon.
    """

    error: float
    resolve: float
    beta: float
    n_partitions: int
    partitions_needed: int | None
    total_epsilon: float
    delta: float
    noisy_max_error: float
    noisy_max_partitions: int | None

    @property
    def hidden(self) -> bool:
        """Returns whether the noise exceeds what the user wants to resolve."""
        return self.error > self.resolve

    def message(self) -> str:
        """One paragraph for a person."""
        text = (
            f"With {self.n_partitions} partitions the choice may lose {self.error:.3g} in utility "
            f"(with probability {1 - self.beta:.3g} not more)"
        )
        if self.error >= 1.0:
            text = (
                f"With {self.n_partitions} partitions the noise (error {self.error:.3g}) exceeds "
                "the whole range of utilities, and the choice may be no better than a random one"
            )
        advice = "the granularity must be smaller than that"
        if self.partitions_needed is not None:
            advice = f"{self.partitions_needed} partitions would do"
        text += f"; to resolve {self.resolve:g} {advice}."
        if self.noisy_max_error < self.error:
            text += (
                f" Report-noisy-max at the same total epsilon of {self.total_epsilon:.4g}: "
                f"{self.noisy_max_error:.3g}, and {self.noisy_max_partitions} partitions would do."
            )
        return text

    def warn(self, stacklevel: int = 1) -> None:
        """Issues a :class:`NoiseWarning` if the noise hides what the user wants to resolve."""
        if self.hidden:
            warnings.warn(self.message(), NoiseWarning, stacklevel=stacklevel + 1)


def plan_utilities(
    plan: DoublingPlan | NoisyMaxPlan,
    *,
    n_candidates: int,
    n_partitions: int,
    resolve: float = 0.05,
    beta: float = 0.05,
    delta: float = 1e-5,
) -> UtilityPlan:
    """Says what a plan would resolve before any data are spent on it.

    Args:
        plan: The choice as planned.
        n_candidates: Candidates tested (in one iteration).
        n_partitions: ``k``.
        resolve: Difference in averaged utility that matters to the user.
        beta: Probability with which the error may be larger than stated.
        delta: For the epsilon of the doubling loop as a whole.
    """
    s = validation.whole("n_candidates", n_candidates, 1)
    k = validation.whole("n_partitions", n_partitions, 2)
    beta = validation.open_unit("beta", beta)
    if validation.positive("resolve", resolve) <= _GRID_ERROR:
        raise InvalidArgumentError(
            "resolve", resolve, f"it must exceed {_GRID_ERROR:.1g}, the grid of utilities"
        )
    if isinstance(plan, NoisyMaxPlan):
        error, total = noisy_max_error(s, plan.epsilon, beta), plan.epsilon
    else:
        from optuna_dp.accounting.guarantee import Guarantee  # start-up time

        error, total = loop_error(plan, s, beta), Guarantee(plan.event()).epsilon(delta)
    rival = noisy_max_error(s, validation.positive("total epsilon", total), beta)
    return UtilityPlan(
        error=error.at(k),
        resolve=resolve,
        beta=beta,
        n_partitions=k,
        partitions_needed=error.partitions(resolve),
        total_epsilon=total,
        delta=delta,
        noisy_max_error=rival.at(k),
        noisy_max_partitions=rival.partitions(resolve),
    )
