"""The use of a plan's pilots, and the cost of more of them; for guidance only."""

from __future__ import annotations

import math
from dataclasses import dataclass

from optuna_dp.accounting.guarantee import Guarantee
from optuna_dp.budget.plan import BudgetPlan
from optuna_dp.errors import InvalidArgumentError
from optuna_dp.json_records import Record
from optuna_dp.planning.batch import noise_of_training
from optuna_dp.planning.calibration import profile_epsilon
from optuna_dp.training.fidelity import Fidelity

# Where the noise of a score alone spreads an accuracy by as much, few differences can be seen.
BLIND = 0.1


@dataclass(frozen=True)
class PilotWorth(Record):
    """What the pilots of one rung are worth.

    Attributes:
        pilots: How many there are.
        steps: Length of one.
        epsilon: What one of them costs by itself: it sees as little as a training of this epsilon.
        spread: Standard deviation of an accuracy by the noise of its score alone, a share; None if
            the score is on other records than the training's.
    """

    pilots: int
    steps: int
    epsilon: float
    spread: float | None


def pilot_worth(plan: BudgetPlan) -> list[PilotWorth]:
    """Returns what the pilots of each rung are worth.

    Args:
        plan: Of DP-SGD: made from ``records``, ``batch_size`` and ``epochs``.
    """
    return [
        PilotWorth(
            pilots=count,
            steps=rung.steps,
            epsilon=profile_epsilon(Guarantee(rung.event, plan.neighboring_relation), plan.delta),
            spread=_spread(plan, rung),
        )
        for count, rung in zip(plan.rung_sizes, plan.rungs, strict=True)
    ]


def noise_of_twice(plan: BudgetPlan) -> float:
    """Returns how many times the last run's noise it would take to have twice the pilots.

    Pilots of the same noise; about, in shares of the squared budget, of which the last run has
    one over the square of its noise increase. Infinite if the budget cannot pay for them.

    Args:
        plan: Of DP-SGD.

    Raises:
        InvalidArgumentError: If its runs are not DP-SGD.
    """
    last_run = plan.final
    if last_run.sample_rate is None:
        raise InvalidArgumentError("plan", plan, "its runs are not DP-SGD")
    untuned = noise_of_training(
        plan.epsilon,
        plan.delta,
        last_run.sample_rate,
        last_run.steps * (1 + plan.spare_runs),
        plan.neighboring_relation == "replace_one",
    )
    share = min((untuned / last_run.noise_multiplier) ** 2, 1.0)
    return math.sqrt(share / (2.0 * share - 1.0)) if share > 0.5 else math.inf


def _spread(plan: BudgetPlan, rung: Fidelity) -> float | None:
    if rung.score_noise_multiplier is None or plan.score != "training":
        return None
    assert rung.batch_size is not None
    assert rung.sample_rate is not None
    return rung.score_noise_multiplier * rung.sample_rate / (2.0 * rung.batch_size)
