"""A way out that a refusal names leads to a release, where more is to do than to start anew.

Each function below meets one refusal, takes the words of it literally, and returns the release.
``adversarial/test_random_studies.py`` takes the other ways out.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import optuna
import pytest
from optuna.trial import Trial, TrialState
from refusals import refuses
from samplers.budget.budget_support import budget
from support import RUN, exactly, objective, study_of

import optuna_dp as odp
from optuna_dp.errors import OptunaDPError, PlanError, ReleaseRefusedError, WaitError

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
    return study_of(odp.RandTuneSampler(trials=exactly(count), run=RUN), **options)


@contextmanager
def met(words: str = "", kind: type[OptunaDPError] = ReleaseRefusedError) -> Iterator[None]:
    """A refusal that names this part of a way out."""
    with pytest.raises(kind) as caught:
        yield
    assert words in str(caught.value)


def again(study: optuna.Study, sampler: Any, storage: Any = None) -> optuna.Study:
    return optuna.load_study(
        study_name=study.study_name, storage=storage or study._storage, sampler=sampler
    )


# Studies with a budget.


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
    with met("study.enqueue_trial", PlanError):
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


def several_objectives_and_nobody_who_chooses() -> odp.Release:
    study = optuna.create_study(directions=["maximize"] * 2, sampler=odp.BudgetSampler(PLAN))
    with refuses("choose"):
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
    with met(kind=WaitError):
        study.ask()
    study.tell(last, score)
    study.optimize(objective)
    return odp.release(study)


def two_pilots_at_once_that_follow_each_other() -> odp.Release:
    study = of_budget()
    first, second = study.ask(), study.ask()
    value = objective(first)
    with met(kind=WaitError):
        objective(second)
    study.tell(first, value)
    study.tell(second, objective(second))
    study.optimize(objective)
    return odp.release(study)


def runs_are_to_come() -> odp.Release:
    study = of_tune()
    study.optimize(objective, n_trials=2)
    objective(study.ask())  # And its worker dies.
    with met("study.optimize"):
        odp.release(study)
    odp.recover(study, fail=[2])
    study.optimize(objective)
    return odp.release(study, vouched="a test")


def a_run_that_failed_before_it_began() -> odp.Release:
    study = of_tune()
    study.optimize(objective, n_trials=1)
    study._storage.create_new_trial(study._study_id)  # And its worker dies.
    again(study, WITHOUT_ONE()).tell(1, state=TrialState.FAIL)
    study.optimize(objective)
    with met("optuna-dp recover STORAGE STUDY --fail 1"):
        odp.release(study)
    odp.recover(study, fail=[1])
    return odp.release(study, vouched="a test")


def a_range_that_changed() -> odp.Release:
    study = of_tune()
    study.optimize(lambda trial: trial.suggest_float("x", 0.0, 1.0 + trial.number))
    with met():
        odp.release(study)
    study = of_tune()
    study.optimize(lambda trial: trial.suggest_float("share", 0.0, 1.0) * (1 + trial.number))
    return odp.release(study, vouched="a test")


WAYS = [
    one
    for name, one in list(globals().items())
    if callable(one) and getattr(one, "__annotations__", {}) == {"return": "odp.Release"}
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
    said = "spare_runs=1"
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


def test_an_objective_that_asks_for_nothing_is_not_called_after_the_last_run() -> None:
    for sampler in (odp.BudgetSampler(budget()), odp.RandTuneSampler(trials=exactly(1), run=RUN)):
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
                odp.release(study, vouched="a test")
                if isinstance(sampler, odp.RandTuneSampler)
                else odp.release(study, vouched="a constant")
            ).attributes
        )
