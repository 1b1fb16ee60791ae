from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from refusals import refuses
from scipy import integrate

import optuna_dp as odp
from optuna_dp.mechanisms import NoisyMaxPlan, Utilities, noisy_max
from optuna_dp.mechanisms.report_noisy_max import better_noise, measurement
from optuna_dp.mechanisms.utility_values import RESOLUTION

from .test_sparse_vector import pvalue


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


@pytest.mark.promise("noise")
@pytest.mark.slow
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
    found = measurement(RESOLUTION, NoisyMaxPlan(epsilon)).map(RESOLUTION)
    assert epsilon * (1 - 1e-9) < found <= epsilon
    found = measurement(RESOLUTION, NoisyMaxPlan(epsilon, "gumbel")).map(RESOLUTION)
    assert epsilon**2 / 8 * (1 - 1e-9) < found <= epsilon**2 / 8


@pytest.mark.slow
def test_with_gumbel_noise_the_choice_has_the_law_of_the_exponential_mechanism():
    k, epsilon = 10, 1.0
    means = np.array([0.2, 0.5, 0.65, 0.6])
    utilities = Utilities.from_scores(means[:, None] * np.ones(k))

    def law(scale):
        weights = np.exp(means / scale)
        return weights / weights.sum()

    counts = np.bincount([noisy_max(utilities, epsilon, "gumbel") for _ in range(8_000)])
    assert pvalue(counts, law(2 / (k * epsilon))) > 1e-9
    # Neither half the scale, nor exponential noise.
    assert pvalue(counts, law(1 / (k * epsilon))) < 1e-9
    assert pvalue(counts, exponential_max_law(means, 2 / (k * epsilon))) < 1e-9


def test_only_gumbel_noise_has_bounded_range():
    """The losses of permute-and-flip differ by 1.6 times epsilon on these neighbours."""
    epsilon = 0.5
    one, other = np.array([0.0, 0.0]), np.array([1.0, -1.0])

    def spread(one, other):
        losses = np.log(one / other)
        return losses.max() - losses.min()

    gumbel = [np.exp(epsilon * u / 2) / np.exp(epsilon * u / 2).sum() for u in (one, other)]
    assert spread(*gumbel) <= epsilon * (1 + 1e-12)
    flips = [permute_and_flip_law(np.exp(epsilon * (u - u.max()) / 2)) for u in (one, other)]
    assert spread(*flips) > 1.6 * epsilon


def permute_and_flip_law(accepted):
    """Candidates in random order, each accepted with its probability; the best one always is."""
    law = np.zeros(accepted.size)
    orders = list(itertools.permutations(range(accepted.size)))
    for order in orders:
        left = 1.0
        for i in order:
            law[i] += left * accepted[i] / len(orders)
            left *= 1.0 - accepted[i]
    return law


@pytest.mark.slow
def test_the_noise_is_that_which_makes_choice_and_training_cheaper():
    assert better_noise(0.5, odp.gaussian(4.0)) == "gumbel"
    # Beside such a training the choice hardly matters.
    assert better_noise(0.001, odp.gaussian(0.5)) == "exponential"


@pytest.mark.slow
def test_equal_utilities_are_equally_likely_and_one_candidate_works():
    utilities = Utilities.from_scores([[0.5, 0.5]] * 5)
    counts = np.bincount([noisy_max(utilities, 1.0) for _ in range(5000)], minlength=5)
    assert pvalue(counts, np.full(5, 0.2)) > 1e-9
    assert noisy_max(Utilities.from_scores([[0.5, 0.5]]), 1.0) == 0


@pytest.mark.parametrize("epsilon", [0.0, -1.0, math.nan, math.inf])
def test_bad_epsilon(epsilon):
    with refuses("epsilon"):
        noisy_max(Utilities.from_scores([[0.5, 0.5]]), epsilon)
