"""The rehearsal of a softmax regression, where what noise does is known in closed form."""

from __future__ import annotations

import inspect
import math
import warnings
from typing import Any

import numpy as np
import pytest
from started import started

import optuna_dp as odp
from optuna_dp.runs.rehearsal import SIZE

RECORDS, FEATURES, CLASSES = 200, 64, 10
INPUTS = odp.made_up_inputs(*[(0.0, 1.0)] * FEATURES)
PLAN: dict[str, Any] = {"noise_multiplier": 2.0, "batch_size": 64.0, "steps": 60}
SCHEDULES = [odp.Schedule("constant"), odp.Schedule("linear"), odp.Schedule("cosine", 0.25)]


def rehearsal(inputs: Any = INPUTS, **arguments: Any) -> odp.Rehearsal:
    x, y = np.zeros((RECORDS, FEATURES)), np.zeros(RECORDS, dtype=int)
    model = odp.SoftmaxRegression(FEATURES, CLASSES)
    run = started(RECORDS, **PLAN)
    trained = odp.train(run, model, (x, y), inputs=inputs, **{"score": None, **arguments})
    assert trained.rehearsal is not None
    assert trained.learning_rate == trained.rehearsal.learning_rate
    return trained.rehearsal


def noise_that_it_bears(inputs: Any) -> float:
    """Every logit is a sum of independent noises, one for each feature."""
    length = math.sqrt(np.mean(np.sum(np.asarray(inputs) ** 2, axis=1)))
    return SIZE / (length * math.sqrt(1.0 - 1.0 / CLASSES))


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("optimizer", ["sgd", "momentum", "adam", "adamw"])
def test_of_a_softmax_regression_it_is_known_in_closed_form(
    optimizer: Any, schedule: odp.Schedule
) -> None:
    found = rehearsal(optimizer=optimizer, schedule=schedule)
    assert found.size == pytest.approx(SIZE, rel=0.06)
    wanted = noise_that_it_bears(INPUTS)
    assert found.noise_per_weight == pytest.approx(wanted, rel=0.12)
    exact = odp.learning_rate(optimizer, noise_per_weight=wanted, schedule=schedule, **PLAN)
    # 640 random weights in five draws; momentum and Adam's moments smear a falling rate.
    assert found.learning_rate == pytest.approx(exact, rel=0.3)


@pytest.mark.parametrize("scale", [1e-3, 1e3])
def test_there_is_no_floor_and_no_cap(scale: float) -> None:
    found = rehearsal(scale * INPUTS, optimizer="adam")
    assert found.noise_per_weight == pytest.approx(noise_that_it_bears(scale * INPUTS), rel=0.12)
    assert found.size == pytest.approx(SIZE, rel=0.06)


def test_steps_of_sgd_that_a_loss_may_not_bear_are_warned_of_with_a_remedy() -> None:
    with pytest.warns(UserWarning, match="optimizer='adam'"):
        found = rehearsal(0.1 * INPUTS, optimizer="sgd")
    assert found.learning_rate > 10.0
    assert len(found.remarks) == 1
    with pytest.warns(UserWarning, match="optimizer='adam'"):
        assert rehearsal(0.1 * INPUTS, optimizer="momentum").learning_rate > 1.0
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert rehearsal(0.1 * INPUTS, optimizer="adam").remarks == ()


def test_a_single_matrix_is_trained_with_plain_sgd_unless_its_steps_would_be_too_long() -> None:
    assert rehearsal() == rehearsal(optimizer="sgd")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert rehearsal(0.1 * INPUTS) == rehearsal(0.1 * INPUTS, optimizer="adam")


def test_it_is_told_no_record_and_repeats() -> None:
    names = set(inspect.signature(odp.rehearse_module).parameters)
    assert not names & {"x", "y", "data", "records", "labels", "targets", "loss"}
    assert rehearsal() == rehearsal()


def test_without_a_schema_features_are_taken_to_lie_between_minus_one_and_one() -> None:
    features = odp.made_up_inputs(*[(-1.0, 1.0)] * FEATURES)
    wanted = noise_that_it_bears(features)
    assert rehearsal(None).noise_per_weight == pytest.approx(wanted, rel=0.12)


def test_a_rate_that_is_given_is_not_rehearsed() -> None:
    x, y = np.zeros((RECORDS, FEATURES)), np.zeros(RECORDS, dtype=int)
    model = odp.SoftmaxRegression(FEATURES, CLASSES)
    trained = odp.train(started(RECORDS, **PLAN), model, (x, y), learning_rate=0.125, score=None)
    assert (trained.learning_rate, trained.rehearsal) == (0.125, None)
