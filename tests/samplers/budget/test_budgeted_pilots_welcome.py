"""What a budget allows: whatever knows the runs' private outputs and no more."""

from __future__ import annotations

from typing import Any

import optuna
import pytest
from optuna.pruners import ThresholdPruner
from optuna.trial import TrialState
from refusals import refuses
from samplers.budget.budget_support import X, budget, finished, rungs_of, sampler
from support import RUN, asking, logged, objective, study_of

import optuna_dp as odp
from optuna_dp.errors import InvalidArgumentError, PlanError, ReleaseRefusedError
from optuna_dp.releasing.callbacks import OPTUNA_LOG


def smallest_x(pilots: Any) -> Any:
    return min((params for params, _ in pilots), key=lambda params: params["x"])


# Enqueued trials.


def test_enqueued_trials_are_pilots() -> None:
    study = study_of(sampler(budget(4, 2)))
    study.enqueue_trial({"x": 0.3})
    study.enqueue_trial({"x": -0.5, "unknown": 1})
    study.optimize(objective)
    assert [t.params["x"] for t in study.trials[:2]] == [0.3, -0.5]
    assert study.trials[6].params == {"x": 0.3}
    release = odp.release(study)
    assert release.params == {"x": 0.3}
    assert "last run" not in release.attributes


def x_of(trial: optuna.Trial) -> float:
    return -((trial.suggest_float("x", -1.0, 1.0) - 0.3) ** 2)


def test_a_partly_enqueued_pilot_gets_the_rest_proposed() -> None:
    def two(trial: optuna.Trial) -> float:
        y = trial.suggest_float("y", 0.0, 1.0)
        return x_of(trial) - y

    study = study_of(sampler(budget(3)))
    study.enqueue_trial({"x": 0.3})
    study.optimize(asking(two))
    assert study.trials[0].params["x"] == 0.3
    assert set(study.trials[0].params) == {"x", "y"}
    odp.release(study)


def test_a_trial_enqueued_on_a_higher_rung_runs_there() -> None:
    study = study_of(sampler(budget(3, 2)))
    study.optimize(objective, n_trials=4)
    study.enqueue_trial({"x": 0.9})
    study.optimize(objective)
    assert study.trials[4].params == {"x": 0.9}
    assert odp.release(study).pilots[4]["rung"] == 1


def test_more_enqueued_trials_than_pilots_do_not_become_the_last_run() -> None:
    study = study_of(sampler(budget(3)))
    for x in (0.9, 0.3, -0.2, 0.8, 0.7):
        study.enqueue_trial({"x": x})
    with logged() as lines:
        study.optimize(objective)
    assert rungs_of(study) == ["pilot"] * 3 + ["", "", "last"]
    assert study.trials[5].params == {"x": 0.3}
    assert sum("dropped" in line for line in lines) == 2
    assert odp.release(study).params == {"x": 0.3}


def test_a_trial_enqueued_while_the_last_pilot_runs_is_dropped() -> None:
    study = study_of(sampler(budget(2)))

    def enqueues(trial: optuna.Trial) -> float:
        if trial.number == 1:
            study.enqueue_trial({"x": 0.9})
        return objective(trial)

    study.optimize(enqueues)
    assert rungs_of(study) == ["pilot", "pilot", "", "last"]
    assert study.trials[3].params["x"] != 0.9


def test_a_person_who_saw_the_pilots_chooses_the_last_run() -> None:
    study = study_of(sampler(budget(4)))
    study.optimize(objective, n_trials=4)
    study.enqueue_trial({"x": 0.125})
    with logged() as lines:
        study.optimize(objective)
    assert any("enqueued" in line for line in lines)
    release = odp.release(study)
    assert release.params == {"x": 0.125}
    assert "by hand" in release.attributes["last run"]
    assert "a person" in release.statement()


def test_what_is_enqueued_after_the_last_run_is_not_run() -> None:
    study = finished()
    study.enqueue_trial({"x": 0.1})
    ran: list[int] = []
    with pytest.raises(PlanError):
        study.optimize(lambda trial: ran.append(trial.number) or objective(trial))
    assert ran == []
    odp.release(study)


# Trials that are no runs of the study: nothing is charged for them, and nobody sees them.


def add_by_hand(study: optuna.Study) -> None:
    study.add_trial(optuna.trial.create_trial(params={"x": 0.5}, distributions=dict(X), value=9.0))


def run_by_another_sampler(study: optuna.Study) -> None:
    ours, study.sampler = study.sampler, optuna.samplers.RandomSampler()
    study.enqueue_trial({"x": 0.5})
    study.optimize(lambda trial: trial.suggest_float("x", -1.0, 1.0) + 9.0, n_trials=1)
    study.sampler = ours


@pytest.mark.parametrize("intrude", [add_by_hand, run_by_another_sampler])
@pytest.mark.parametrize("at", [1, 4, 5, 6, 7])
def test_trials_that_are_no_runs_of_the_study_are_no_part_of_its_release(
    intrude: Any, at: int
) -> None:
    """Among the pilots of either rung, before the last run, and after it."""
    study = study_of(sampler(budget(4, 2)))
    study.optimize(objective, n_trials=at)
    intrude(study)
    study.optimize(objective)
    runs = [t for t, kind in zip(study.trials, rungs_of(study), strict=True) if kind]
    assert at not in [t.number for t in runs]
    assert rungs_of(study).count("last") == 1
    # The best score there is, and neither repeated on the next rung nor chosen for the last run.
    assert 0.5 not in [t.params["x"] for t in runs]
    release = odp.release(study)
    assert release.params == runs[-1].params
    assert [p["params"] for p in release.pilots] == [t.params for t in runs[:-1]]
    assert "9.0" not in str(release.to_json()) + release.statement()
    assert "the guarantee does not cover them" in release.statement()
    add_by_hand(study)
    assert odp.release(study).to_json() == release.to_json()


def test_lost_runs_of_a_budget_are_refused_as_an_answer() -> None:
    study = study_of(sampler(budget(3)))
    study.optimize(objective)
    with refuses("failures"):
        odp.release(study, failures="lost")
    odp.release(study)


@pytest.mark.parametrize("choose", ["evidence", smallest_x])
def test_no_way_to_choose_sees_trials_that_are_no_runs(choose: Any) -> None:
    study = study_of(sampler(budget(4), choose=choose))
    study.optimize(objective, n_trials=2)
    study.add_trial(
        optuna.trial.create_trial(params={"x": -1.0}, distributions=dict(X), value=9.0)
    )
    study.optimize(objective)
    assert study.trials[4].params in [study.trials[i].params for i in (0, 1, 3)]


def test_fixed_parameters_of_partial_fixed_sampling() -> None:
    def two(trial: optuna.Trial) -> float:
        return x_of(trial) - trial.suggest_float("y", 0.0, 1.0)

    with pytest.warns(optuna.exceptions.ExperimentalWarning):
        fixed = optuna.samplers.PartialFixedSampler({"y": 0.5}, optuna.samplers.TPESampler())
    study = study_of(sampler(budget(3, 1), proposer=fixed))
    study.optimize(asking(two))
    assert {t.params["y"] for t in study.trials if t.params} == {0.5}
    odp.release(study)


# Pruners.


def steps(trial: optuna.Trial) -> float:
    """Reports its score at ten steps, growing to it."""
    value = objective(trial)
    for step in range(10):
        trial.report(value * (10 - step) / 10, step)
        if trial.should_prune():
            raise optuna.TrialPruned
    return value


@pytest.mark.parametrize("name", ["MedianPruner", "SuccessiveHalvingPruner", "HyperbandPruner"])
def test_a_pruner_that_compares_trials_prunes_none_and_says_so(name: str) -> None:
    study = study_of(sampler(budget(8, 2)), pruner=getattr(optuna.pruners, name)())
    for x in (0.3, 0.5, 0.7, 0.9):  # The worse, the later.
        study.enqueue_trial({"x": x})
    with logged() as lines:
        study.optimize(steps)
    assert all(trial.state == TrialState.COMPLETE for trial in study.trials[:11])
    assert sum(name in line for line in lines) == 1


def test_a_threshold_may_end_any_run() -> None:
    def sinks(trial: optuna.Trial) -> float:
        trial.suggest_float("x", -1.0, 1.0)
        if not odp.start_run(trial).is_pilot:
            trial.report(-9.0, 0)
            assert trial.should_prune()
            raise optuna.TrialPruned
        return steps(trial)

    study = study_of(sampler(budget(2)), pruner=ThresholdPruner(lower=-5.0))
    study.optimize(asking(sinks))
    assert study.trials[2].state == TrialState.PRUNED
    release = odp.release(study)
    assert (release.params, release.value) == (study.trials[2].params, None)


# Several objectives.


def two_scores(trial: optuna.Trial) -> tuple[float, float]:
    x = trial.suggest_float("x", -1.0, 1.0)
    return -((x - 0.3) ** 2), abs(x)


def smallest(pilots: Any) -> Any:
    return min(pilots, key=lambda pilot: pilot[1][1])[0]


@pytest.mark.slow
def test_several_objectives_with_a_function() -> None:
    study = optuna.create_study(
        directions=["maximize", "minimize"], sampler=sampler(budget(6, 3), choose=smallest)
    )
    study.optimize(asking(two_scores))
    trials = study.trials
    # Who climbs is bettered by nobody, as far as there are such.
    front = [
        t.params["x"]
        for t in trials[:6]
        if not any(o.values[0] > t.values[0] and o.values[1] < t.values[1] for o in trials[:6])
    ]
    climbed = {t.params["x"] for t in trials[6:9]}
    assert climbed <= set(front) or set(front) <= climbed
    assert trials[9].params["x"] == min(climbed, key=abs)
    why = "Both values are outputs of the Gaussian mechanism of the plan."
    release = odp.release(study, vouched=why)
    assert release.value is None
    assert release.attributes["values"] == list(trials[9].values)
    assert release.pilots[0]["values"] == list(trials[0].values)
    assert "value" not in release.pilots[0]
    shown = odp.publish(release, "sqlite://", "shown")
    assert [t.values for t in shown.trials] == [t.values for t in trials]
    assert odp.release(study, vouched=why).to_json() == release.to_json()


@pytest.mark.slow
@pytest.mark.parametrize("score", ["training", "disjoint", None])
def test_a_plan_for_dp_sgd_charges_for_one_score(score: str | None) -> None:
    plan = odp.plan_budget(
        epsilon=8.0, records=1000, batch_size=100, epochs=1, pilots=2, score=score
    )
    study = optuna.create_study(
        directions=["maximize", "minimize"], sampler=sampler(plan, choose=smallest)
    )
    # The callback lets it pass: what depends on no data may be vouched for at release.
    study.optimize(asking(two_scores), callbacks=[odp.PrivacyCallback()])
    if score is None:  # Scores on public records are free.
        odp.release(study)
        return
    with pytest.raises(ReleaseRefusedError, match="2 values"):
        odp.release(study)
    why = "The second value is the number of weights."
    assert why in odp.release(study, vouched=why).statement()


@pytest.mark.parametrize("choose", ["best", "evidence"])
def test_several_objectives_need_a_function(choose: Any) -> None:
    study = optuna.create_study(
        directions=["maximize", "minimize"], sampler=sampler(choose=choose)
    )
    with refuses("choose"):
        study.optimize(two_scores)
    # Otherwise other workers would wait for it for ever.
    assert [trial.state for trial in study.trials] == [optuna.trial.TrialState.FAIL]


# What is released and shown.


def test_publishing_shows_the_pilots_and_the_last_run() -> None:
    study = finished(budget(4, 2))
    for trial in study.trials[:6]:
        assert trial.duration is not None
    shown = odp.publish(odp.release(study), "sqlite://", "shown")
    assert [t.params for t in shown.trials] == [t.params for t in study.trials]
    assert [t.value for t in shown.trials] == [t.value for t in study.trials]
    assert [t.user_attrs for t in shown.trials] == [{"pilot of rung": 1}] * 4 + [
        {"pilot of rung": 2}
    ] * 2 + [{}]
    assert all(not t.system_attrs and not t.intermediate_values for t in shown.trials)


def test_a_last_run_without_a_score_may_return_none() -> None:
    def scores_pilots(trial: optuna.Trial) -> float | None:
        x = trial.suggest_float("x", 0.0, 1.0)
        return x if trial.number < 3 else None

    study = finished(budget(3, score_final=False), scores_pilots)
    assert [trial.state for trial in study.trials] == [TrialState.COMPLETE] * 4
    assert study.trials[3].value == 0.0
    assert odp.release(study).value is None


def test_pilots_with_parameters_of_their_own_are_published_too() -> None:
    def branches(trial: optuna.Trial) -> float:
        if trial.number == 0:
            return trial.suggest_float("z", 0.0, 1.0) - 5.0
        if trial.number == 1:
            raise RuntimeError
        return trial.suggest_float("x", -1.0, 1.0 if trial.number != 2 else 2.0)

    study = finished(budget(5), branches)
    shown = odp.publish(odp.release(study), "sqlite://", "shown")
    assert shown.trials[0].params | shown.trials[0].user_attrs == {
        **study.trials[0].params,
        "pilot of rung": 1,
    }
    assert shown.trials[1].state == TrialState.FAIL


def test_a_last_run_whose_score_is_not_paid_for() -> None:
    study = finished(budget(3, score_final=False))
    release = odp.release(study)
    assert study.trials[3].value is not None
    assert release.value is None
    assert "last run" not in release.attributes
    assert "the last run has no score" in release.statement()
    public = finished(budget(3, score=None, score_final=False))
    assert odp.release(public).value == public.trials[3].value


def test_only_attributes_named_as_output_are_released() -> None:
    def notes(trial: optuna.Trial) -> float:
        trial.set_user_attr("threshold", 0.5)
        trial.set_user_attr("model", "trial-0.pt")
        return objective(trial)

    study = study_of(sampler(budget(2), output_attributes=["threshold"]))
    study.optimize(notes, callbacks=[odp.PrivacyCallback()])
    release = odp.release(study)
    assert release.attributes["threshold"] == 0.5
    assert "trial-0.pt" not in str(release.to_json())


def test_the_callback_needs_no_run_and_takes_no_other() -> None:
    plan = budget(2, relation="replace_one")
    study = study_of(sampler(plan))
    with logged(OPTUNA_LOG) as lines:
        study.optimize(objective, callbacks=[odp.PrivacyCallback()])
    assert any("last run" in line for line in lines)
    release = odp.release(study)
    assert release.guarantee.neighboring_relation == "replace_one"
    with pytest.raises(PlanError):
        study_of(sampler()).optimize(objective, callbacks=[odp.PrivacyCallback(RUN)])


def test_a_seed_makes_it_repeatable_and_is_no_reason_to_refuse() -> None:
    runs = []
    for _ in range(2):
        study = finished(budget(6, 2), seed=5)
        runs.append([t.params for t in study.trials])
        odp.release(study)
    assert runs[0] == runs[1]
    assert [t.params for t in finished(budget(6, 2)).trials] != runs[0]


# Arguments.


@pytest.mark.parametrize(
    "wrong",
    [
        {"choose": "worst"},
        {"choose": 3},
        {"pilot_batch_size": 0},
        {"seed": 0.5},
    ],
    ids=lambda wrong: "-".join(wrong),
)
def test_arguments_that_are_not_allowed(wrong: Any) -> None:
    with pytest.raises(InvalidArgumentError) as found:
        sampler(**wrong)
    assert found.value.argument in wrong


def test_the_plan_has_to_be_a_plan() -> None:
    with refuses("plan"):
        odp.BudgetSampler(16)  # type: ignore[arg-type]
    assert repr(sampler()).startswith("BudgetSampler(plan=BudgetPlan(")
