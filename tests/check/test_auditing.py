"""The auditor itself: right on mechanisms whose epsilon is known, and it names its event."""

from __future__ import annotations

import math
import random

import numpy as np
import pytest
from whole_search import audit, audit_procedure, clopper_pearson


def test_randomised_response_is_measured_and_not_overshot() -> None:
    rng = np.random.default_rng(0)
    p = math.e / (1 + math.e)
    found = audit(*(rng.random(100_000) < q for q in (p, 1 - p)))
    assert 0.95 < found.epsilon < 1.0
    assert not found.refutes(1.0)
    assert found.refutes(0.9)


def test_delta_is_taken_off() -> None:
    """An output that gives the data away with probability 0.01."""
    rng = np.random.default_rng(1)
    worlds = [np.where(rng.random(200_000) < 0.01, mark, 0) for mark in (1, 2)]
    assert audit(*worlds).epsilon > 4
    assert audit(*worlds, delta=0.011).epsilon == 0


def test_real_outputs_are_sorted_into_bins() -> None:
    rng = np.random.default_rng(2)
    worlds = [shift + rng.laplace(size=200_000) for shift in (0.0, 1.0)]
    assert 0.9 < audit(*worlds).epsilon < 1.0
    assert audit(worlds[0], rng.laplace(size=200_000)).epsilon < 0.1


@pytest.mark.slow
def test_the_confidence_is_kept() -> None:
    """Equal worlds of many outputs: above 0 in at most 10 % of audits, whatever was fished for."""
    rng = np.random.default_rng(3)
    wrong = sum(
        audit(*rng.integers(0, 200, (2, 2000)), confidence=0.9).epsilon > 0 for _ in range(300)
    )
    assert wrong <= 300 * 0.1 + 3 * math.sqrt(300 * 0.1 * 0.9)


@pytest.mark.slow
def test_choosing_the_event_on_the_same_half_would_be_wrong() -> None:
    """The test above has teeth: without the split it fails."""
    rng = np.random.default_rng(3)
    wrong = 0
    for _ in range(100):
        one, other = rng.integers(0, 200, (2, 1000))
        wrong += audit(np.tile(one, 2), np.tile(other, 2), confidence=0.9).epsilon > 0
    assert wrong > 50


def test_clopper_pearson_agrees_with_binomial_tails() -> None:
    from scipy.stats import binom

    low, high = clopper_pearson([7], 50, 0.01)
    assert binom.sf(6, 50, low[0]) == pytest.approx(0.01)
    assert binom.cdf(7, 50, high[0]) == pytest.approx(0.01)
    assert clopper_pearson([0], 50, 0.01)[0][0] == 0.0
    assert clopper_pearson([50], 50, 0.01)[1][0] == 1.0


def test_a_whole_procedure() -> None:
    rng = random.Random(4)
    result = audit_procedure(lambda bit: rng.random() < 0.2 + 0.6 * bit, 0, 1, runs=4000)
    assert 1.1 < result.epsilon < math.log(4)


@pytest.mark.parametrize("bad", [{"delta": 1.0}, {"delta": -0.1}, {"confidence": 1.0}])
def test_bad_arguments(bad) -> None:
    with pytest.raises(ValueError, match=next(iter(bad))):
        audit([1] * 9, [2] * 9, **bad)


def test_too_few_outputs() -> None:
    with pytest.raises(ValueError, match="four"):
        audit([1], [1])
