"""The check of an objective within its study: budgets, failures, what an event says."""

from __future__ import annotations

import numpy as np
import pytest
from dp_accounting.pld import PLDAccountant
from support import logged, simulated

import optuna_dp as odp

from .small_trainings import EVENT, SIZE, X, Y, names, score, train


def budgeted(trial):
    run = odp.fidelity(trial)
    weights = train(run.learning_rate(noise_per_weight=trial.suggest_float("noise", 0.1, 1.0)))
    run.spent(simulated(run))
    return run.score((X @ weights > 0) == Y)


@pytest.fixture(scope="module")
def plan():
    return odp.plan_budget(epsilon=3.0, records=SIZE, batch_size=4, epochs=1, pilots=4)


def test_studies_with_a_budget(plan) -> None:
    with logged() as lines:
        report = odp.check_objective(budgeted, plan=plan)
    assert not report.findings, str(report)
    assert lines == []
    assert report.runs == 8  # a pilot and the last run

    def faulty_at_the_end(trial):
        value = budgeted(trial)
        return value if odp.fidelity(trial).is_pilot else round(value, 2)

    # Two scores of two decimals may be equal as well.
    found = names(faulty_at_the_end, None, plan=plan)
    found = [name for name in found if name != "repeated score"]
    assert found == ["exact score", "not compared"]

    def best_pilot(trial):
        return max(budgeted(trial), trial.study.best_value)

    assert names(best_pilot, None, plan=plan) == ["other trials", "not compared"]


@pytest.mark.slow
def test_what_a_release_would_say_of_runs_with_a_budget(plan) -> None:
    def hands_nothing_in(trial):
        run = odp.fidelity(trial)
        weights = train(trial.suggest_float("rate", 0.1, 1.0))
        return run.score((X @ weights > 0) == Y)

    report = odp.check_objective(hands_nothing_in, plan=plan)
    assert [found.name for found in report.findings] == ["not compared"], str(report)
    assert report.ok, "the curator may vouch for it"
    assert "nothing shows what its training spent" in str(report)

    def goes_on(trial):
        run = odp.fidelity(trial)
        step = odp.dp_sgd(noise_multiplier=run.noise_multiplier, sample_rate=0.1, steps=1)
        accountant = PLDAccountant().compose(step)
        run.spent(accountant)
        weights = train(trial.suggest_float("rate", 0.1, 1.0))
        accountant.compose(step)
        return run.score((X @ weights > 0) == Y)

    report = odp.check_objective(goes_on, plan=plan)
    assert [found.name for found in report.findings] == ["refused at release"], str(report)
    assert not report.ok
    assert "the training went on after run.spent" in str(report)


def on_data(trial, data):
    return score(train(trial.suggest_float("rate", 0.1, 1.0), data), data)


def test_failures_that_depend_on_the_data() -> None:
    report = odp.check_objective(on_data, EVENT, data=(X, Y))
    assert not report.findings, str(report)
    assert report.runs == 5 + 4

    def fails(trial, data):
        if not data[1].any():
            raise ValueError("only one class")
        value = on_data(trial, data)
        return float("nan") if np.abs(data[0]).max() > 1e9 else value

    found = odp.check_objective(fails, EVENT, data=(X, Y)).findings
    assert {f.name for f in found} == {"failure on data"}
    assert {f.about for f in found} >= {"all values are zero", "one record has enormous values"}
