"""The check of an objective under a plan: what it may spend, and what a release would say."""

from __future__ import annotations

from typing import Any

import numpy as np
import optuna
import pytest
from dp_accounting.pld import PLDAccountant
from support import logged, recorded, simulated

import optuna_dp as odp

from .small_trainings import SIZE, X, Y, names, train


def budgeted(trial):
    run = odp.start_run(trial)
    weights = train(run.learning_rate(noise_per_weight=trial.suggest_float("noise", 0.1, 1.0)))
    run.spent(recorded(simulated(run)))
    return run.score((X @ weights > 0) == Y)


@pytest.fixture(scope="module")
def plan():
    return odp.plan_budget(epsilon=3.0, records=SIZE, batch_size=4, epochs=1, pilots=4)


def test_nothing_is_found_in_a_sound_study_with_a_budget(plan) -> None:
    with logged() as lines:
        report = odp.check_objective(budgeted, plan=plan)
    assert not report.findings, str(report)
    assert lines == []
    assert report.runs == 2

    def only_last_runs(trial):
        assert not odp.start_run(trial).is_pilot
        return budgeted(trial)

    assert names(only_last_runs, None, plan=plan) == []


def test_an_exact_score_and_the_best_pilot_are_found(plan) -> None:
    def exact(trial):
        run = odp.start_run(trial)
        run.spent(recorded(simulated(run)))
        return float(((X @ train(0.5) > 0) == Y).mean())

    assert names(exact, None, plan=plan) == ["exact score", "not compared"]

    def best_pilot(trial):
        return max(budgeted(trial), trial.study.best_value)

    assert names(best_pilot, None, plan=plan) == ["other trials", "not compared"]


def test_an_objective_that_never_asks_for_its_run_is_found(plan) -> None:
    def never_asks(trial):
        right = (X @ train(trial.suggest_float("rate", 0.1, 1.0)) > 0) == Y
        return odp.scoring.private_accuracy(right, size=SIZE, noise_multiplier=1e3)

    assert names(never_asks, None, plan=plan) == ["run not started"]


def test_what_a_release_would_say_of_runs_with_a_budget(plan) -> None:
    def hands_nothing_in(trial):
        run = odp.start_run(trial)
        weights = train(trial.suggest_float("rate", 0.1, 1.0))
        return run.score((X @ weights > 0) == Y)

    report = odp.check_objective(hands_nothing_in, plan=plan)
    assert [found.name for found in report.findings] == ["not compared"], str(report)
    assert report.ok, "the curator may vouch for it"

    def goes_on(trial):
        run = odp.start_run(trial)
        step = odp.dp_sgd(noise_multiplier=run.noise_multiplier, sample_rate=0.1, steps=1)
        accountant = PLDAccountant().compose(step)
        run.spent(accountant)
        weights = train(trial.suggest_float("rate", 0.1, 1.0))
        accountant.compose(step)
        return run.score((X @ weights > 0) == Y)

    report = odp.check_objective(goes_on, plan=plan)
    assert [found.name for found in report.findings] == ["refused at release"], str(report)
    assert not report.ok
    assert "run.spent" in str(report)


PLAN = odp.plan_budget(epsilon=3.0, delta=1e-5, records=200, batch_size=40, epochs=1, pilots=0)
PIXELS = np.random.default_rng(0).normal(size=(200, 4))
LABELS = (PIXELS[:, 0] > 0).astype(int)


@pytest.mark.slow
@pytest.mark.parametrize("is_seeded", [False, True])
def test_nothing_is_found_where_odp_train_trains(is_seeded: bool) -> None:
    seed = 3 if is_seeded else None

    def softmax(trial: optuna.Trial) -> Any:
        np.random.seed(seed)  # first weights, say: batches and noise are drawn elsewhere
        run = odp.start_run(trial)
        model = odp.SoftmaxRegression(4, 2)
        return odp.train(run, model, (PIXELS, LABELS), score="accuracy").score

    report = odp.check_objective(softmax, plan=PLAN)
    assert report.findings == (), str(report)
    assert str(report).splitlines()[1] == report.note
    assert "as given" in report.note


@pytest.mark.slow
def test_what_is_made_by_a_schema_is_no_hint_and_what_is_made_beside_it_is_one() -> None:
    schema = odp.Schema({f"x{i}": (-2, 2) for i in range(4)}, died=[0, 1], target="died")

    def by_schema(trial: optuna.Trial) -> Any:
        table = schema.encode(PIXELS, LABELS)
        model = odp.SoftmaxRegression(schema.width, schema.outputs)
        return odp.train(odp.start_run(trial), model, table, score="accuracy").score

    def beside_it(trial: optuna.Trial) -> Any:
        pixels = (PIXELS - PIXELS.mean(0)) / PIXELS.std(0)
        table = schema.encode(pixels, LABELS)
        model = odp.SoftmaxRegression(schema.width, len(np.unique(LABELS)))
        return odp.train(odp.start_run(trial), model, table, score="accuracy").score

    report = odp.check_objective(by_schema, plan=PLAN)
    assert (report.findings, report.note) == ((), "")
    report = odp.check_objective(beside_it, plan=PLAN)
    assert [f.name for f in report.findings] == [
        "values of the records",
        "statistics of the records",
    ]
    assert not any(f.certain for f in report.findings)


def test_runs_of_a_private_selection_are_checked_by_their_plan() -> None:
    plan = odp.RunPlan(
        records=SIZE, batch_size=4, steps=4, noise_multiplier=2.0, score_noise_multiplier=20.0
    )
    assert names(budgeted, None, plan=plan) == []

    def never_starts(trial):
        return trial.suggest_float("x", 0, 1)

    assert "run not started" in names(never_starts, None, plan=plan)
