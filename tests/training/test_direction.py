"""An accuracy is maximized: a study that minimizes would keep the worst model."""

from __future__ import annotations

import numpy as np
import optuna
import pytest
from refusals import refuses

import optuna_dp as odp
from optuna_dp.runs.trial_notes import claims, stored_trial
from optuna_dp.study.entries import TRAININGS

N = 20
X, Y = np.linspace(-1, 1, 2 * N).reshape(N, 2), np.arange(N) % 2
PLAN = odp.RunPlan(
    records=N, batch_size=N, steps=1, noise_multiplier=9.0, score_noise_multiplier=9.0
)


def study_that(direction: str | None) -> optuna.Study:
    sampler = odp.RandTuneSampler(trials=odp.Poisson(mean=2000.0), run=PLAN)
    return optuna.create_study(direction=direction, sampler=sampler)


@pytest.mark.parametrize("direction", ["minimize", None])  # None: Optuna's default
def test_a_minimized_accuracy_is_refused_before_anything_is_spent(direction: str | None) -> None:
    trial = study_that(direction).ask()
    run = odp.start_run(trial)
    with refuses("score") as caught:
        odp.train(run, odp.SoftmaxRegression(2, 2), (X, Y), score="accuracy")
    assert 'direction="maximize"' in caught.value.fix
    assert not claims(stored_trial(trial), TRAININGS)


def test_a_maximized_accuracy_and_a_minimizing_study_without_one_train() -> None:
    run = odp.start_run(study_that("maximize").ask())
    odp.train(run, odp.SoftmaxRegression(2, 2), (X, Y), score="accuracy")
    run = odp.start_run(study_that("minimize").ask())
    assert odp.train(run, odp.SoftmaxRegression(2, 2), (X, Y), score=None).score is None


@pytest.mark.parametrize(
    ("pilots", "directions"), [((2,), ["maximize", "minimize"]), ((), ["minimize"])]
)
def test_a_second_objective_and_a_study_of_one_run_may_be_minimized(
    pilots: tuple[int, ...], directions: list[str]
) -> None:
    plan = odp.plan_budget(epsilon=9.0, records=N, batch_size=N, epochs=1, pilots=pilots)
    sampler = odp.BudgetSampler(plan, choose=(lambda runs: runs[0][0]) if pilots else None)
    trial = optuna.create_study(directions=directions, sampler=sampler).ask()
    trained = odp.train(
        odp.start_run(trial), odp.SoftmaxRegression(2, 2), (X, Y), score="accuracy"
    )
    assert trained.score is not None
