"""Other methods at the epsilon of a budget: the noise of the released model, and the computing.

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
from optuna_dp.accounting.guarantee import Guarantee
from optuna_dp.accounting.kinds.bounded_range import bounded_range
from optuna_dp.budget.plan import BudgetPlan
from optuna_dp.errors import InvalidArgumentError
from optuna_dp.json_records import Record
from optuna_dp.planning.calibration import NOISE, profile_epsilon, rough_epsilon
from optuna_dp.planning.saddle_point import Steps, estimated_epsilon
from optuna_dp.planning.target_search import SearchResult, guided
from optuna_dp.private_selection.guarantee import selection_guarantee
from optuna_dp.private_selection.trial_counts.negative_binomial import Geometric
from optuna_dp.training.run_events import run_event, sgd_training

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
    score = (*plan.rungs, plan.final)[-2 if plan.rungs else -1].score_noise_multiplier

    def training(noise: float) -> Any:
        return sgd_training(noise, rate, steps)

    def selection(u: float, mean: float, bounds: tuple[float, float]) -> Guarantee:
        return selection_guarantee(
            run_event(training(NOISE.value(u)), score, plan.score),
            Geometric(mean),
            density_bounds=bounds,
            neighboring_relation=plan.neighboring_relation,
        )

    def about(u: float, noises: tuple[float | None, ...], delta: float) -> float:
        """What a training of this noise costs beside Gaussian mechanisms, in milliseconds."""
        parts = [Steps(rate, NOISE.value(u), steps)]
        parts += [Steps(1.0, noise, 1) for noise in noises if noise is not None]
        is_replace_one = plan.neighboring_relation == "replace_one"
        return estimated_epsilon(parts, delta, near=plan.epsilon, replace_one=is_replace_one)

    def single(event: Callable[[float], Any], *noises: float) -> float | None:
        def cost(u: float) -> float:
            guarantee = Guarantee(event(NOISE.value(u)), plan.neighboring_relation)
            return profile_epsilon(guarantee, plan.delta)

        rough = partial(about, noises=noises, delta=plan.delta)
        point = guided(cost, rough, plan.epsilon, start, ratio=1.0, tolerance=_TOLERANCE)
        return _noise(point, plan)

    def selected(mean: int) -> SearchResult:
        def cost(u: float) -> float:
            return profile_epsilon(selection(u, mean, (1.0, 1.0)), plan.delta)

        # One run where it counts; the search costs about so much more.
        rough = partial(about, noises=(score,), delta=plan.delta / mean)
        return guided(cost, rough, plan.epsilon, start, ratio=1.15, tolerance=_TOLERANCE)

    def adaptive(without: SearchResult) -> float | None:
        # The slow one: led by the older of its bounds, which is about so much larger.
        point = guided(
            lambda u: profile_epsilon(selection(u, 10, _DENSITY_BOUNDS), plan.delta),
            lambda u: rough_epsilon(selection(u, 10, _DENSITY_BOUNDS), plan.delta),
            plan.epsilon,
            replace(start, start=without.at - 0.05, slope=without.slope),
            ratio=0.96,
            tolerance=_LOOSE,
        )
        return _noise(point, plan)

    def rand_tune(mean: int, point: SearchResult) -> Alternative:
        secret = f"secret, {mean} on average"
        return Alternative(f"RandTune, mean {mean}", _noise(point, plan), secret, float(mean))

    choice = _CHOICE_SHARE * plan.epsilon
    start = replace(NOISE, start=-math.log(plan.final.noise_multiplier))
    pilots = sum(n * rung.steps for n, rung in zip(plan.rung_sizes, plan.rungs, strict=True))
    noise_of_ten = selected(10)
    noise = plan.final.noise_multiplier
    if plan.pilots:
        plan_rows = [
            Alternative(
                "pilots, then one run (this plan)",
                noise,
                f"{plan.pilots} + 1",
                pilots / steps + 1.0,
            ),
            Alternative("one run, no pilots", single(training), "1", 1.0),
        ]
    else:
        plan_rows = [Alternative("one run (this plan)", noise, "1", 1.0)]
    return [
        *plan_rows,
        rand_tune(10, noise_of_ten),
        rand_tune(30, selected(30)),
        Alternative(
            "DP-HyPO (0.75, 2), mean 10",
            adaptive(noise_of_ten),
            "secret, 10 on average",
            10.0,
        ),
        Alternative(
            f"noisy max of {_CANDIDATES}, partitions",
            # Such a choice costs about as much as Gaussian noise of two over its range.
            single(lambda noise: compose(bounded_range(choice), training(noise)), 2.0 / choice),
            f"{_CANDIDATES} without privacy + 1",
            _CANDIDATES + 1.0,
        ),
    ]


def _noise(point: SearchResult, plan: BudgetPlan) -> float | None:
    """Returns the noise that a search found, None if it costs too much all the same."""
    return NOISE.value(point.at) if point.cost <= plan.epsilon else None
