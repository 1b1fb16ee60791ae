"""Shares of records are recognised in every precision, and random numbers are none."""

from __future__ import annotations

import math

import numpy as np
import pytest

from optuna_dp.core.exact_values import are_shares_of_one_number, common_unit, is_share
from optuna_dp.releasing.reminders import looks_exact


def in_bfloat16(value: float) -> float:
    """Cuts the lower half of a number in single precision off, as bfloat16 has it."""
    bits = np.float32(value).view(np.uint32) & np.uint32(0xFFFF0000)
    return float(bits.view(np.float32))


PRECISIONS = {
    "double": float,
    "single": lambda value: float(np.float32(value)),
    "float16": lambda value: float(np.float16(value)),
    "bfloat16": in_bfloat16,
}


@pytest.mark.parametrize("precision", PRECISIONS)
def test_shares_of_records_are_recognised(precision: str) -> None:
    for share in (0.0, 1.0, 0.5, 37 / 142, 1.37, -0.25, 123.25):
        assert is_share(PRECISIONS[precision](share)), share


@pytest.mark.parametrize("precision", PRECISIONS)
def test_scores_of_several_runs_of_1200_records_are_pointed_out(precision: str) -> None:
    scores = [PRECISIONS[precision](count / 1200) for count in (911, 873, 1001, 794)]
    assert "1/" in looks_exact(scores)
    unit = common_unit(scores)
    assert unit is not None
    if precision in ("double", "single"):
        assert unit == 1200


@pytest.mark.slow
def test_random_numbers_are_no_shares() -> None:
    rng = np.random.default_rng(0)
    for scale in (1e-3, 1.0, 300.0):
        noisy = scale * rng.normal(size=600)
        assert not any(map(is_share, noisy.tolist()))
        single = noisy.astype(np.float32).astype(float).tolist()
        assert sum(map(is_share, single)) < 10
        for values in (noisy.tolist(), single):
            threes = [sorted(values[i : i + 3]) for i in range(0, 600, 3)]
            assert not any(common_unit(three) for three in threes)
    assert not is_share(math.inf)
    assert not is_share(math.nan)


def test_nothing_is_said_of_two_values() -> None:
    assert common_unit([0.5, 0.25]) is None


@pytest.mark.parametrize("precision", ["double", "single"])
def test_two_scores_of_1200_records_are_shares_of_one_number(precision: str) -> None:
    first, second = (PRECISIONS[precision](count / 1200) for count in (911, 873))
    assert are_shares_of_one_number(first, second)


@pytest.mark.slow
def test_two_random_numbers_are_no_shares_of_one_number() -> None:
    values = np.random.default_rng(0).normal(size=2000).astype(np.float32).astype(float)
    pairs = values.reshape(-1, 2).tolist()
    assert not any(are_shares_of_one_number(*pair) for pair in pairs)
