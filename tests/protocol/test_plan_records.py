"""The plan's record: what version 0.1.0 wrote is read as it was meant."""

from __future__ import annotations

import optuna
import pytest
from support import RUN, exactly, study_of

import optuna_dp as odp
from optuna_dp.errors import PlanError
from optuna_dp.protocol.plan import PLAN_KEY, StudyPlan
from optuna_dp.protocol.records import SLOT_KEY, SlotRecord
from optuna_dp.protocol.succession import succeed

GRID = {"x": optuna.distributions.FloatDistribution(0, 1, step=0.5)}
SAMPLERS = {
    "private_selection": (odp.RandTuneSampler(trials=exactly(4)), 0),
    "pilots": (odp.PilotSampler(pilots=2, pilot_run=RUN, trials=exactly(3)), 2),
    "noisy_max": (odp.NoisyMaxSampler(GRID, n_partitions=900, epsilon=1.0), None),
}


def record_of_version_1(sampler: optuna.samplers.BaseSampler) -> dict[str, object]:
    study = study_of(sampler)
    study.ask()
    record = dict(study.get_trials()[0].system_attrs[PLAN_KEY])
    del record["selection_from"]
    return {**record, "version": 1}


@pytest.mark.parametrize("kind", SAMPLERS)
def test_a_plan_of_version_1_says_where_its_selection_begins(kind) -> None:
    sampler, first = SAMPLERS[kind]
    old = record_of_version_1(sampler)
    plan = StudyPlan.from_json(old)
    assert plan.selection_from == first
    assert plan.to_json() == {**old, "version": 2, "selection_from": first}
    assert plan.design.fingerprint == sampler._design("maximize").fingerprint


def test_a_damaged_plan_of_version_1_is_refused() -> None:
    old = record_of_version_1(SAMPLERS["pilots"][0])
    settings = old["design"]["settings"]  # type: ignore[index]
    damaged = {**old["design"], "settings": {**settings, "pilots": "two"}}  # type: ignore[dict-item]
    with pytest.raises(PlanError, match="selection_from"):
        StudyPlan.from_json({**old, "design": damaged})
    with pytest.raises(PlanError, match="corrupted"):
        StudyPlan.from_json({**old, "version": 2})


def test_a_study_begun_by_version_1_goes_on() -> None:
    study = study_of(odp.RandTuneSampler(trials=exactly(3)))
    study.optimize(lambda trial: trial.suggest_float("x", 0, 1), n_trials=1)
    attrs = study._storage._studies[study._study_id].trials[0].system_attrs  # type: ignore[attr-defined]
    plan, slot = dict(attrs[PLAN_KEY]), dict(attrs[SLOT_KEY])
    del plan["selection_from"], slot["plan"]
    attrs[PLAN_KEY], attrs[SLOT_KEY] = {**plan, "version": 1}, slot
    study.optimize(lambda trial: trial.suggest_float("x", 0, 1))
    assert odp.release(study, RUN).value == study.best_value


def test_a_lost_leader_is_made_up_for_only_where_runs_are_selected() -> None:
    for sampler, first in SAMPLERS.values():
        study = study_of(sampler)
        study._storage.create_new_trial(study._study_id)
        odp.recover(study, fail=[0])
        plan = StudyPlan.drawn(sampler._design("maximize"), 5, first)
        # Trials 0 and 1 are lost; slots from the first selection run on are made up for.
        assert succeed(study._storage, study._study_id, plan).slots == 5 + (first == 0) * 2


@pytest.mark.parametrize("name", ["tie_break", "draws"])
@pytest.mark.parametrize("damage", ["g", "-", "0x", "+", " ", "1_", "00"])
def test_a_damaged_slot_record_is_refused_without_its_secrets(name: str, damage: str) -> None:
    study = study_of(odp.RandTuneSampler(trials=exactly(1)))
    study.ask()
    record = study.get_trials()[0].system_attrs[SLOT_KEY]
    secret = record[name][2:]
    longer = "0" if damage == "00" else ""  # digits, but more than there are
    with pytest.raises(PlanError, match="slot record of a run is corrupted") as caught:
        SlotRecord.from_json({**record, name: damage + longer + secret})
    assert secret not in str(caught.value)
