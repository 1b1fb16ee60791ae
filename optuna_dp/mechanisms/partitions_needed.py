"""Estimates the error of a private choice beforehand, and the number of partitions it needs."""

from __future__ import annotations

import warnings
from dataclasses import dataclass

from optuna_dp.core import validation
from optuna_dp.errors import InvalidArgumentError
from optuna_dp.mechanisms.choice_plan import GRID_ERROR, ChoicePlan
from optuna_dp.mechanisms.report_noisy_max import NoisyMaxPlan


class NoiseWarning(UserWarning):
    """The noise hides differences that the user wants to resolve."""


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
    plan: ChoicePlan,
    *,
    n_candidates: int,
    n_partitions: int,
    resolve: float = 0.05,
    beta: float = 0.05,
    delta: float = 1e-5,
) -> UtilityPlan:
    """Says what a plan would resolve before any data are spent on it.

    Args:
        plan: The choice as planned, a :class:`DoublingPlan` or a :class:`NoisyMaxPlan`.
        n_candidates: Number of candidates.
        n_partitions: ``k``.
        resolve: Difference in averaged utility that matters to the user.
        beta: Probability with which the error may be larger than stated.
        delta: For the epsilon of the doubling loop as a whole.
    """
    s = validation.whole("n_candidates", n_candidates, 1)
    k = validation.whole("n_partitions", n_partitions, 2)
    beta = validation.open_unit("beta", beta)
    if validation.positive("resolve", resolve) <= GRID_ERROR:
        raise InvalidArgumentError(
            "resolve", resolve, allowed=f"it must exceed {GRID_ERROR:.1g}, the grid of utilities"
        )
    error, total = plan.error(s, beta), plan.total_epsilon(delta)
    rival = NoisyMaxPlan(validation.positive("total epsilon", total)).error(s, beta)
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
