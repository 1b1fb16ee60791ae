"""The cost of a plan's runs follows from the numbers beside them, or the plan is refused."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import pytest
from refusals import refuses

import optuna_dp as odp

PLAN = odp.plan_budget(epsilon=3.0, records=1348, batch_size=64, epochs=2, pilots=2)
OF_FUNCTION = odp.plan_budget(
    epsilon=3.0, run=lambda noise, steps: odp.gaussian(noise), steps=7, pilots=2
)


@pytest.mark.parametrize(
    ("name", "value"),
    [("noise_multiplier", 0.5), ("steps", 100), ("score_noise_multiplier", 0.5)],
)
def test_other_numbers_cost_what_their_run_costs(name: str, value: Any) -> None:
    last = dataclasses.replace(PLAN.paid_last, **{name: value})
    plan = dataclasses.replace(PLAN, paid_last=last)
    training = odp.dp_sgd(
        noise_multiplier=last.noise_multiplier, sample_rate=64 / 1348, steps=last.steps
    )
    assert last.score_noise_multiplier is not None
    assert plan.final.training == training
    assert plan.final.event == odp.compose(
        training, odp.scoring.score_event(last.score_noise_multiplier)
    )
    assert plan.guarantee.epsilon(1e-5) > PLAN.guarantee.epsilon(1e-5)
    assert odp.BudgetPlan.from_json(json.loads(json.dumps(plan.to_json()))) == plan


def test_an_event_of_dp_sgd_that_is_stated_besides_is_refused() -> None:
    last = dataclasses.replace(PLAN.paid_last, training=odp.gaussian(1000.0))
    with refuses("training"):
        dataclasses.replace(PLAN, paid_last=last)


def test_a_plan_of_a_function_needs_the_event_of_each_training() -> None:
    last = dataclasses.replace(OF_FUNCTION.paid_last, training=None)
    with refuses("training"):
        dataclasses.replace(OF_FUNCTION, paid_last=last)


def test_the_cost_follows_from_whose_records_are_scored() -> None:
    """A score on disjoint records costs less, and whoever runs the plan is told that place."""
    disjoint = dataclasses.replace(PLAN, score="disjoint")
    assert disjoint.final.scored_on == "disjoint"
    assert disjoint.guarantee.epsilon(1e-5) < PLAN.guarantee.epsilon(1e-5)


@pytest.mark.parametrize("plan", [PLAN, OF_FUNCTION])
def test_the_noise_of_scores_is_not_left_out(plan: odp.BudgetPlan) -> None:
    with refuses("score"):
        dataclasses.replace(plan, score=None)


@pytest.mark.parametrize("plan", [PLAN, OF_FUNCTION])
def test_other_plans_may_be_made_of_the_same_runs(plan: odp.BudgetPlan) -> None:
    more = dataclasses.replace(plan, paid_last=dataclasses.replace(plan.paid_last, count=3))
    assert odp.BudgetPlan.from_json(json.loads(json.dumps(more.to_json()))) == more
