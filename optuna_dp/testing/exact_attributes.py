"""Exact scores that are kept in user attributes, beside noisy ones.

An attribute that equals a score before its noise was added is found whatever it looks like. Any
other is suspected if it is a share of a number of records. A number that was rounded is a share as
well, and says nothing: noisy values may be rounded. An attribute that is the same in two runs of
the same hyperparameters may be a setting, and is never called a score.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from fractions import Fraction
from typing import Any

from optuna_dp.exact_values import is_share
from optuna_dp.testing.checked_run import CheckedRun

# The chance that an honest attribute looks exact.
_CHANCE = 1e-3
# A number with more decimals was not rounded by a person; one with fewer than two tells little.
_FEWEST_DECIMALS, _MOST_DECIMALS = 2, 8
# Single precision.
_RELATIVE_TOLERANCE = 1e-6


def scores_without_noise(runs: Sequence[CheckedRun]) -> list[str]:
    """Returns the places of attributes that are a score without its noise in every run.

    Args:
        runs: Two or more with the same hyperparameters.
    """
    return [
        place
        for place, values in _changing(runs)
        if all(_is_one_of(v, _exact(run)) for v, run in zip(values, runs, strict=True))
    ]


def shares(runs: Sequence[CheckedRun]) -> list[str]:
    """Returns the places of attributes that are shares of a number of records in every run.

    Args:
        runs: Two or more with the same hyperparameters.
    """
    return [place for place, values in _changing(runs) if are_shares(values)]


def _changing(runs: Sequence[CheckedRun]) -> Iterator[tuple[str, list[float]]]:
    """Yields the numbers in attributes that differ between runs and are no noisy scores."""
    by_run = [dict(_numbers(run.attributes, "")) for run in runs]
    for place in by_run[0]:
        if not all(place in numbers for numbers in by_run):
            continue
        values = [numbers[place] for numbers in by_run]
        if len(set(values)) > 1 and not all(map(_is_noisy, values, runs)):
            yield place, values


def _numbers(value: Any, place: str) -> Iterator[tuple[str, float]]:
    """Yields each number in attributes, also in lists, dictionaries and texts, with its place."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _numbers(inner, f"{place}.{key}" if place else str(key))
    elif isinstance(value, list | tuple):
        for number, inner in enumerate(value):
            yield from _numbers(inner, f"{place}[{number}]")
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield place, float(value)
    elif isinstance(value, str):
        try:
            yield place, float(value.strip().removesuffix("%"))
        except ValueError:
            return


def _exact(run: CheckedRun) -> list[float]:
    return [value for score in run.scores for value in score.without_noise()]


def _is_noisy(number: float, run: CheckedRun) -> bool:
    """Returns whether a number is a noisy score of a run, perhaps rounded, or in per cent."""
    values = [score.value for score in run.scores]
    values += [] if run.value is None else [run.value]
    return _is_one_of(number, [*values, *(100.0 * value for value in values)])


def _is_one_of(number: float, values: Sequence[float]) -> bool:
    decimals = _decimals(number)
    is_rounded = _FEWEST_DECIMALS <= decimals <= _MOST_DECIMALS
    return any(
        math.isclose(number, value, rel_tol=_RELATIVE_TOLERANCE)
        or (is_rounded and round(value, decimals) == number)
        for value in values
        if math.isfinite(value)
    )


def _decimals(number: float) -> int:
    """Returns how many decimals a number has if it is written as short as possible."""
    text = repr(number)
    return 0 if "e" in text or not math.isfinite(number) else len(text.partition(".")[2])


def are_shares(values: Sequence[float]) -> bool:
    """Returns whether numbers are shares of records, and hardly rounded ones.

    Args:
        values: Unequal ones.
    """
    if not all(map(_is_share, values)):
        return False
    decimals = max(map(_decimals, values))
    if decimals > _MOST_DECIMALS:
        return True
    unit = math.lcm(*(Fraction(repr(value)).denominator for value in values))
    # Rounded numbers are multiples of a larger unit than that of their last digit by luck only.
    return (unit / 10.0**decimals) ** len(values) < _CHANCE


def _is_share(value: float) -> bool:
    return not value.is_integer() and is_share(value)
