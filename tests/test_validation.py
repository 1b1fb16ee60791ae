"""Arguments are met with an error that names them, whatever their type."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from refusals import refuses

from optuna_dp.core import validation
from optuna_dp.errors import InvalidArgumentError, OptunaDPError

NOT_NUMBERS: list[Any] = [
    None,
    "1",
    b"1",
    True,
    [1.0],
    np.array([1.0, 2.0]),
    object(),
    1j,
    10**400,
]


@pytest.mark.parametrize("value", [*NOT_NUMBERS, math.nan], ids=lambda v: type(v).__name__)
@pytest.mark.parametrize("check", ["number", "positive", "non_negative", "open_unit"])
def test_what_is_not_a_number_is_refused(check: str, value: Any) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        getattr(validation, check)("delta", value)
    assert caught.value.argument == "delta"
    assert isinstance(caught.value, ValueError)
    assert isinstance(caught.value, OptunaDPError)


@pytest.mark.parametrize(
    ("check", "bad"),
    [
        ("positive", [0.0, -1.0, math.inf]),
        ("non_negative", [-1e-300, math.inf]),
        ("open_unit", [0.0, 1.0, -0.1, 1.1]),
        ("whole", [1.0, 0.5, -1, "3", None, True, np.array([1, 2])]),
    ],
)
def test_what_is_out_of_range_is_refused(check: str, bad: list[Any]) -> None:
    for value in bad:
        with pytest.raises(InvalidArgumentError):
            getattr(validation, check)("argument", value)


def test_what_is_allowed_comes_back_plain() -> None:
    assert validation.number("x", np.float64(0.5)) == 0.5
    assert type(validation.whole("x", np.int64(3))) is int
    assert validation.open_unit("x", 0.5) == 0.5


@pytest.mark.parametrize(
    "value",
    [
        (1.1, 2.0),
        (0.5, 0.9),
        (0.0, 2.0),
        (-1.0, 2.0),
        (0.5, math.inf),
        (math.nan, 2.0),
        3,
        None,
        (1,),
    ],
)
def test_density_bounds_that_no_density_can_have_are_refused(value: Any) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        validation.density_bounds(value)
    assert caught.value.argument in ("density_bounds", "density_bounds[0]")


def test_a_density_that_is_nowhere_below_the_prior_is_the_prior() -> None:
    assert validation.density_bounds((1.0, 2.0)) == (1.0, 1.0)
    assert validation.density_bounds((0.5, 1)) == (1.0, 1.0)
    assert validation.density_bounds((0.5, 2)) == (0.5, 2.0)


def test_a_whole_float_is_refused_with_what_to_write() -> None:
    with refuses("records") as caught:
        validation.whole("records", 1e6)
    assert "records=1_000_000" in caught.value.fix
