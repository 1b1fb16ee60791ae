"""In a plan the event of a run and the numbers beside it come together, or the plan is refused."""

from __future__ import annotations

import copy
import dataclasses
import json
from typing import Any

import pytest

import optuna_dp as odp
from optuna_dp.errors import InvalidArgumentError, OptunaDPError

PLANS = {
    "run": odp.plan_budget(
        epsilon=3.0, run=lambda noise, steps: odp.gaussian(noise), steps=7, pilots=2
    ),
    "DP-SGD": odp.plan_budget(epsilon=3.0, records=1348, batch_size=64, epochs=2, pilots=2),
}
CHANGES: dict[str, Any] = {
    "noise_multiplier": 0.001,
    "steps": 10_000,
    "score_noise_multiplier": 0.5,
    "event": odp.gaussian(1000.0),
}


@pytest.mark.parametrize("plan", PLANS.values(), ids=PLANS)
@pytest.mark.parametrize("name", CHANGES)
def test_no_number_of_a_plan_is_changed_without_its_event(plan: odp.BudgetPlan, name: str) -> None:
    last = dataclasses.replace(plan.paid_last, **{name: CHANGES[name]})
    with pytest.raises(InvalidArgumentError, match="must be that of the noise multiplier"):
        dataclasses.replace(plan, paid_last=last)
    pilots = dataclasses.replace(plan.paid_pilots[0], **{name: CHANGES[name]})
    with pytest.raises(InvalidArgumentError, match="must be that of the noise multiplier"):
        dataclasses.replace(plan, paid_pilots=(pilots,))


@pytest.mark.parametrize("plan", PLANS.values(), ids=PLANS)
@pytest.mark.parametrize("part", ["final", "rungs"])
@pytest.mark.parametrize("name", ["noise_multiplier", "steps", "event", "seal"])
def test_nor_in_its_record(plan: odp.BudgetPlan, part: str, name: str) -> None:
    data = json.loads(json.dumps(plan.to_json()))
    assert odp.BudgetPlan.from_json(copy.deepcopy(data)) == plan
    run, other = (data["final"] if part == "final" else data["rungs"][0]), PLANS["run"].to_json()
    changes = {
        "noise_multiplier": 0.001,
        "steps": 10_000,
        "seal": "0",
        "event": other["rungs"][0]["event"] if part == "final" else other["final"]["event"],
    }
    run[name] = changes[name]
    with pytest.raises(OptunaDPError):
        odp.BudgetPlan.from_json(data)
    if name == "seal" and plan is PLANS["run"]:
        del run["seal"]
        with pytest.raises(OptunaDPError):
            odp.BudgetPlan.from_json(data)


@pytest.mark.parametrize(
    "changes", [{"score": None}, {"score": "disjoint"}, {"neighboring_relation": "replace_one"}]
)
def test_nor_whose_records_are_scored_nor_what_is_protected(changes: dict[str, Any]) -> None:
    """Whoever changes what scores are computed on would be charged for something else."""
    with pytest.raises(InvalidArgumentError):
        dataclasses.replace(PLANS["run"], **changes)
    data = json.loads(json.dumps({**PLANS["run"].to_json(), **changes}))
    with pytest.raises(OptunaDPError):
        odp.BudgetPlan.from_json(data)


def test_other_plans_may_be_made_of_the_same_runs() -> None:
    plan = PLANS["run"]
    more = dataclasses.replace(plan, paid_last=dataclasses.replace(plan.paid_last, count=3))
    assert odp.BudgetPlan.from_json(json.loads(json.dumps(more.to_json()))) == more
