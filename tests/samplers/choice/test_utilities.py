from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from refusals import refuses

from optuna_dp.mechanisms import Utilities, validation_records_needed
from optuna_dp.mechanisms.utility_values import RESOLUTION

unit = st.floats(0, 1, allow_subnormal=True)


@pytest.mark.slow
@given(st.lists(unit, min_size=2, max_size=30), unit, st.data())
def test_one_partition_moves_a_total_by_at_most_the_sensitivity(scores, other, data):
    i = data.draw(st.integers(0, len(scores) - 1))
    neighbour = [*scores[:i], other, *scores[i + 1 :]]
    for make in (
        lambda row: Utilities.from_scores([row]),
        lambda row: Utilities.from_means([sum(row) / len(row)], len(row)),
    ):
        first, second = make(scores), make(neighbour)
        assert abs(int(first.totals[0]) - int(second.totals[0])) <= first.sensitivity
        assert 0 <= first.totals[0] <= first.unit


def test_floating_point_means_do_break_one_over_k():
    # The reason for whole numbers: with 1/k as the sensitivity of floats this would be false.
    rng = np.random.default_rng(0)
    k, worst = 10, 0.0
    for _ in range(2000):
        scores = rng.random(k)
        low, high = scores.copy(), scores.copy()
        low[3], high[3] = 0.0, 1.0
        worst = max(worst, sum(high) / k - sum(low) / k)
    assert worst > 1 / k


def test_means_may_need_the_extra_grid_point():
    assert Utilities.from_means([0.5], 4).sensitivity == RESOLUTION + 1
    assert Utilities.from_scores([[0.5, 0.5]]).sensitivity == RESOLUTION


def test_means_are_kept_to_the_grid():
    scores = np.random.default_rng(1).random((50, 20))
    for utilities in (
        Utilities.from_scores(scores),
        Utilities.from_means(scores.mean(axis=1), 20),
    ):
        np.testing.assert_allclose(
            utilities.totals / utilities.unit, scores.mean(axis=1), atol=1 / RESOLUTION
        )
        assert utilities.n_candidates == 50
        assert utilities.n_partitions == 20


@pytest.mark.parametrize(
    ("scores", "argument"),
    [
        ([], "scores"),
        ([[]], "scores"),
        ([[0.5], [0.6]], "number of partitions (columns of scores)"),
        ([[0.5, 1.0000001]], "scores[0, 1]"),
        ([[0.5, 0.1], [-1e-300, 0.5]], "scores[1, 0]"),
        ([[0.5, float("nan")]], "scores[0, 1]"),
        ([[0.5, float("inf")]], "scores[0, 1]"),
        ([0.5, 0.6], "scores"),
        ([["a", "b"]], "scores"),
        ([[0.5, 0.4], [0.5]], "scores"),
    ],
)
def test_bad_scores(scores, argument):
    with refuses(argument):
        Utilities.from_scores(scores)


@pytest.mark.parametrize(
    ("means", "k", "argument"),
    [
        ([], 3, "means"),
        ([0.5], 1, "n_partitions"),
        ([1.5], 3, "means[0]"),
        ([float("nan")], 3, "means[0]"),
        ([0.5], 1 << 16, "number of partitions"),
        (np.array([0.5], dtype=np.float32), 3, "means"),
    ],
)
def test_bad_means(means, k, argument):
    with refuses(argument):
        Utilities.from_means(means, k)


@pytest.mark.parametrize("k", [2, 10, 1000, 30_000])
def test_enough_validation_records_move_a_total_by_at_most_the_sensitivity(k):
    n_v = validation_records_needed(k)
    assert k < n_v <= k * (1 + 2 * k / RESOLUTION) + 1
    assert k * RESOLUTION / n_v + k <= RESOLUTION
    # One validation record flips from wrong to right in all partitions.
    right = np.random.default_rng(0).integers(0, n_v, k)
    before, after = (Utilities.from_scores([(right + i) / n_v]) for i in (0, 1))
    assert abs(int(after.totals[0] - before.totals[0])) <= after.sensitivity
    # As many as partitions would not do: rounding adds up over the partitions.
    if k == 1000:
        right = np.full(k, 0)
        before, after = (Utilities.from_scores([(right + i) / k]) for i in (0, 1))
        assert int(after.totals[0] - before.totals[0]) > after.sensitivity


def test_too_many_partitions_for_any_number_of_validation_records():
    with refuses("number of partitions"):
        validation_records_needed(RESOLUTION)
