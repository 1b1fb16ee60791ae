"""The records of a study's plan and of its slots: read as they are meant, or refused."""

from __future__ import annotations

from typing import Any

import optuna
import pytest
from samplers.budget.budget_support import budget
from support import exactly, study_of

import optuna_dp as odp
from optuna_dp.errors import PlanError
from optuna_dp.study.entries import PLAN, SLOT
from optuna_dp.study.plan import StudyPlan
from optuna_dp.study.trials import SlotEntry

GRID = {"x": optuna.distributions.FloatDistribution(0, 1, step=0.25)}
SAMPLERS = {
    "private_selection": odp.RandTuneSampler(trials=exactly(5)),
    "budget": odp.BudgetSampler(budget(4)),
    "noisy_max": odp.NoisyMaxSampler(GRID, n_partitions=900, epsilon=1.0),
}


def record_of(sampler: optuna.samplers.BaseSampler) -> dict[str, Any]:
    study = study_of(sampler)
    study.ask()
    return dict(study.get_trials()[0].system_attrs[PLAN.key])


@pytest.mark.parametrize("kind", SAMPLERS)
def test_a_plan_is_read_as_it_was_written(kind: str) -> None:
    record = record_of(SAMPLERS[kind])
    assert StudyPlan.from_json(record).to_json() == record


@pytest.mark.promise("a disk is full")
@pytest.mark.parametrize("version", [0, 2, "1", None])
def test_a_plan_of_an_unknown_version_is_refused(version: Any) -> None:
    record = record_of(SAMPLERS["private_selection"])
    with pytest.raises(PlanError, match="version"):
        StudyPlan.from_json({**record, "version": version})


@pytest.mark.parametrize("name", ["version", "design", "slots", "nonce"])
def test_a_plan_without_one_of_its_fields_is_refused(name: str) -> None:
    record = record_of(SAMPLERS["private_selection"])
    without = {key: value for key, value in record.items() if key != name}
    with pytest.raises(PlanError):
        StudyPlan.from_json(without)


@pytest.mark.promise("a disk is full")
@pytest.mark.parametrize("name", ["tie_break", "draws"])
@pytest.mark.parametrize("damage", ["g", "-", "0x", "+", " ", "1_", "00"])
def test_a_damaged_slot_record_is_refused_without_its_secrets(name: str, damage: str) -> None:
    study = study_of(odp.RandTuneSampler(trials=exactly(1)))
    study.ask()
    record = study.get_trials()[0].system_attrs[SLOT.key]
    assert SlotEntry.from_json(record).to_json() == record
    secret = record[name][2:]
    longer = "0" if damage == "00" else ""  # digits, but more than there are
    with pytest.raises(PlanError) as caught:
        SlotEntry.from_json({**record, name: damage + longer + secret})
    assert secret not in str(caught.value)
