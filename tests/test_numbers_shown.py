"""A number that is shown is never on the side of more privacy, and hardly off it."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from optuna_dp.core.numbers_shown import rounded_down, rounded_up, significant_up

NUMBERS = st.floats(0.0, 1e6)


@pytest.mark.promise("bounds")
@given(NUMBERS, st.integers(0, 6))
def test_an_epsilon_is_shown_rounded_up(value: float, places: int) -> None:
    # A double is shown by its shortest decimals: 1.1 is 1.1, and not a little more.
    number, shown = Fraction(repr(value)), Fraction(rounded_up(value, places))
    assert number <= shown < number + Fraction(1, 10**places)


@pytest.mark.promise("bounds")
@given(NUMBERS, st.integers(0, 6))
def test_an_attack_is_shown_rounded_down(value: float, places: int) -> None:
    number, shown = Fraction(repr(value)), Fraction(rounded_down(value, places))
    assert number - Fraction(1, 10**places) < shown <= number


@pytest.mark.promise("bounds")
@given(st.floats(1e-12, 1e12), st.integers(2, 6))
def test_few_digits_are_rounded_up(value: float, digits: int) -> None:
    shown = float(significant_up(value, digits))
    assert value * (1.0 - 1e-12) <= shown <= value * (1.0 + 2.0 * 10.0 ** (1 - digits))


@pytest.mark.parametrize("value", [None, float("inf")])
def test_what_is_infinite_is_said_to_be(value: float | None) -> None:
    assert rounded_up(value) == "infinite"
