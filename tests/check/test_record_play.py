"""The kinds of violation that Re:cord-play found in other libraries, tried on this one.

Cebere, Erb, Desfontaines, Bellet and Fitzsimons (arXiv 2602.17454, PETS 2026) found 13 violations
in 12 libraries. Their artifact sorts them: a data set's size or its domain taken for public, a
sensitivity or a noise that is too small, numbers that are not finite, budgets spent twice.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import optuna
import pytest
from refusals import refuses
from started import NO_NOISE, started

import optuna_dp as odp
from optuna_dp.errors import PlanError
from optuna_dp.training.schedules import Schedule

RECORDS = 200
PLAN = odp.plan_budget(epsilon=3.0, delta=1e-5, records=RECORDS, batch_size=40, epochs=1, pilots=0)
X = np.random.default_rng(0).normal(size=(RECORDS, 4)).clip(-1, 1)
Y = np.arange(RECORDS) % 2


def study_of(objective: Any, plan: odp.BudgetPlan = PLAN) -> optuna.Study:
    study = optuna.create_study(direction="maximize", sampler=odp.BudgetSampler(plan))
    study.optimize(objective, callbacks=[odp.PrivacyCallback()])
    return study


def trained(x: np.ndarray, y: np.ndarray) -> tuple[Any, dict[str, Any]]:
    """A training on these records, and what the release's guarantee and run say."""
    kept: list[Any] = []

    def objective(trial: optuna.Trial) -> Any:
        run = odp.start_run(trial)
        kept.append(odp.train(run, odp.SoftmaxRegression(4, 2), (x, y), score="accuracy"))
        kept.append((run.steps, run.noise_multiplier, run.batch_size, run.learning_rate()))
        return kept[0].score

    release = odp.release(study_of(objective))
    return kept[0], {"run": kept[1], "epsilon": release.guarantee.epsilon(delta=1e-5)}


@pytest.mark.promise("public-numbers")
def test_the_size_of_the_data_is_not_taken_for_public() -> None:
    # Opacus, Synthcity: a divisor or a rate made of len(data).
    _, whole = trained(X, Y)
    _, without_one = trained(X[1:], Y[1:])
    assert whole == without_one


@pytest.mark.promise("public-numbers")
@pytest.mark.parametrize("records", [2, 3])
def test_a_sum_is_divided_by_the_planned_batch_and_not_by_the_records(records: int) -> None:
    model = odp.SoftmaxRegression(features=1, classes=2)
    # Each record is in the batch and moves the weights one way, by the clipping norm.
    odp.train(
        started(3, noise_multiplier=NO_NOISE, steps=1, batch_size=3.0),
        model,
        (np.full((records, 1), 1e6), np.ones(records, dtype=int)),
        optimizer="sgd",
        learning_rate=1e-9,
        clipping_norm=1.0,
        schedule=Schedule("constant"),
        score=None,
    )
    assert np.linalg.norm(model.weights) == pytest.approx(records / 3 * 1e-9, rel=1e-4)


def test_a_class_that_one_record_has_changes_no_shape() -> None:
    # Diffprivlib, dpmm: np.unique(y) of the private records.
    model, _ = trained(X, np.where(np.arange(RECORDS) == 0, 1, 0))
    without, _ = trained(X, np.zeros(RECORDS, dtype=int))
    assert np.shape(model.model.weights) == np.shape(without.model.weights)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf, 1e300])
def test_a_record_that_is_not_finite_leaves_weights_and_score_finite(bad: float) -> None:
    # SmartNoise, dpmm, Synthcity, Opacus, Diffprivlib: NaN passes through np.clip.
    x = X.copy()
    x[0] = bad
    result, _ = trained(x, Y)
    assert np.isfinite(result.model.weights).all()
    assert math.isfinite(result.score)


def test_a_step_that_no_record_joins_ends_no_training() -> None:
    # Batches of one record on average: about 37 steps of 100 are empty.
    plan = odp.plan_budget(
        epsilon=3.0, delta=1e-5, records=RECORDS, batch_size=1, epochs=0.5, pilots=0
    )

    def objective(trial: optuna.Trial) -> Any:
        model = odp.SoftmaxRegression(4, 2)
        return odp.train(odp.start_run(trial), model, (X, Y), score="accuracy").score

    assert math.isfinite(odp.release(study_of(objective, plan)).value)


@pytest.mark.parametrize("noise", [0.0, -1.0, math.nan])
def test_no_noise_is_no_training(noise: float) -> None:
    # Synthcity's PrivBayes: a scale that a setting makes zero.
    with refuses("noise_multiplier"):
        odp.dp_sgd(noise_multiplier=noise, sample_rate=0.1, steps=10)


def test_a_budget_is_not_spent_twice() -> None:
    # MOSTLY AI: two uses of the data, each with the budget of one.
    def objective(trial: optuna.Trial) -> Any:
        run = odp.start_run(trial)
        odp.train(run, odp.SoftmaxRegression(4, 2), (X, Y), score="accuracy")
        with pytest.raises(PlanError) as caught:
            odp.train(run, odp.SoftmaxRegression(4, 2), (X, Y), score="accuracy")
        raise caught.value

    with pytest.raises(PlanError):
        study_of(objective)


def test_an_epsilon_is_that_of_the_closed_form() -> None:
    # SmartNoise SQL: a conversion to (epsilon, delta) without its log(1/delta).
    from scipy.stats import norm

    epsilon = odp.Guarantee(odp.gaussian(2.0)).epsilon(delta=1e-5)
    mu = 1 / 2.0
    upper = norm.cdf(mu / 2 - epsilon / mu) - math.exp(epsilon) * norm.cdf(-mu / 2 - epsilon / mu)
    assert upper <= 1e-5
    assert upper == pytest.approx(1e-5, rel=0.01)
