"""In a plan the event of a run and the numbers beside it come together, or the plan is refused."""

from __future__ import annotations

import copy
import dataclasses
import json
from typing import Any

import pytest

import optuna_dp as odp
from optuna_dp.errors import InvalidArgumentError, OptunaDPError

PLAN = odp.plan_budget(epsilon=3.0, records=1348, batch_size=64, epochs=2, pilots=2)
CHANGES: dict[str, Any] = {
    "noise_multiplier": 0.001,
    "steps": 10_000,
    "score_noise_multiplier": 0.5,
    "event": odp.gaussian(1000.0),
}


@pytest.mark.parametrize("name", CHANGES)
def test_no_number_of_a_plan_is_changed_without_its_event(name: str) -> None:
    last = dataclasses.replace(PLAN.paid_last, **{name: CHANGES[name]})
    with pytest.raises(InvalidArgumentError, match="must be that of the noise multiplier"):
        dataclasses.replace(PLAN, paid_last=last)
    pilots = dataclasses.replace(PLAN.paid_pilots[0], **{name: CHANGES[name]})
    with pytest.raises(InvalidArgumentError, match="must be that of the noise multiplier"):
        dataclasses.replace(PLAN, paid_pilots=(pilots,))


@pytest.mark.parametrize("part", ["final", "rungs"])
@pytest.mark.parametrize("name", ["noise_multiplier", "steps", "event"])
def test_nor_in_its_record(part: str, name: str) -> None:
    data = json.loads(json.dumps(PLAN.to_json()))
    assert odp.BudgetPlan.from_json(copy.deepcopy(data)) == PLAN
    run = data["final"] if part == "final" else data["rungs"][0]
    other = data["rungs"][0] if part == "final" else data["final"]
    changes = {"noise_multiplier": 0.001, "steps": 10_000, "event": other["event"]}
    run[name] = changes[name]
    with pytest.raises(OptunaDPError):
        odp.BudgetPlan.from_json(data)


def test_nor_whose_records_are_scored() -> None:
    """Whoever changes what scores are computed on would be charged for something else."""
    with pytest.raises(InvalidArgumentError):
        dataclasses.replace(PLAN, score="disjoint")
    data = json.loads(json.dumps({**PLAN.to_json(), "score": "disjoint"}))
    with pytest.raises(OptunaDPError):
        odp.BudgetPlan.from_json(data)


def test_nor_is_the_noise_of_its_scores_left_out() -> None:
    plan = odp.plan_budget(
        epsilon=3.0, run=lambda noise, steps: odp.gaussian(noise), steps=7, pilots=2
    )
    for with_noise in (PLAN, plan):
        with pytest.raises(InvalidArgumentError, match="without noise"):
            dataclasses.replace(with_noise, score=None)


def test_other_plans_may_be_made_of_the_same_runs() -> None:
    more = dataclasses.replace(PLAN, paid_last=dataclasses.replace(PLAN.paid_last, count=3))
    assert odp.BudgetPlan.from_json(json.loads(json.dumps(more.to_json()))) == more
