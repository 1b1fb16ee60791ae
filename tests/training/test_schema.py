"""Inputs made up from a public schema look like it, and like nothing else."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import optuna_dp as odp
from optuna_dp.errors import InvalidArgumentError


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


def test_made_up_tokens_are_below_the_vocabulary() -> None:
    ids = odp.made_up_tokens(7, 50, rows=40)
    assert ids.shape == (40, 50)
    assert set(np.unique(ids)) == set(range(7))
    np.testing.assert_array_equal(ids, odp.made_up_tokens(7, 50, rows=40))


@pytest.mark.parametrize(
    ("name", "given"), [("vocabulary", (1, 5)), ("length", (5, 0)), ("vocabulary", (2.5, 3))]
)
def test_texts_that_are_none_are_refused(name: str, given: Any) -> None:
    with pytest.raises(InvalidArgumentError) as refused:
        odp.made_up_tokens(*given)
    assert refused.value.argument == name
