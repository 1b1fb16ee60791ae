from __future__ import annotations

import math

import numpy as np
import pytest
from refusals import refuses
from scipy import stats

from optuna_dp.voting import argmax, ballot


def test_the_k_best_get_a_one() -> None:
    scores = [0.3, 0.1, 0.9, 0.2]
    assert ballot(scores, 2).tolist() == [0, 1, 0, 1]
    assert ballot(scores, 2, maximize=True).tolist() == [1, 0, 1, 0]
    assert ballot(scores, 4).tolist() == [1, 1, 1, 1]


def test_a_failed_candidate_is_the_worst() -> None:
    assert ballot([math.nan, 5.0, math.inf, 7.0], 2).tolist() == [0, 1, 0, 1]
    assert ballot([math.nan, math.inf, math.inf], 2).tolist() == [0, 1, 1]
    assert ballot([math.nan, -math.inf], 1, maximize=True).tolist() == [0, 1]


def test_there_are_always_k_ones() -> None:
    for scores in ([math.nan] * 7, [0.0] * 7, list(range(7)), [math.inf] * 7):
        for k in range(1, 8):
            assert ballot(scores, k).sum() == k


def test_ties_fall_at_random_and_not_by_index() -> None:
    source = np.random.default_rng(0).bytes
    votes = sum(ballot([0.5] * 8 + [1.0], 2, random_bytes=source) for _ in range(4000))
    assert votes[8] == 0
    assert stats.chisquare(votes[:8]).pvalue > 1e-4


def test_ties_of_the_sum_fall_at_random() -> None:
    source = np.random.default_rng(1).bytes
    wins = np.bincount(
        [argmax([3, -1, 3, 3], random_bytes=source) for _ in range(3000)], minlength=4
    )
    assert wins[1] == 0
    assert stats.chisquare(wins[[0, 2, 3]]).pvalue > 1e-4


@pytest.mark.parametrize(("scores", "votes"), [([], 1), ([1.0], 0), ([1.0], 2), ([1.0], 1.5)])
def test_bad_ballots_are_refused(scores: list[float], votes: int) -> None:
    with refuses("votes" if scores else "scores"):
        ballot(scores, votes)
