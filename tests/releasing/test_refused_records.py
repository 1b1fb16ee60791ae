"""What the release refuses: plans, records and costs that disagree or are damaged."""

from __future__ import annotations

import json
from typing import Any

import optuna
import pytest
from optuna.trial import TrialState, create_trial
from support import (
    KNOWN_COUNT,
    RUN,
    everything,
    exactly,
    finished_study,
    objective,
    refused,
    rewrite,
    study_of,
)

import optuna_dp as odp
from optuna_dp.errors import (
    InvalidArgumentError,
    OptunaDPError,
    PlanError,
    ReleaseRefusedError,
    UnsupportedEventError,
)
from optuna_dp.protocol.plan import PLAN_KEY
from optuna_dp.protocol.records import DRAW_KEY, SLOT_KEY

X = {"x": optuna.distributions.FloatDistribution(-1.0, 1.0)}


def test_workers_with_different_plans(monkeypatch: pytest.MonkeyPatch) -> None:
    study = study_of(odp.RandTuneSampler(trials=exactly(KNOWN_COUNT)))
    study.optimize(objective, n_trials=2)
    study.sampler = odp.RandTuneSampler(trials=odp.Geometric(mean=50))
    with monkeypatch.context() as early:
        # As where the worker began before the first one had written the plan.
        early.setattr(odp.RandTuneSampler, "check_before_asking", lambda *_: None)
        with pytest.raises(PlanError, match="differs from the study's plan"):
            study.optimize(objective, n_trials=1, catch=(OptunaDPError,))
    study.sampler = odp.RandTuneSampler(trials=exactly(KNOWN_COUNT))
    study.optimize(objective)
    assert refused(study, "other sampler arguments, than the study's plan").trial_number == 2


def test_runs_copied_from_another_study() -> None:
    study, other = finished_study(), finished_study()
    rewrite(study, 2, SLOT_KEY, other.trials[2].system_attrs[SLOT_KEY])
    assert refused(study, "belongs to another trial or another study").trial_number == 2


@pytest.mark.parametrize("state", [TrialState.PRUNED, TrialState.COMPLETE])
def test_a_pruner_that_compares_trials_and_has_pruned(state: TrialState) -> None:
    def prunes(trial: optuna.Trial) -> float:
        value = objective(trial)
        trial.report(value, step=0)
        trial.study.pruner = optuna.pruners.MedianPruner(n_startup_trials=0)
        if trial.number == 2 and state == TrialState.PRUNED:
            raise optuna.TrialPruned
        return value

    study = finished_study(function=prunes)
    if state == TrialState.PRUNED:
        assert refused(study, "pruned").trial_number == 2
    else:
        assert odp.release(study, RUN, vouched="a test").params is not None


def test_densities_changed_by_asking_for_other_ranges() -> None:
    def widens(trial: optuna.Trial) -> float:
        return trial.suggest_float("x", -1.0, 2.0)

    study = finished_study(odp.DPHyPOSampler(X, trials=exactly(4), candidates=8), widens)
    assert refused(study, "but the sampler drew it from").trial_number == 0


def test_priors_that_change_between_runs() -> None:
    def widens(trial: optuna.Trial) -> float:
        return trial.suggest_float("x", 0.0, 1.0 + trial.number)

    assert refused(finished_study(function=widens), "one range").trial_number == 1


def test_a_direction_that_was_turned_round() -> None:
    study = finished_study()
    data = json.loads(json.dumps(study.trials[0].system_attrs[PLAN_KEY]))
    data["design"]["direction"] = "minimize"
    rewrite(study, 0, PLAN_KEY, data)
    refused(study, "direction")


@pytest.mark.parametrize(
    "damage",
    [
        None,
        {},
        "text",
        {"slots": -1},
        {"slots": "4"},
        {"slots": True},
        {"nonce": 3},
        {"version": 99},
        {"design": {}},
        {"design": None},
    ],
)
def test_a_corrupted_plan_record(damage: Any) -> None:
    study = finished_study()
    data = dict(study.trials[0].system_attrs[PLAN_KEY])
    rewrite(
        study, 0, PLAN_KEY, {**data, **damage} if isinstance(damage, dict) and damage else damage
    )
    refused(study, "plan|design|version")


@pytest.mark.parametrize("damage", [{}, "text", {"tie_break": "zz"}, {"nonce": 1}])
def test_a_corrupted_slot_record(damage: Any) -> None:
    study = finished_study()
    data = dict(study.trials[1].system_attrs[SLOT_KEY])
    rewrite(
        study, 1, SLOT_KEY, {**data, **damage} if isinstance(damage, dict) and damage else damage
    )
    assert refused(study, "corrupted").trial_number == 1


@pytest.mark.parametrize("damage", [{}, {"space": {"x": "?"}, "internal": {}}, {"space": 3}, 7])
def test_a_corrupted_draw_record(damage: Any) -> None:
    study = finished_study(odp.DPHyPOSampler(X, trials=exactly(3), candidates=8))
    rewrite(study, 1, DRAW_KEY, damage)
    assert refused(study, "corrupted|drawn from").trial_number == 1


def test_several_objectives() -> None:
    study = optuna.create_study(directions=["minimize", "minimize"])
    refused(study, "several objectives")


def test_an_empty_study() -> None:
    refused(optuna.create_study(), "no runs yet")


def test_a_run_event_missing() -> None:
    refused(finished_study(), "The cost of one run is not known", run=None)


def test_a_run_event_that_differs_from_the_recorded_one() -> None:
    study = study_of(odp.RandTuneSampler(trials=exactly(3)))
    study.optimize(objective, callbacks=[odp.PrivacyCallback(RUN)])
    words = r"differ from the study's record: run is .* 9 times .* here and .* 4 times"
    with pytest.raises(ReleaseRefusedError, match=words):
        odp.release(study, odp.gaussian(9.0))
    words = "neighboring_relation is 'replace_one' here and 'add_or_remove_one' there"
    with pytest.raises(ReleaseRefusedError, match=words):
        odp.release(study, neighboring_relation="replace_one")


@pytest.mark.slow
def test_another_delta_is_for_display_only() -> None:
    study = study_of(odp.RandTuneSampler(trials=exactly(3)))
    study.optimize(objective, n_trials=1, callbacks=[odp.PrivacyCallback(RUN)])
    study.optimize(objective, callbacks=[odp.PrivacyCallback(RUN, delta=1e-7)])
    for delta in (1e-6, 1e-5, 1e-6):
        found = odp.release(study, delta=delta, vouched="a test")
        assert found.delta == delta
        assert f"delta = {delta:g}" in found.statement()
    with pytest.raises(InvalidArgumentError, match=r"delta=1\.5"):
        odp.release(study, delta=1.5, vouched="a test")


@pytest.mark.slow
def test_workers_that_recorded_different_events() -> None:
    study = study_of(odp.RandTuneSampler(trials=exactly(3)))
    study.optimize(objective, n_trials=1, callbacks=[odp.PrivacyCallback(odp.gaussian(5.0))])
    with pytest.raises(PlanError, match="another cost of a run"):
        study.optimize(objective, callbacks=[odp.PrivacyCallback(odp.gaussian(9.0))])
    study.optimize(objective)
    error = refused(study, "different costs", run=None)
    assert "noise of 5" in str(error)
    assert "noise of 9" in str(error)


def test_something_that_is_no_event() -> None:
    study = finished_study()
    with pytest.raises(InvalidArgumentError, match="run="):
        odp.release(study, 1.0)


def test_an_event_no_accountant_supports() -> None:
    from dp_accounting import dp_event

    study = finished_study()
    before = everything(study)
    with pytest.raises(UnsupportedEventError, match="UnsupportedDpEvent"):
        odp.release(study, dp_event.UnsupportedDpEvent())
    assert everything(study) == before


def test_continuing_a_study_after_its_release() -> None:
    study = finished_study()
    first = odp.release(study, RUN, vouched="a test")
    study.optimize(objective)  # Adds a trial that ends before it has parameters.
    assert odp.release(study, RUN, vouched="a test") == first
    trial = study.ask()
    study.tell(trial, 1e9)
    assert odp.release(study, RUN, vouched="a test").value == first.value
    study.add_trial(create_trial(params={"x": 0.3}, distributions=X, value=9.0))
    assert odp.release(study, RUN, vouched="a test").value == first.value


def test_a_second_release_with_another_result() -> None:
    study = finished_study()
    odp.release(study, RUN, vouched="a test")
    winner = max(range(KNOWN_COUNT), key=lambda i: study.trials[i].value or -9.0)
    study._storage._get_trial(study.trials[winner]._trial_id).values = [-5.0]  # type: ignore[attr-defined]
    refused(study, "released before")


def test_a_records_cost_is_no_clients_cost() -> None:
    """ "null_client" is for events that protect a client with all its records."""
    study = finished_study()
    with pytest.raises(InvalidArgumentError, match="about records, and not about clients"):
        odp.release(study, RUN, neighboring_relation="null_client")
    with pytest.raises(InvalidArgumentError, match="about records, and not about clients"):
        odp.PrivacyCallback(RUN, neighboring_relation="null_client")
    candidates = study_of(odp.NoisyMaxSampler(candidates=2, n_partitions=900, epsilon=1.0))
    candidates.optimize(lambda trial: odp.report_utilities(trial, [0.5] * 900))
    with pytest.raises(InvalidArgumentError, match="about records, and not about clients"):
        odp.release(candidates, neighboring_relation="null_client")
    with pytest.raises(InvalidArgumentError, match="about records, and not about clients"):
        odp.plan_budget(
            epsilon=3.0,
            run=lambda noise, steps: odp.gaussian(noise),
            steps=1,
            pilots=2,
            neighboring_relation="null_client",
        )
    of_clients = odp.per_client(RUN)
    assert odp.release(
        study, of_clients, neighboring_relation="null_client", vouched="a test"
    ).guarantee.unit == ("client")
