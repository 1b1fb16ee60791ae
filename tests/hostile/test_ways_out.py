"""Every refusal of a budget and of RandTune names a way out, and the way leads to a release.

Each function below meets one refusal, takes the words of it literally, and returns the release.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import optuna
import pytest
from budget.budget_support import budget
from optuna.trial import Trial, TrialState, create_trial
from support import RUN, exactly, objective, rewrite, study_of

import optuna_dp as odp
from optuna_dp.errors import OptunaDPError, PlanError, ReleaseRefusedError, WaitError
from optuna_dp.protocol.claims import CLAIM_KEY, WON
from optuna_dp.protocol.records import PUBLISHED_KEY

X = {"x": optuna.distributions.FloatDistribution(-1.0, 1.0)}
PLAN, SPARE = budget(2), budget(2, spare_runs=1)
WITHOUT_ONE = optuna.samplers.RandomSampler


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def of_budget(plan: odp.BudgetPlan = PLAN, **options: Any) -> optuna.Study:
    return study_of(odp.BudgetSampler(plan, **options))


def of_tune(count: int = 4, **options: Any) -> optuna.Study:
    return study_of(odp.RandTuneSampler(trials=exactly(count)), **options)


@contextmanager
def met(words: str, kind: type[OptunaDPError] = ReleaseRefusedError) -> Iterator[None]:
    """A refusal with these words of a way out."""
    with pytest.raises(kind) as caught:
        yield
    assert words in str(caught.value)


def again(study: optuna.Study, sampler: Any, storage: Any = None) -> optuna.Study:
    return optuna.load_study(
        study_name=study.study_name, storage=storage or study._storage, sampler=sampler
    )


def new_study_of_tune() -> odp.Release:
    study = of_tune()
    study.optimize(objective)
    return odp.release(study, RUN, vouched="a test")


# Studies with a budget.


def nothing_has_run() -> odp.Release:
    study = of_budget()
    with met("Run study.optimize first"):
        odp.release(study)
    study.optimize(objective)
    return odp.release(study)


def an_enqueued_pilot_and_nothing_has_run() -> odp.Release:
    study = of_budget()
    study.enqueue_trial({"x": 0.25})
    with met("Run study.optimize first"):
        odp.release(study)
    study.optimize(objective)
    assert odp.release(study).pilots[0]["params"] == {"x": 0.25}
    return odp.release(study)


def pilots_are_to_come() -> odp.Release:
    study = of_budget()
    study.optimize(objective, n_trials=1)
    with met("ontinue with study.optimize"):
        odp.release(study)
    study.optimize(objective)
    return odp.release(study)


def a_workers_death(plan: odp.BudgetPlan, number: int) -> odp.Release:
    study = of_budget(plan)
    if number:
        study.optimize(objective, n_trials=number)
    objective(study.ask())  # And its worker dies.
    with met("optuna_dp.recover(study, fail=["):
        odp.release(study)
    odp.recover(study, fail=[number])
    study.optimize(objective)
    return odp.release(study)


def a_dead_pilot() -> odp.Release:
    return a_workers_death(PLAN, 1)


def a_dead_last_run() -> odp.Release:
    release = a_workers_death(PLAN, 2)
    assert release.params is not None
    assert "it failed" in release.attributes["last run"]
    return release


def a_dead_last_run_with_one_to_spare() -> odp.Release:
    release = a_workers_death(SPARE, 2)
    assert release.value is not None
    return release


def no_pilot_with_a_score() -> odp.Release:
    study = of_budget()
    with met("study.enqueue_trial({...}), and continue with study.optimize", PlanError):
        study.optimize(lambda trial: math.nan * objective(trial))
    study.enqueue_trial({"x": 0.25})
    study.optimize(objective)
    assert odp.release(study).params == {"x": 0.25}
    return odp.release(study)


def enqueued_after_the_end() -> odp.Release:
    study = of_budget()
    study.optimize(objective)
    study.enqueue_trial({"x": 0.25})
    with met("with_training", PlanError):
        study.optimize(objective)
    return odp.release(study).with_training(PLAN.final.event)


def a_trial_added_by_hand() -> odp.Release:
    study = of_budget()
    study.optimize(objective, n_trials=1)
    study.add_trial(create_trial(params={"x": 0.5}, distributions=X, value=9.0))
    other = again(study, WITHOUT_ONE())
    with met("Give the study's sampler to every", PlanError):
        other.optimize(lambda trial: odp.fidelity(trial).noise_multiplier, n_trials=1)
    callback = odp.PrivacyCallback()
    with met("Give the study's sampler to each worker"):
        callback(study, study.trials[1])
    study.optimize(objective, callbacks=[callback])
    assert "not covered" in odp.release(study).attributes
    return odp.release(study)


def a_worker_with_another_plan() -> odp.Release:
    study = of_budget()
    study.optimize(objective, n_trials=1)
    with met("the same sampler with the same arguments", PlanError):
        again(study, odp.BudgetSampler(SPARE)).optimize(objective)
    again(study, odp.BudgetSampler(PLAN)).optimize(objective)
    return odp.release(study)


def a_callback_with_a_cost_of_its_own() -> odp.Release:
    study = of_budget()
    with met("PrivacyCallback() without a run", PlanError):
        study.optimize(objective, callbacks=[odp.PrivacyCallback(RUN)])
    study.optimize(objective, callbacks=[odp.PrivacyCallback()])
    return odp.release(study)


def a_cost_given_to_release() -> odp.Release:
    study = of_budget()
    study.optimize(objective)
    with met("Leave it out", OptunaDPError):
        odp.release(study, RUN)
    return odp.release(study)


def another_relation() -> odp.Release:
    study = of_budget()
    study.optimize(objective)
    with met("Leave out neighboring_relation"):
        odp.release(study, neighboring_relation="replace_one")
    return odp.release(study)


def another_relation_in_the_callback() -> odp.Release:
    study = of_budget()
    with met("Leave out neighboring_relation", PlanError):
        study.optimize(
            objective, callbacks=[odp.PrivacyCallback(neighboring_relation="replace_one")]
        )
    study.optimize(objective, callbacks=[odp.PrivacyCallback()])
    return odp.release(study)


def several_objectives_and_nobody_who_chooses() -> odp.Release:
    study = optuna.create_study(directions=["maximize"] * 2, sampler=odp.BudgetSampler(PLAN))
    with met("it must be a function of a list of (params, values)", OptunaDPError):
        study.optimize(lambda trial: (objective(trial), 0.0))
    chooses = odp.BudgetSampler(PLAN, choose=lambda pilots: pilots[0][0])
    study = optuna.create_study(directions=["maximize"] * 2, sampler=chooses)
    study.optimize(lambda trial: (objective(trial), 0.0))
    # Of several scores the plan charges for one.
    with met("release(study, vouched='...')"):
        odp.release(study)
    return odp.release(study, vouched="the second value is a constant")


def two_last_runs_at_once() -> odp.Release:
    study = of_budget(SPARE)
    study.optimize(objective, n_trials=2)
    last = study.ask()
    score = objective(last)
    with met("Tell its result first", WaitError):
        study.ask()
    study.tell(last, score)
    study.optimize(objective)
    return odp.release(study)


def two_pilots_at_once_that_follow_each_other() -> odp.Release:
    study = of_budget()
    first, second = study.ask(), study.ask()
    value = objective(first)
    with met("Tell its result first", WaitError):
        objective(second)
    study.tell(first, value)
    study.tell(second, objective(second))
    study.optimize(objective)
    return odp.release(study)


def a_storage_that_holds_a_release() -> odp.Release:
    public = optuna.storages.InMemoryStorage()
    odp.publish(nothing_has_run(), public, "release")
    assert PUBLISHED_KEY in public.get_all_studies()[0].system_attrs
    study = study_of(odp.BudgetSampler(PLAN), storage=public)
    with met("in another storage", PlanError):
        study.optimize(objective)
    return nothing_has_run()


def a_plan_that_nobody_wrote() -> odp.Release:
    study = of_budget()
    study.add_trial(create_trial(params={"x": 0.5}, distributions=X, value=9.0))
    with met("Start a new study", PlanError):
        study.optimize(objective)
    with met("Start a new study"):
        odp.release(study)
    return nothing_has_run()


def a_run_that_two_workers_have_won() -> odp.Release:
    """Nothing of it is released; its guarantee and the run's event once more compose."""
    study = of_budget()
    study.optimize(objective)
    for worker in ("one", "other"):
        rewrite(study, 1, f"{CLAIM_KEY}:1:{worker}", WON)
    with met("Guarantee.compose"):
        odp.release(study)
    spent = PLAN.guarantee.compose(odp.Guarantee(PLAN.pilot.event))
    assert spent.epsilon(1e-5) > PLAN.guarantee.epsilon(1e-5)
    return nothing_has_run()


# RandTune.


def nothing_has_run_of_tune() -> odp.Release:
    study = of_tune()
    study.add_trial(create_trial(state=TrialState.WAITING))
    with met("Run study.optimize first"):
        odp.release(study, RUN)
    study.optimize(objective)
    return odp.release(study, RUN, vouched="a test")


def runs_are_to_come() -> odp.Release:
    study = of_tune()
    study.optimize(objective, n_trials=2)
    objective(study.ask())  # And its worker dies.
    with met("ontinue with study.optimize"):
        odp.release(study, RUN)
    odp.recover(study, fail=[2])
    study.optimize(objective)
    return odp.release(study, RUN, vouched="a test")


def an_enqueued_trial() -> odp.Release:
    study = of_tune()
    study.optimize(objective, n_trials=2)
    study.enqueue_trial({"x": 0.5})
    with met("Start a new study without enqueued trials", PlanError):
        study.optimize(objective)
    with met("Start a new study"):
        odp.release(study, RUN)
    return new_study_of_tune()


def an_enqueued_trial_after_the_last_run() -> odp.Release:
    study = of_tune()
    study.optimize(objective)
    study.enqueue_trial({"x": 0.5})
    with met("Unless all runs had started before", PlanError):
        study.optimize(objective)
    return odp.release(study, RUN, vouched="a test")


def an_added_trial() -> odp.Release:
    study = of_tune()
    study.optimize(objective, n_trials=2)
    study.add_trial(create_trial(params={"x": 0.5}, distributions=X, value=9.0))
    with met("Start a new study"):
        odp.release(study, RUN)
    return new_study_of_tune()


def no_cost_of_a_run() -> odp.Release:
    study = of_tune()
    study.optimize(objective)
    with met("release(study, run="):
        odp.release(study)
    return odp.release(study, RUN, vouched="a test")


def another_cost_than_on_record() -> odp.Release:
    study = of_tune()
    study.optimize(objective, callbacks=[odp.PrivacyCallback(RUN)])
    with met("Leave these arguments out"):
        odp.release(study, odp.gaussian(9.0))
    return odp.release(study, vouched="a test")


def two_costs_of_a_run() -> odp.Release:
    study = of_tune()
    study.optimize(objective, n_trials=1, callbacks=[odp.PrivacyCallback(RUN)])
    with met("Give every worker the same PrivacyCallback", PlanError):
        study.optimize(objective, callbacks=[odp.PrivacyCallback(odp.gaussian(9.0))])
    study = of_tune()
    for _ in range(2):
        study.optimize(objective, n_trials=1, callbacks=[odp.PrivacyCallback(RUN)])
    study.optimize(objective)
    return odp.release(study, vouched="a test")


def runs_that_failed_together(how: str) -> odp.Release:
    def breaks(trial: Trial) -> float:
        if trial.number >= 3:
            raise RuntimeError
        return objective(trial)

    study = of_tune(20)
    study.optimize(breaks, catch=(RuntimeError,))
    with met(f"failures='{how}'"):
        odp.release(study, RUN)
    return odp.release(study, RUN, failures=how, vouched="a test")


def runs_that_were_lost() -> odp.Release:
    return runs_that_failed_together("lost")


def runs_that_failed_by_chance() -> odp.Release:
    return runs_that_failed_together("chance")


def a_run_that_failed_before_it_began() -> odp.Release:
    study = of_tune()
    study.optimize(objective, n_trials=1)
    study._storage.create_new_trial(study._study_id)  # And its worker dies.
    again(study, WITHOUT_ONE()).tell(1, state=TrialState.FAIL)
    study.optimize(objective)
    with met("optuna-dp recover STORAGE STUDY --fail 1"):
        odp.release(study, RUN)
    odp.recover(study, fail=[1])
    return odp.release(study, RUN, vouched="a test")


def a_worker_without_the_sampler() -> odp.Release:
    study = of_tune()
    study.optimize(objective, n_trials=1)
    again(study, WITHOUT_ONE()).optimize(objective, n_trials=1)
    study.optimize(objective)
    with met("Give the same sampler to every optuna.load_study"):
        odp.release(study, RUN)
    study = of_tune()
    study.optimize(objective, n_trials=1)
    again(study, odp.RandTuneSampler(trials=exactly(4))).optimize(objective)
    return odp.release(study, RUN, vouched="a test")


def a_worker_with_another_law() -> odp.Release:
    study = of_tune()
    study.optimize(objective, n_trials=1)
    other = again(study, odp.RandTuneSampler(trials=odp.Geometric(mean=3)))
    with met("Give every worker the same sampler", PlanError):
        other.optimize(objective)
    study.optimize(objective)
    return odp.release(study, RUN, vouched="a test")


def a_seed() -> odp.Release:
    study = study_of(odp.RandTuneSampler(trials=exactly(4), seed=1))
    study.optimize(objective)
    with met("Leave out seed="):
        odp.release(study, RUN)
    return new_study_of_tune()


def a_copy() -> odp.Release:
    study = of_tune(study_name="original")
    study.optimize(objective)
    where: Any = study._storage
    names = {"from_study_name": "original", "to_study_name": "copy"}
    optuna.copy_study(from_storage=where, to_storage=where, **names)
    odp.release(study, RUN, vouched="a test")
    with met("Release 'original' again: the result is the same"):
        odp.release(optuna.load_study(study_name="copy", storage=where), RUN, vouched="a test")
    return odp.release(study, RUN, vouched="a test")


def a_copy_that_went_on() -> odp.Release:
    sampler = odp.BudgetSampler(PLAN)
    study = study_of(sampler, study_name="original")
    study.optimize(objective, n_trials=2)
    where: Any = study._storage
    names = {"from_study_name": "original", "to_study_name": "copy"}
    optuna.copy_study(from_storage=where, to_storage=where, **names)
    copy = optuna.load_study(study_name="copy", storage=where, sampler=sampler)
    copy.optimize(objective)
    study.optimize(objective)
    with met("Release 'original', and show nothing of this one"):
        odp.release(copy)
    return odp.release(study)


def a_result_that_changed() -> odp.Release:
    study = of_tune()
    study.optimize(objective)
    odp.release(study, RUN, output_attributes=["seen"], vouched="a test")
    stored = study._storage._get_trial(study.best_trial._trial_id)  # type: ignore[attr-defined]
    stored.user_attrs["seen"] = 1
    with met("What was released first stands; a second choice"):
        odp.release(study, RUN, output_attributes=["seen"], vouched="a test")
    one = new_study_of_tune()
    assert isinstance(one.guarantee.compose(one.guarantee), odp.Guarantee)
    return one


def a_range_that_changed() -> odp.Release:
    study = of_tune()
    study.optimize(lambda trial: trial.suggest_float("x", 0.0, 1.0 + trial.number))
    with met("draw a share from [0, 1] and scale it"):
        odp.release(study, RUN)
    study = of_tune()
    study.optimize(lambda trial: trial.suggest_float("share", 0.0, 1.0) * (1 + trial.number))
    return odp.release(study, RUN, vouched="a test")


def several_objectives_of_tune() -> odp.Release:
    study = optuna.create_study(
        directions=["maximize"] * 2, sampler=odp.RandTuneSampler(trials=exactly(4))
    )
    with met("Make the study with direction=", OptunaDPError):
        study.optimize(lambda trial: (objective(trial), 0.0))
    return new_study_of_tune()


def a_pruner_that_compares() -> odp.Release:
    def pruned(trial: Trial, own: bool) -> float:
        trial.report(value := objective(trial), step=0)
        if trial.number == 2:
            if not own:
                raise optuna.TrialPruned
            return math.nan
        return value

    study = of_tune()
    study.optimize(lambda trial: pruned(trial, own=False))
    with met("To end a run by the objective's own rule, return NaN"):
        odp.release(study, RUN)
    study = of_tune()
    study.optimize(lambda trial: pruned(trial, own=True))
    return odp.release(study, RUN, vouched="a test")


WAYS = [
    one
    for name, one in list(globals().items())
    if callable(one) and getattr(one, "__annotations__", {}) == {"return": "odp.Release"}
    if name != "new_study_of_tune"
]


@pytest.mark.parametrize("way", WAYS, ids=[way.__name__ for way in WAYS])
def test_the_way_out_of_a_refusal_leads_to_a_release(way: Callable[[], odp.Release]) -> None:
    assert isinstance(way(), odp.Release)


@pytest.mark.parametrize("plan", [PLAN, SPARE], ids=["none to spare", "one to spare"])
def test_ctrl_c_in_the_last_run_leaves_what_was_paid_for(
    plan: odp.BudgetPlan, caplog: pytest.LogCaptureFixture
) -> None:
    def stopped(trial: Trial) -> float:
        value = objective(trial)
        if trial.number == 2:
            raise KeyboardInterrupt
        return value

    study = of_budget(plan)
    with pytest.raises(KeyboardInterrupt):
        study.optimize(stopped)
    said = "the budget has no other one"
    assert (said in caplog.text) == (plan is PLAN)
    caplog.clear()
    study.optimize(objective)
    release = odp.release(study)
    assert len(release.pilots) == 2
    assert release.params is not None
    if plan is SPARE:
        assert release.value is not None
        assert said not in caplog.text
        return
    assert release.value is None
    assert said in caplog.text
    whole = release.with_training(plan.final.event, value=0.5)
    assert whole.guarantee.epsilon(1e-5) > release.guarantee.epsilon(1e-5)


def test_after_a_last_run_with_a_result_nothing_is_said(caplog: pytest.LogCaptureFixture) -> None:
    study = of_budget()
    for _ in range(2):
        study.optimize(objective)
    assert "last run failed" not in caplog.text


def test_an_objective_that_asks_for_nothing_is_not_called_after_the_last_run() -> None:
    for sampler in (odp.BudgetSampler(budget()), odp.RandTuneSampler(trials=exactly(1))):
        called: list[int] = []

        def asks_nothing(trial: Trial, called: list[int] = called) -> float:
            called.append(trial.number)
            return 0.5

        study = study_of(sampler)
        for jobs in (3, 1):
            study.optimize(asks_nothing, n_jobs=jobs)
        assert called == [0]
        assert {t.state.name for t in study.trials[1:]} == {"PRUNED"}
        assert (
            "not covered"
            not in (
                odp.release(study, RUN, vouched="a test")
                if isinstance(sampler, odp.RandTuneSampler)
                else odp.release(study, vouched="a constant")
            ).attributes
        )
