"""The rehearsal: it finds the rate at which noise moves the logits by the target, and says no."""

from __future__ import annotations

import inspect
import math
import warnings
from typing import Any

import numpy as np
import pytest

import optuna_dp as odp
from optuna_dp.errors import InvalidArgumentError
from optuna_dp.training.rehearsal import (
    LARGEST_NOISE_PER_WEIGHT,
    LEAST_NOISE_PER_WEIGHT,
    LINEAR_SIZE,
    SIZE,
    size_of_change,
)

PUBLIC: dict[str, Any] = {"noise_multiplier": 2.0, "steps": 60, "batch_size": 64}
INPUTS = odp.made_up_inputs(*[(0.0, 1.0)] * 64)
SOFTMAX = [np.zeros((64, 10))]


def linear(weights: list[Any], inputs: Any) -> Any:
    return inputs @ weights[0]


def network(weights: list[Any], inputs: Any) -> Any:
    return np.tanh(inputs @ weights[0]) @ weights[1]


def two_layers() -> list[Any]:
    rng = np.random.default_rng(1)
    return [rng.normal(size=(64, 32)) / 8.0, np.zeros((32, 10))]


def closed_form(inputs: Any, noise: float, classes: int) -> float:
    """For a softmax regression: every logit is a sum of independent noises."""
    length = math.sqrt(np.mean(np.sum(inputs**2, axis=1)))
    return noise * length * math.sqrt(1.0 - 1.0 / classes)


def test_size_is_the_deviation_over_classes() -> None:
    assert size_of_change([[1.0, -1.0], [1.0, -1.0]]) == pytest.approx(1.0)
    assert size_of_change([[5.0, 5.0, 5.0]]) == 0.0
    noise = np.random.default_rng(0).normal(0.0, 2.0, (20_000, 10))
    assert size_of_change(noise + 7.0) == pytest.approx(2.0 * math.sqrt(0.9), rel=0.02)


@pytest.mark.parametrize("optimizer", ["sgd", "momentum", "adam", "adamw"])
def test_of_a_softmax_regression_it_is_known_in_closed_form(optimizer: Any) -> None:
    found = odp.rehearse_arrays(linear, SOFTMAX, INPUTS, optimizer=optimizer, **PUBLIC)
    wanted = LINEAR_SIZE / closed_form(INPUTS, 1.0, 10)
    assert LEAST_NOISE_PER_WEIGHT < wanted < LARGEST_NOISE_PER_WEIGHT
    exact = odp.learning_rate(optimizer, noise_per_weight=wanted, **PUBLIC)
    # 640 random weights, a search to 5 %, and Adam's first steps.
    assert found.learning_rate == pytest.approx(exact, rel=0.2)
    assert found.size == pytest.approx(LINEAR_SIZE, rel=0.06)
    assert found.target == LINEAR_SIZE
    deep = odp.rehearse_arrays(network, two_layers(), INPUTS, optimizer=optimizer, **PUBLIC)
    assert deep.size == pytest.approx(SIZE, rel=0.06)


@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_a_schedule_and_a_decay_are_rehearsed_as_they_are(optimizer: Any) -> None:
    def rate(**others: Any) -> float:
        return odp.rehearse_arrays(
            network, two_layers(), INPUTS, optimizer=optimizer, **PUBLIC, **others
        ).learning_rate

    # A rate that falls in a line to zero makes 1 / sqrt(3) of the noise.
    falling = rate(schedule=lambda step: 1.0 - step / PUBLIC["steps"])
    assert 1.2 < falling / rate() < 2.2
    assert rate(weight_decay=0.0) == rate()


def test_the_noise_of_a_weight_stays_within_its_bounds() -> None:
    tiny, huge = 1e-3 * INPUTS, 1e3 * INPUTS
    ends = [
        odp.learning_rate(noise_per_weight=noise, **PUBLIC)
        for noise in (LEAST_NOISE_PER_WEIGHT, LARGEST_NOISE_PER_WEIGHT)
    ]
    low = odp.rehearse_arrays(linear, SOFTMAX, huge, **PUBLIC)
    high = odp.rehearse_arrays(linear, SOFTMAX, tiny, **PUBLIC)
    assert (low.learning_rate, high.learning_rate) == pytest.approx(ends, rel=0.1)
    assert low.size > LINEAR_SIZE > high.size


def test_a_function_of_the_users_own_is_searched_alike() -> None:
    rng = np.random.default_rng(3)

    def train(rate: float) -> Any:
        steps = rng.normal(size=(PUBLIC["steps"], 64, 10))
        return INPUTS @ (-rate * 2.0 / 64 * steps.sum(axis=0))

    found = odp.rehearse(train, size=LINEAR_SIZE, **PUBLIC)
    assert found.size == pytest.approx(LINEAR_SIZE, rel=0.15)
    ready = odp.rehearse_arrays(linear, SOFTMAX, INPUTS, **PUBLIC)
    assert found.learning_rate == pytest.approx(ready.learning_rate, rel=0.3)


def test_logits_that_overflow_are_too_large() -> None:
    def train(rate: float) -> Any:
        return np.full((3, 4), np.inf) if rate > 1.0 else rate * np.eye(3, 4)

    found = odp.rehearse(train, size=LINEAR_SIZE, **PUBLIC)
    assert 0.9 < found.learning_rate <= 1.0
    assert found.size < SIZE


def test_no_argument_is_a_record_and_the_rate_repeats() -> None:
    """Nothing that trains on noise takes labels, and what it draws is not secret."""
    for function in (odp.rehearse, odp.rehearse_arrays, odp.rehearse_module):
        names = set(inspect.signature(function).parameters)
        assert not names & {"x", "y", "data", "records", "labels", "targets", "loss"}
    once, again = (odp.rehearse_arrays(linear, SOFTMAX, INPUTS, **PUBLIC) for _ in range(2))
    assert once == again


def test_a_rehearsal_leaves_the_weights_alone() -> None:
    weights = two_layers()
    before = [layer.copy() for layer in weights]
    odp.rehearse_arrays(network, weights, INPUTS, optimizer="adamw", weight_decay=0.1, **PUBLIC)
    for layer, old in zip(weights, before, strict=True):
        np.testing.assert_array_equal(layer, old)


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("steps", {"steps": 19}),
        ("noise_multiplier", {"noise_multiplier": 0.04}),
        ("batch_size", {"batch_size": 0}),
        ("clipping_norm", {"clipping_norm": -1.0}),
        ("optimizer", {"optimizer": "rmsprop"}),
        ("size", {"size": 0.0}),
        ("weight_decay", {"weight_decay": -1.0}),
        ("momentum", {"optimizer": "momentum", "momentum": 1.0}),
        ("largest_class", {"largest_class": 1.5}),
    ],
)
def test_what_it_cannot_do_is_refused(name: str, change: dict[str, Any]) -> None:
    with pytest.raises(InvalidArgumentError) as refused:
        odp.rehearse_arrays(linear, SOFTMAX, INPUTS, **{**PUBLIC, **change})
    assert refused.value.argument == name


@pytest.mark.parametrize("shape", [(64, 1), (64,)])
def test_regression_is_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(InvalidArgumentError, match="regression"):
        odp.rehearse_arrays(linear, [np.zeros(shape)], INPUTS, **PUBLIC)


def test_where_it_is_weak_it_says_so() -> None:
    few = odp.made_up_inputs(*[(-1.73, 1.73)] * 4)
    with pytest.warns(UserWarning, match="4 features"):
        found = odp.rehearse_arrays(linear, [np.zeros((4, 3))], few, **PUBLIC)
    assert len(found.remarks) == 1
    with pytest.warns(UserWarning, match="90% of the records"):
        odp.rehearse_arrays(linear, SOFTMAX, INPUTS, largest_class=0.9, **PUBLIC)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        odp.rehearse_arrays(linear, SOFTMAX, INPUTS, largest_class=0.2, **PUBLIC)


def test_made_up_inputs_are_of_the_schema() -> None:
    inputs = odp.made_up_inputs((-2.0, 3.0), 4, (0.0, 1.0), rows=2_000)
    assert inputs.shape == (2_000, 6)
    assert inputs[:, 0].min() > -2.0
    assert inputs[:, 0].max() < 3.0
    assert inputs[:, 0].mean() == pytest.approx(0.5, abs=0.2)
    np.testing.assert_array_equal(inputs[:, 1:5].sum(axis=1), 1.0)
    assert set(np.unique(inputs[:, 1:5])) == {0.0, 1.0}
    np.testing.assert_array_equal(
        inputs, odp.made_up_inputs((-2.0, 3.0), 4, (0.0, 1.0), rows=2_000)
    )


def test_made_up_images_have_squares() -> None:
    images = odp.made_up_images(3, 28, 20, low=-1.0, high=1.0, rows=50)
    assert images.shape == (50, 3, 28, 20)
    assert -1.0 <= images.min() < -0.9 < 0.9 < images.max() <= 1.0
    np.testing.assert_array_equal(images[:, :, 0], images[:, :, 6])
    assert np.all(images[:, :, 6, 0] != images[:, :, 7, 0])
    assert odp.made_up_images(1, 2, 3, rows=1).shape == (1, 1, 2, 3)


@pytest.mark.parametrize(
    "columns", [(), ((1.0, 0.0),), ((0.0, math.inf),), ((0.0,),), (1,), (2.5,), ("age",)]
)
def test_a_schema_that_is_none_is_refused(columns: Any) -> None:
    with pytest.raises(InvalidArgumentError):
        odp.made_up_inputs(*columns)


@pytest.mark.parametrize("shape", [(28, 28), (1, 0, 3), ()])
def test_images_that_are_none_are_refused(shape: Any) -> None:
    with pytest.raises(InvalidArgumentError):
        odp.made_up_images(*shape)


def test_two_classes_are_measured_with_more_than_one_draw() -> None:
    """The difference of two logits is one number; a single draw was a third off."""
    inputs = odp.made_up_inputs(*[(0.0, 1.0)] * 30)
    found = odp.rehearse_arrays(linear, [np.zeros((30, 2))], inputs, size=1.0, **PUBLIC)
    exact = odp.learning_rate(noise_per_weight=1.0 / closed_form(inputs, 1.0, 2), **PUBLIC)
    assert found.learning_rate == pytest.approx(exact, rel=0.2)


def test_a_decay_that_bends_the_walk_is_followed() -> None:
    """Strong decay forgets early noise; how much is a geometric sum."""
    steps, decay = 200, 0.02
    found = odp.rehearse_arrays(
        linear, SOFTMAX, INPUTS, weight_decay=decay, **PUBLIC | {"steps": steps}
    )
    rate, kept = found.learning_rate, 1.0 - found.learning_rate * decay
    noise = rate * 2.0 / 64 * math.sqrt((1.0 - kept ** (2 * steps)) / (1.0 - kept**2))
    assert closed_form(INPUTS, noise, 10) == pytest.approx(LINEAR_SIZE, rel=0.12)
