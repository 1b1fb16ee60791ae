"""A plan without pilots: one run, which is a study, a release and a statement like any other."""

from __future__ import annotations

from typing import Any

import optuna
import pytest
from optuna.trial import TrialState
from support import asking

import optuna_dp as odp
from optuna_dp.errors import InvalidArgumentError

PUBLIC: dict[str, Any] = {"epsilon": 3.0, "records": 1348, "batch_size": 64, "epochs": 2}


@pytest.fixture(scope="module")
def plan() -> odp.BudgetPlan:
    return odp.plan_budget(pilots=0, **PUBLIC)


def study_of(plan: odp.BudgetPlan, **options: Any) -> optuna.Study:
    sampler = odp.BudgetSampler(plan, **options)
    return optuna.create_study(direction="maximize", sampler=sampler)


@asking
def asks_nothing(trial: optuna.Trial) -> float:
    run = odp.start_run(trial)
    assert not run.is_pilot
    return run.learning_rate("sgd")


@asking
def asks(trial: optuna.Trial) -> float:
    odp.start_run(trial)
    return trial.suggest_float("x", 0.0, 1.0)


@pytest.mark.slow
def test_it_has_the_noise_of_a_single_training(plan: odp.BudgetPlan) -> None:
    assert (plan.pilots, plan.runs, plan.rung_sizes) == (0, 1, ())
    assert 2.97 <= plan.guarantee.epsilon(1e-5) <= 3.0
    event = odp.compose(
        odp.dp_sgd(
            noise_multiplier=plan.final.noise_multiplier,
            sample_rate=64 / 1348,
            steps=plan.final.steps,
        ),
        odp.scoring.score_event(plan.final.score_noise_multiplier),
    )
    alone = odp.Guarantee(event).epsilon(1e-5)
    assert plan.guarantee.epsilon(1e-5) == pytest.approx(alone, rel=1e-6)
    assert "then" not in repr(plan)


def test_its_record_survives(plan: odp.BudgetPlan) -> None:
    assert odp.BudgetPlan.from_json(plan.to_json()) == plan
    with pytest.raises(InvalidArgumentError):
        _ = plan.pilot


@pytest.mark.slow
def test_a_study_of_one_run_stops_and_is_released(plan: odp.BudgetPlan) -> None:
    study = study_of(plan)
    study.optimize(asks_nothing, n_trials=10, callbacks=[odp.PrivacyCallback()])
    assert [t.state for t in study.trials] == [TrialState.COMPLETE]
    release = odp.release(study)
    assert release.params == {}
    assert release.value == plan.final.learning_rate("sgd")
    assert release.pilots == []
    assert release.guarantee.epsilon(1e-5) == plan.guarantee.epsilon(1e-5)
    words = release.statement()
    assert "one run, without pilots" in words
    assert "private score on the last rung" not in words


def test_no_second_run_begins(plan: odp.BudgetPlan) -> None:
    study = study_of(plan)
    study.optimize(asks_nothing)
    with pytest.raises(optuna.TrialPruned):
        odp.start_run(study.ask())
    assert odp.release(study).value == plan.final.learning_rate("sgd")


def test_hyperparameters_are_enqueued_or_drawn_at_random(plan: odp.BudgetPlan) -> None:
    values = set()
    for _ in range(3):
        drawn = study_of(plan)
        drawn.optimize(asks)
        values.add(odp.release(drawn).params["x"])
    assert len(values) == 3
    given = study_of(plan)
    given.enqueue_trial({"x": 0.25})
    given.optimize(asks)
    assert odp.release(given).params == {"x": 0.25}


def test_a_spare_run_takes_the_place_of_one_that_failed() -> None:
    plan = odp.plan_budget(pilots=0, spare_runs=1, **PUBLIC)
    assert plan.runs == 2
    study, calls = study_of(plan), []

    def fails_once(trial: optuna.Trial) -> float:
        calls.append(trial.number)
        if len(calls) == 1:
            raise RuntimeError
        return 0.5

    study.optimize(asking(fails_once), catch=(RuntimeError,))
    assert calls == [0, 1]
    release = odp.release(study)
    assert release.value == 0.5
    assert release.guarantee.epsilon(1e-5) == plan.guarantee.epsilon(1e-5) <= 3.0


def test_several_objectives_need_no_choice(plan: odp.BudgetPlan) -> None:
    study = optuna.create_study(
        directions=["maximize", "minimize"], sampler=odp.BudgetSampler(plan)
    )
    study.optimize(lambda trial: (odp.start_run(trial).steps, 2.0))
    release = odp.release(study, vouched="Neither value depends on data.")
    assert release.attributes["values"] == [plan.final.steps, 2.0]


@pytest.mark.parametrize(
    ("name", "value"), [("noise_increase", 1.1), ("pilot_epochs", 1), ("pilots", False)]
)
def test_what_is_for_pilots_is_refused_in_the_plan(name: str, value: Any) -> None:
    with pytest.raises(InvalidArgumentError) as refused:
        odp.plan_budget(**{"pilots": 0, **PUBLIC, name: value})
    assert refused.value.argument == name


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("proposer", optuna.samplers.RandomSampler()),
        ("choose", "best"),
        ("choose", lambda outputs: {}),
        ("pilot_batch_size", 4),
    ],
)
def test_what_is_for_pilots_is_refused_in_the_sampler(
    plan: odp.BudgetPlan, name: str, value: Any
) -> None:
    with pytest.raises(InvalidArgumentError) as refused:
        odp.BudgetSampler(plan, **{name: value})
    assert refused.value.argument == name


def test_the_objective_can_be_checked(plan: odp.BudgetPlan) -> None:
    report = odp.check_objective(asks, plan=plan)
    assert report.runs >= 2
    assert all("pilot" not in finding.about for finding in report.findings)


@pytest.mark.slow
def test_the_release_is_verified(plan: odp.BudgetPlan) -> None:
    study = study_of(plan)
    study.optimize(asks, callbacks=[odp.PrivacyCallback()])
    assert odp.verify(odp.release(study).to_json()).ok
