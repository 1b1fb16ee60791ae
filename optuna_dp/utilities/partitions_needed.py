"""Estimates the error of a private choice beforehand, and the number of partitions it needs."""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass

from optuna_dp import validation
from optuna_dp.errors import InvalidArgumentError
from optuna_dp.utilities.accounting import composed_epsilon
from optuna_dp.utilities.doubling import DoublingPlan
from optuna_dp.utilities.noisy_max import NoisyMaxPlan
from optuna_dp.utilities.utility_values import RESOLUTION

# Rounding to the grid, and the half grid points by which whole-number noise exceeds real noise.
_GRID_ERROR = 2.0 / RESOLUTION
# Means carry a sensitivity one grid point above that of scores.
_GRID_FACTOR = 1.0 + 1.0 / RESOLUTION


class NoiseWarning(UserWarning):
    """The noise hides differences that the user wants to resolve."""


def above_threshold_error(
    n_candidates: int, n_partitions: int, epsilon: float, beta: float = 0.05
) -> float:
    """Error of one AboveThreshold call that is exceeded with probability at most ``beta``.

    ``(4 ln|S| + 6 ln(2/beta)) / (k epsilon)``: threshold noise below ``2 ln(2/beta)/(k epsilon)``
    with probability ``1 - beta/2``, all query noises below ``4 ln(2|S|/beta)/(k epsilon)``
    likewise. It implies the textbook's ``8 (ln|S| + ln(2/beta)) / (k epsilon)`` (Dwork & Roth
    2014, Theorem 3.24). An accepted utility is at least the threshold minus the error; if none is
    accepted, all utilities are below the threshold plus the error.
    """
    s, k, e0, beta = _checked(n_candidates, n_partitions, epsilon, beta)
    return _GRID_FACTOR * (4 * math.log(s) + 6 * math.log(2 / beta)) / (k * e0) + _GRID_ERROR


def noisy_max_error(
    n_candidates: int, n_partitions: int, epsilon: float, beta: float = 0.05
) -> float:
    """Loss in utility of report-noisy-max that is exceeded with probability at most ``beta``.

    ``2 ln(|S|/beta) / (k epsilon)``: the noise is exponential with mean ``2/(k epsilon)``, never
    negative, and the loss is at most the largest of them.
    """
    s, k, e, beta = _checked(n_candidates, n_partitions, epsilon, beta)
    return _GRID_FACTOR * 2 * math.log(s / beta) / (k * e) + _GRID_ERROR


def loop_error(
    plan: DoublingPlan, n_candidates: int, n_partitions: int, beta: float = 0.05
) -> float:
    """Loss in utility of the doubling loop that is exceeded with probability at most ``beta``.

    ``g + 2a``, with a the error of one call at ``beta/m``: all m calls keep within a at once; the
    last accepted candidate is within a below the accumulated u, and nothing reached ``u + g + a``
    when the step fell to zero. It needs the best utility to be at least ``u0 + g + a`` (else
    nothing need be accepted), and a loop that ends before ``max_iterations`` cuts it short.
    """
    each = validation.open_unit("beta", beta) / plan.iteration_bound
    one_call = above_threshold_error(n_candidates, n_partitions, plan.epsilon, each)
    return plan.granularity + 2 * one_call


def partitions_for_noisy_max(
    resolve: float, n_candidates: int, epsilon: float, beta: float = 0.05
) -> int:
    """The smallest k at which :func:`noisy_max_error` is at most ``resolve``."""
    return _partitions(resolve, noisy_max_error(n_candidates, 2, epsilon, beta), _GRID_ERROR)


def partitions_for_loop(
    resolve: float, plan: DoublingPlan, n_candidates: int, beta: float = 0.05
) -> int:
    """The smallest k at which :func:`loop_error` is at most ``resolve``.

    Raises:
        InvalidArgumentError: ``resolve`` does not exceed the granularity; no k would do.
    """
    fixed = plan.granularity + 2 * _GRID_ERROR
    return _partitions(resolve, loop_error(plan, n_candidates, 2, beta), fixed)


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
    noisy_max_partitions: int

    @property
    def hidden(self) -> bool:
        """Returns whether the noise exceeds what the user wants to resolve."""
        return self.error > self.resolve

    def message(self) -> str:
        """One paragraph for a person."""
        text = (
            f"With {self.n_partitions} partitions the choice may lose {self.error:.3g} in utility "
            f"(with probability {1 - self.beta:.3g} not more); to resolve {self.resolve:g} "
        )
        if self.error >= 1.0:
            text = (
                f"With {self.n_partitions} partitions the noise (error {self.error:.3g}) exceeds "
                "the whole range of utilities, and the choice may be no better than a random one; "
                f"to resolve {self.resolve:g} "
            )
        if self.partitions_needed is None:
            text += "the granularity must be smaller than that."
        else:
            text += f"{self.partitions_needed} partitions would do."
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
    resolve = validation.positive("resolve", resolve)
    needed: int | None
    if isinstance(plan, NoisyMaxPlan):
        error = noisy_max_error(n_candidates, n_partitions, plan.epsilon, beta)
        needed = partitions_for_noisy_max(resolve, n_candidates, plan.epsilon, beta)
        total = plan.epsilon
    else:
        error = loop_error(plan, n_candidates, n_partitions, beta)
        try:
            needed = partitions_for_loop(resolve, plan, n_candidates, beta)
        except InvalidArgumentError:
            needed = None
        total = composed_epsilon(delta, plan.epsilon, plan.iteration_bound)
    return UtilityPlan(
        error=error,
        resolve=resolve,
        beta=beta,
        n_partitions=n_partitions,
        partitions_needed=needed,
        total_epsilon=total,
        delta=delta,
        noisy_max_error=noisy_max_error(n_candidates, n_partitions, total, beta),
        noisy_max_partitions=partitions_for_noisy_max(resolve, n_candidates, total, beta),
    )


def _checked(
    n_candidates: int, n_partitions: int, epsilon: float, beta: float
) -> tuple[int, int, float, float]:
    return (
        validation.whole("n_candidates", n_candidates, minimum=1),
        validation.whole("n_partitions", n_partitions, minimum=2),
        validation.positive("epsilon", epsilon),
        validation.open_unit("beta", beta),
    )


def _partitions(resolve: float, error_at_two: float, fixed: float) -> int:
    """The smallest k at which an error is at most ``resolve``: it is ``fixed + scaled / k``."""
    scaled = 2 * (error_at_two - fixed)
    room = validation.positive("resolve", resolve) - fixed
    if room <= 0:
        raise InvalidArgumentError(
            "resolve",
            resolve,
            "it must exceed the granularity and the grid of utilities",
            "Use a smaller granularity.",
        )
    # One part in 10**9 above, so that the error at the returned k is not above by rounding.
    needed = scaled / room * (1 + 1e-9)
    if not needed < math.inf:
        raise InvalidArgumentError(
            "resolve", resolve, "no number of partitions would do", "Use a larger epsilon."
        )
    return max(2, math.ceil(needed))
