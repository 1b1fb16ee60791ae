from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

from optuna_dp.errors import InvalidArgumentError
from optuna_dp.mechanisms import Utilities
from optuna_dp.mechanisms import sparse_vector as mechanism
from optuna_dp.mechanisms.sparse_vector import DiscreteLaplace, above_threshold, laplace_for
from optuna_dp.mechanisms.utility_values import RESOLUTION

from .laws import SeededLaplace, above_threshold_law


def pvalue(counts, law):
    """Chi-square p-value; the smallest cells are pooled until every cell expects 25 or more.

    With that many the tail of the statistic can be trusted down to 1e-9, the level at which laws
    of noise from the operating system's entropy are tested here.
    """
    counts, expected = np.asarray(counts, float), np.asarray(law) * np.sum(counts)
    order = np.argsort(expected)
    ordered = expected[order]
    pooled = max(np.searchsorted(ordered, 25.0), np.searchsorted(np.cumsum(ordered), 25.0) + 1)
    observed, expected = (
        np.r_[c[order][:pooled].sum(), c[order][pooled:]] for c in (counts, expected)
    )
    return stats.chisquare(observed, expected * observed.sum() / expected.sum()).pvalue


def laplace_pvalue(draws, scale):
    a = math.exp(-1 / scale)
    x = np.arange(-60, 61)
    law = (1 - a) / (1 + a) * a ** np.abs(x)
    counts = [np.sum(draws == i) for i in x]
    return pvalue([*counts, len(draws) - sum(counts)], [*law, 1 - law.sum()])


@pytest.mark.slow
def test_opendp_draws_the_law_on_which_the_proof_rests():
    draws = DiscreteLaplace(4.0).draw(40_000)
    assert laplace_pvalue(draws, 4.0) > 1e-9
    assert laplace_pvalue(draws, 4.0 * 1.3) < 1e-9
    assert laplace_pvalue(draws, 4.0 * 0.7) < 1e-9


def test_large_noise_is_not_cut_at_32_bits():
    assert np.abs(DiscreteLaplace(float(1 << 40)).draw(200)).max() > 1 << 33


def test_laplace_for_takes_opendps_own_word_for_the_epsilon():
    for epsilon in (0.1, 0.05, 1 / 3, 1e-3, 7.0):
        noise = laplace_for(1 << 20, epsilon)
        assert noise.measurement.map(1 << 20) <= epsilon
        assert noise.scale == pytest.approx((1 << 20) / epsilon, rel=1e-12)


def exact_epsilon(one, other):
    return float(np.max(np.abs(np.log(one) - np.log(other))))


@pytest.mark.slow
def test_one_iteration_is_epsilon_dp_exactly_and_half_the_noise_is_not():
    rng = np.random.default_rng(0)
    sensitivity, epsilon = 4, 1.0
    scales = 2 * sensitivity / epsilon, 4 * sensitivity / epsilon
    worst, sabotaged = 0.0, 0.0
    for _ in range(200):
        size = int(rng.integers(1, 30))
        totals = rng.integers(-20, 21, size)
        if rng.random() < 0.5:  # the worst neighbours: all down but the last, which goes up
            shift = np.r_[np.full(size - 1, -sensitivity), sensitivity]
        else:
            shift = rng.integers(-sensitivity, sensitivity + 1, size)
        threshold = int(rng.integers(-10, 60))
        laws = [
            above_threshold_law(t, threshold, *scales, reach=500) for t in (totals, totals + shift)
        ]
        worst = max(worst, exact_epsilon(*laws))
        halves = [
            above_threshold_law(t, threshold, scales[0] / 2, scales[1] / 2, reach=500)
            for t in (totals, totals + shift)
        ]
        sabotaged = max(sabotaged, exact_epsilon(*halves))
    assert 0.9 * epsilon < worst <= epsilon * (1 + 1e-9)
    assert sabotaged > 1.5 * epsilon


@pytest.mark.slow
@pytest.mark.parametrize(
    ("totals", "threshold"),
    [([3, 9, -5], 12), (list(range(0, 200, 2)), 120)],
    ids=["three", "a hundred, in two chunks"],
)
def test_the_whole_pass_has_its_exact_law(totals, threshold, monkeypatch):
    rng, sensitivity, unit = np.random.default_rng(1), 4, 2 * RESOLUTION

    def seeded(shift, epsilon):
        return SeededLaplace(shift / epsilon, rng)

    monkeypatch.setattr(mechanism, "laplace_for", seeded)
    utilities = Utilities(np.array(totals), 2, sensitivity)
    found = [above_threshold(utilities, Fraction(threshold, unit), 1.0) for _ in range(15_000)]
    counts = np.bincount(
        [len(totals) if i is None else i for i in found], minlength=len(totals) + 1
    )
    assert pvalue(counts, above_threshold_law(totals, threshold, 8.0, 16.0)) > 1e-9
    assert pvalue(counts, above_threshold_law(totals, threshold, 8.0, 12.0)) < 1e-9


@pytest.mark.slow
def test_the_scales_are_those_of_the_papers():
    k, epsilon = 50, 0.4
    utilities = Utilities.from_scores(np.full((1, k), 0.5))
    hits = sum(above_threshold(utilities, 0.55, epsilon) == 0 for _ in range(4000))
    one, two = 2 / (k * epsilon), 4 / (k * epsilon)
    # P[Lap(two) - Lap(one) >= x] in closed form
    x = 0.05
    p = (two**2 * math.exp(-x / two) - one**2 * math.exp(-x / one)) / (2 * (two**2 - one**2))
    assert stats.binomtest(hits, 4000, p).pvalue > 1e-9
    assert stats.binomtest(hits, 4000, p * 1.3).pvalue < 1e-9


def test_the_threshold_may_be_far_away():
    utilities = Utilities.from_scores([[0.5, 0.5], [1.0, 1.0]])
    assert above_threshold(utilities, Fraction(10) ** 400, 1.0) is None
    assert above_threshold(utilities, 0.7, 1e3) == 1


@pytest.mark.parametrize("epsilon", [0.0, -1.0, math.nan, math.inf, "1", 1e-12])
def test_bad_epsilon(epsilon):
    with pytest.raises(InvalidArgumentError):
        above_threshold(Utilities.from_scores([[0.5, 0.5]]), 0.5, epsilon)
