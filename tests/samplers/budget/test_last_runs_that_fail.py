"""What is said when the last run of a budget fails, by how far it came."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from budget_support import budget
from support import asking, budget_sampler, logged, recorded, study_of

import optuna_dp as odp
from optuna_dp.errors import InvalidArgumentError, PlanError

N = 60
X = np.random.default_rng(0).normal(size=(N, 4))
RECORDS = X, (X[:, 0] > 0).astype(int)


def said_of(objective: Any, pilots: int, error: type[Exception]) -> str:
    plan = odp.plan_budget(epsilon=3.0, records=N, batch_size=20, epochs=2, pilots=pilots)
    study = study_of(budget_sampler(plan))
    with logged() as lines:
        study.optimize(objective, catch=(error,))
    return "\n".join(lines)


@pytest.mark.parametrize("pilots", [0, 1])
def test_a_last_run_that_trained_nothing_is_told_from_one_that_did(
    pilots: int,
) -> None:
    def refused(trial: Any) -> Any:
        features = 4 if trial.number < pilots else 5
        run = odp.start_run(trial)
        return odp.train(run, odp.SoftmaxRegression(features, 2), RECORDS, score="accuracy").score

    def fails_later(trial: Any) -> Any:
        run = odp.start_run(trial)
        score = odp.train(run, odp.SoftmaxRegression(4, 2), RECORDS, score="accuracy").score
        if trial.number < pilots:
            return score
        raise ValueError("after the training")

    nothing = said_of(refused, pilots, InvalidArgumentError)
    assert "odp.opacus.make_private" in nothing
    assert ("a new study" in nothing) == (pilots == 0)
    assert ("release.params" in nothing) == (pilots > 0)
    something = said_of(fails_later, pilots, ValueError)
    assert "last run" in something
    assert "odp.opacus.make_private" not in something


def test_an_objective_may_compute_with_the_score_of_a_run_that_has_none() -> None:
    plan = odp.plan_budget(
        epsilon=3.0, records=N, batch_size=20, epochs=2, pilots=1, score_final=False
    )
    study = study_of(budget_sampler(plan))

    def objective(trial: Any) -> float:
        run = odp.start_run(trial)
        trained = odp.train(run, odp.SoftmaxRegression(4, 2), RECORDS, score="accuracy")
        return 1.0 - trained.score

    study.optimize(objective)
    assert [trial.state.name for trial in study.trials] == ["COMPLETE", "COMPLETE"]


def test_when_all_pilots_fail_the_first_error_is_named_without_its_words() -> None:
    def broken(trial: Any) -> Any:
        odp.start_run(trial)
        raise ZeroDivisionError("record 17 is ill")

    study = study_of(budget_sampler(budget(2)))
    with pytest.raises(PlanError, match="ZeroDivisionError") as caught:
        study.optimize(broken, catch=(Exception,))
    assert "record 17" not in str(caught.value)
    assert "counts" not in str(caught.value)
    assert "catch=" in str(caught.value)


def test_what_failed_pilots_trained_is_said_to_count() -> None:
    def fails_later(trial: Any) -> Any:
        odp.start_run(trial).spent(recorded(odp.gaussian(1000.0)))
        raise ValueError

    study = study_of(budget_sampler(budget(2)))
    with pytest.raises(PlanError, match="counts"):
        study.optimize(fails_later, catch=(Exception,))


def test_advice_on_a_failed_last_run_comes_at_its_end_and_to_each_who_asks_later() -> None:
    study = study_of(budget_sampler(budget(1)))
    study.optimize(asking(lambda trial: trial.suggest_float("x", 0.0, 1.0)), n_trials=1)

    def failing(trial: Any) -> Any:
        raise ValueError

    for _ in range(3):
        with logged() as lines:
            study.optimize(failing, catch=(ValueError,))
        assert sum("budget has no other" in line for line in lines) == 1
