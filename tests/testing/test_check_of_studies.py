"""The check of an objective within its study: budgets, failures, what an event says."""

from __future__ import annotations

import numpy as np
import pytest

import optuna_dp as odp

from .small_trainings import EVENT, SIZE, X, Y, names, score, train


def budgeted(trial):
    run = odp.fidelity(trial)
    weights = train(run.learning_rate(noise_per_weight=trial.suggest_float("noise", 0.1, 1.0)))
    return odp.scoring.private_accuracy(
        (X @ weights > 0) == Y, size=SIZE, noise_multiplier=run.score_noise_multiplier
    )


@pytest.fixture(scope="module")
def plan():
    return odp.plan_budget(epsilon=3.0, records=SIZE, batch_size=4, epochs=1, pilots=4)


def test_studies_with_a_budget(plan) -> None:
    report = odp.check_objective(budgeted, plan=plan)
    assert not report.findings, str(report)
    assert report.runs == 8  # a pilot and the last run

    def faulty_at_the_end(trial):
        value = budgeted(trial)
        return value if odp.fidelity(trial).is_pilot else round(value, 2)

    # Two scores of two decimals may be equal as well.
    found = names(faulty_at_the_end, None, plan=plan)
    assert [name for name in found if name != "repeated score"] == ["exact score"]

    def best_pilot(trial):
        return max(budgeted(trial), trial.study.best_value)

    assert names(best_pilot, None, plan=plan) == ["other trials"]


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
