"""Recognises values that were computed of private records and got no noise: shares k / m.

A share that was computed in single or half precision is rounded, and is a share all the same: it
is looked for among the numbers that round to the value in the coarsest precision which holds it.
Noisy values are double numbers of full precision, and are shares by chance only; the chances are
stated.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

import numpy as np

_MOST = 100_000
_MOST_IN_SINGLE = 10_000
_MOST_OF_TWO = 3_000
_FEWEST = 3


def is_share(value: float) -> bool:
    """Returns whether a value is a fraction whose denominator is too small to be chance.

    The chance for a random number is below 1e-6 in double precision and 2e-3 in single precision,
    which has fewer numbers. Whatever half precision holds (``float16``, ``bfloat16``) is a
    share of a few thousand, and counts.

    Args:
        value: Of any size; infinite values and NaN are no shares.

    Example:
        >>> import random, numpy as np
        >>> is_share(37 / 442), is_share(float(np.float32(33 / 200))), is_share(random.random())
        (True, True, False)
    """
    if not math.isfinite(value):
        return False
    if _is_half(value):
        return True
    chance, largest = (1.6e-3, 300) if _is_single(value) else (1e-6, _MOST)
    # There are about 0.3 m^2 fractions between two whole numbers with denominators up to m.
    likely = math.sqrt(chance / max(0.3 * _gap(value), 1e-300))
    return _denominator(value) <= max(1, min(largest, int(likely)))


def common_unit(values: Sequence[float]) -> int | None:
    """Returns the smallest m of which all values are multiples of 1/m; None if there is none.

    m is at most 100,000, or 10,000 if a value has single precision only. Three or more random
    numbers have such an m with a chance below 1e-6; of fewer nothing is said.

    Args:
        values: Finite and distinct.
    """
    unit = 1
    if len(values) < _FEWEST:
        return None
    for value in values:
        unit = math.lcm(unit, _denominator(value))
        single = _is_single(value) and not _is_half(value)
        if unit > (_MOST_IN_SINGLE if single else _MOST):
            return None
    return unit


def are_shares_of_one_number(first: float, second: float) -> bool:
    """Returns whether two values are shares of one number of records, 3,000 at most.

    Two random numbers are with a chance below 1e-4 in single precision, and 1e-20 in double
    precision.

    Args:
        first: Finite.
        second: Finite.
    """
    return math.lcm(_denominator(first), _denominator(second)) <= _MOST_OF_TWO


def _is_single(value: float) -> bool:
    with np.errstate(over="ignore"):
        return float(np.float32(value)) == value


def _is_half(value: float) -> bool:
    with np.errstate(over="ignore"):
        single = np.float32(value)
        as_float16 = float(np.float16(value)) == value
    # bfloat16 is the upper half of a single-precision number.
    return as_float16 or (float(single) == value and int(single.view(np.uint32)) & 0xFFFF == 0)


def _gap(value: float) -> float:
    """Returns the distance to the next number of the coarsest precision that holds the value."""
    coarse = np.float32(value) if _is_single(value) else np.float64(value)
    return abs(float(np.spacing(coarse)))


def _denominator(value: float) -> int:
    """Returns the smallest denominator of a fraction that rounds to the value."""
    exact = Fraction(value)
    if _is_half(value):
        return exact.denominator
    half = Fraction(_gap(value)) / 2
    return _simplest(exact - half, exact + half).denominator


def _simplest(low: Fraction, high: Fraction) -> Fraction:
    """Returns the fraction of the smallest denominator between two numbers (Stern and Brocot)."""
    integer = math.floor(low)
    if integer == low:
        return Fraction(integer)
    if integer + 1 <= high:
        return Fraction(integer + 1)
    return integer + 1 / _simplest(1 / (high - integer), 1 / (low - integer))
