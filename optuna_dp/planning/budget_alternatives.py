"""What a budget would buy in other ways: how noisy the released model is, and what it takes.

Every way is solved for the same total epsilon, with the steps of the plan's last run and scores on
the training records at the cost of the plan's own. What matters in the end is accuracy, which no
accounting knows: ``docs/explanation/what-tuning-costs.md`` measures it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from optuna_dp.accounting.events import compose
from optuna_dp.accounting.guarantee import Guarantee, selection_guarantee
from optuna_dp.accounting.kinds.bounded_range import bounded_range
from optuna_dp.errors import InvalidArgumentError
from optuna_dp.json_records import Record
from optuna_dp.planning.budget_plan import BudgetPlan, run_event, sgd_training
from optuna_dp.planning.calibration import NOISE, profile_epsilon
from optuna_dp.planning.target_search import Found, guided, largest_within
from optuna_dp.trial_counts.negative_binomial import Geometric

_DENSITY_BOUNDS = (0.75, 2.0)
# What a choice among partitions' utilities takes, and on how many models it rests.
_CHOICE_SHARE, _CANDIDATES = 0.25, 20
# Looser than a plan's, which is what is run.
_TOLERANCE, _LOOSE = 0.01, 0.03


@dataclass(frozen=True)
class Alternative(Record):
    """One way to come to a model at the same total epsilon.

    Attributes:
        name: In words.
        noise_multiplier: Of the run that is released; None where no noise reaches the target.
        trainings: How many, in words.
        computing: Steps in units of one training, on average.
    """

    name: str
    noise_multiplier: float | None
    trainings: str
    computing: float


def alternatives(plan: BudgetPlan) -> list[Alternative]:
    """Returns the plan itself and what else its epsilon would buy.

    Args:
        plan: Of DP-SGD: made from ``records``, ``batch_size`` and ``epochs``.

    Raises:
        InvalidArgumentError: If the plan is not of DP-SGD.
    """
    rate, steps = plan.final.sample_rate, plan.final.steps
    if rate is None:
        raise InvalidArgumentError("plan", plan, "its runs are not DP-SGD")
    # A selection's runs are all scored; each like a pilot of the highest rung.
    score = plan.rungs[-1].score_noise_multiplier

    def training(noise: float) -> Any:
        return sgd_training(noise, rate, steps)

    def run(noise: float) -> Any:
        return run_event(training(noise), score, plan.score)

    def chosen(noise: float) -> Any:
        return compose(bounded_range(_CHOICE_SHARE * plan.epsilon), training(noise))

    def selection(u: float, mean: float, bounds: tuple[float, float]) -> float:
        found = selection_guarantee(
            run(NOISE.value(u)),
            Geometric(mean),
            density_bounds=bounds,
            neighboring_relation=plan.neighboring_relation,
        )
        return profile_epsilon(found, plan.delta)

    def single(u: float, event: Callable[[float], Any]) -> float:
        return Guarantee(event(NOISE.value(u)), plan.neighboring_relation).epsilon(plan.delta)

    def noise_of(cost: Callable[[float], float]) -> float | None:
        return _noise(largest_within(cost, plan.epsilon, start, tolerance=_TOLERANCE), plan)

    def adaptive() -> float | None:
        # The slow one: led by what the same search costs without adaptivity.
        found = guided(
            lambda u: selection(u, 10, _DENSITY_BOUNDS),
            lambda u: selection(u, 10, (1.0, 1.0)),
            plan.epsilon,
            start,
            ratio=1.25,
            tolerance=_LOOSE,
        )
        return _noise(found, plan)

    def rand_tune(mean: int) -> Alternative:
        noise = noise_of(partial(selection, mean=mean, bounds=(1.0, 1.0)))
        return Alternative(
            f"RandTune, mean {mean}", noise, f"secret, {mean} on average", float(mean)
        )

    start = replace(NOISE, start=-math.log(plan.final.noise_multiplier))
    pilots = sum(n * rung.steps for n, rung in zip(plan.rung_sizes, plan.rungs, strict=True))
    return [
        Alternative(
            "pilots, then one run (this plan)",
            plan.final.noise_multiplier,
            f"{plan.pilots} + 1",
            pilots / steps + 1.0,
        ),
        Alternative("no tuning", noise_of(partial(single, event=training)), "1", 1.0),
        rand_tune(10),
        rand_tune(30),
        Alternative(
            "DP-HyPO (0.75, 2), mean 10",
            adaptive(),
            "secret, 10 on average",
            10.0,
        ),
        Alternative(
            f"noisy max of {_CANDIDATES}, partitions",
            noise_of(partial(single, event=chosen)),
            f"{_CANDIDATES} without privacy + 1",
            _CANDIDATES + 1.0,
        ),
    ]


def _noise(found: Found, plan: BudgetPlan) -> float | None:
    """Returns the noise that a search found, None if it costs too much all the same."""
    return NOISE.value(found.at) if found.cost <= plan.epsilon else None
