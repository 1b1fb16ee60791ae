from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import integrate

from optuna_dp.errors import InvalidArgumentError
from optuna_dp.propose_test import Utilities, noisy_max
from optuna_dp.propose_test.noisy_max import _measurement
from optuna_dp.propose_test.utilities import RESOLUTION

from .test_above_threshold import pvalue


def exponential_max_law(values, scale):
    """P[i has the largest values + Exp(scale)], by integrating over the noise of i."""
    grid = np.linspace(0, 60 * scale, 100_001)
    density = np.exp(-grid / scale) / scale
    law = []
    for i, value in enumerate(values):
        below = np.ones_like(grid)
        for j, other in enumerate(values):
            if j != i:
                below *= -np.expm1(-np.maximum(0.0, value + grid - other) / scale)
        law.append(integrate.trapezoid(density * below, grid))
    return np.array(law) / np.sum(law)


def test_the_choice_has_the_law_of_exponential_noise_of_mean_2_over_k_epsilon():
    k, epsilon = 10, 1.0
    means = np.array([0.2, 0.5, 0.65, 0.6])
    utilities = Utilities.from_scores(means[:, None] * np.ones(k))
    counts = np.bincount([noisy_max(utilities, epsilon) for _ in range(8_000)], minlength=4)
    assert pvalue(counts, exponential_max_law(means, 2 / (k * epsilon))) > 1e-9
    # Half of it, the scale for utilities that all move one way, is told apart.
    assert pvalue(counts, exponential_max_law(means, 1 / (k * epsilon))) < 1e-9


def test_the_claimed_epsilon_holds_for_neighbours_that_move_in_different_directions():
    # Exact laws on the worst neighbours, k = 1 in units of the sensitivity.
    epsilon, worst, halved = 1.0, 0.0, 0.0
    for size in (2, 5):
        for gap in (-6.0, -2.0, 0.0, 2.0, 6.0):
            one = np.r_[gap, np.zeros(size - 1)]
            other = one + np.r_[1.0, -np.ones(size - 1)]
            for scale in (2 / epsilon, 1 / epsilon):
                laws = exponential_max_law(one, scale), exponential_max_law(other, scale)
                ratio = np.max(np.abs(np.log(laws[0]) - np.log(laws[1])))
                if scale == 2 / epsilon:
                    worst = max(worst, ratio)
                else:
                    halved = max(halved, ratio)
    assert 0.9 * epsilon < worst <= epsilon * (1 + 1e-6)
    assert halved > 1.5 * epsilon


@pytest.mark.parametrize("epsilon", [0.1, 1 / 3, 1.0, 7.7])
def test_opendps_map_confirms_the_epsilon(epsilon):
    assert _measurement(RESOLUTION, epsilon).map(RESOLUTION) <= epsilon
    assert _measurement(RESOLUTION, epsilon).map(RESOLUTION) > epsilon * (1 - 1e-9)


def test_equal_utilities_are_equally_likely_and_one_candidate_works():
    utilities = Utilities.from_scores([[0.5, 0.5]] * 5)
    counts = np.bincount([noisy_max(utilities, 1.0) for _ in range(5000)], minlength=5)
    assert pvalue(counts, np.full(5, 0.2)) > 1e-9
    assert noisy_max(Utilities.from_scores([[0.5, 0.5]]), 1.0) == 0


def test_a_million_candidates():
    utilities = Utilities.from_means(np.random.default_rng(0).random(1_000_000), 1000)
    assert utilities.means[noisy_max(utilities, 10.0)] > 0.99


@pytest.mark.parametrize("epsilon", [0.0, -1.0, math.nan, math.inf])
def test_bad_epsilon(epsilon):
    with pytest.raises(InvalidArgumentError, match="epsilon"):
        noisy_max(Utilities.from_scores([[0.5, 0.5]]), epsilon)
