from __future__ import annotations

import math
import subprocess
import sys
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from scipy import stats

from optuna_dp.errors import InvalidArgumentError
from optuna_dp.utilities import Utilities
from optuna_dp.utilities.above_threshold import above_threshold, first_above
from optuna_dp.utilities.exact_noise import DiscreteLaplace, laplace_for, tail_bits

from .laws import SeededLaplace, above_threshold_law, tail


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


def test_opendp_draws_the_law_on_which_the_proof_rests():
    draws = DiscreteLaplace(4.0).draw(40_000)
    assert laplace_pvalue(draws, 4.0) > 1e-9
    assert laplace_pvalue(draws, 4.0 * 1.3) < 1e-9
    assert laplace_pvalue(draws, 4.0 * 0.7) < 1e-9


def test_large_noise_is_not_cut_at_32_bits():
    assert np.abs(DiscreteLaplace(float(1 << 40)).draw(200)).max() > 1 << 33


@pytest.mark.parametrize("d", [1, 2, 7, 40, 400])
@pytest.mark.parametrize("bits", [64, 128])
def test_tail_bits_are_within_one_of_the_truth(d, bits):
    with mpmath.workprec(600):
        a = mpmath.exp(-1 / mpmath.mpf(3.7))
        truth = a**d / (1 + a) * mpmath.mpf(2) ** bits
        assert abs(tail_bits(3.7, d, bits) - mpmath.floor(truth)) <= 1


def test_a_word_that_agrees_with_the_probability_is_settled_by_more_bits():
    class Scripted(DiscreteLaplace):
        def __init__(self, words):
            self.scale, self.words = 3.7, list(words)

        def uniform_words(self, size):
            return np.array([self.words.pop(0) for _ in range(size)], dtype=np.uint64)

    first, second = divmod(tail_bits(3.7, 5, 128), 1 << 64)
    for offset, below in ((-5, True), (5, False)):
        assert Scripted([first, second + offset]).reaches(5, 1)[0] == below
    assert Scripted([first - 2]).reaches(5, 1)[0]
    assert not Scripted([first + 2]).reaches(5, 1)[0]


@pytest.mark.parametrize(
    "gaps", [[3, 5, 4, 9], [1, 1, 1], [0, 6, 2], [-3, 2], [12, 2, 12, 12, 3]], ids=str
)
@pytest.mark.parametrize(
    "noise", [SeededLaplace(4.0, 0), pytest.param(DiscreteLaplace(4.0), marks=pytest.mark.slow)]
)
def test_first_reaching_has_the_law_of_one_draw_per_entry(gaps, noise):
    p = tail(4.0, np.array(gaps))
    survive = np.concatenate([[1.0], np.cumprod(1 - p)])
    law = [*(survive[:-1] * p), survive[-1]]
    runs = 20_000
    found = [noise.first_reaching(np.array(gaps)) for _ in range(runs)]
    counts = np.bincount([len(gaps) if i is None else i for i in found], minlength=len(law))
    assert pvalue(counts, law) > 1e-9


def test_forgetting_to_restart_at_the_smallest_gap_is_noticed():
    # A sabotage of the memoryless step: the law test above must be able to fail.
    class Sabotaged(SeededLaplace):
        def _non_negative(self, size):
            return super()._non_negative(size) + 1

    gaps = np.array([3, 5, 4, 9])
    p = tail(4.0, gaps)
    survive = np.concatenate([[1.0], np.cumprod(1 - p)])
    noise = Sabotaged(4.0, 0)
    found = [noise.first_reaching(gaps) for _ in range(20_000)]
    counts = np.bincount([4 if i is None else i for i in found], minlength=5)
    assert pvalue(counts, [*(survive[:-1] * p), survive[-1]]) < 1e-9


def test_laplace_for_takes_opendps_own_word_for_the_epsilon():
    for epsilon in (0.1, 0.05, 1 / 3, 1e-3, 7.0):
        noise = laplace_for(1 << 20, epsilon)
        assert noise.measurement.map(1 << 20) <= epsilon
        assert noise.scale == pytest.approx((1 << 20) / epsilon, rel=1e-12)


def exact_epsilon(one, other):
    return float(np.max(np.abs(np.log(one) - np.log(other))))


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
        laws = [above_threshold_law(t, threshold, *scales) for t in (totals, totals + shift)]
        worst = max(worst, exact_epsilon(*laws))
        halves = [
            above_threshold_law(t, threshold, scales[0] / 2, scales[1] / 2)
            for t in (totals, totals + shift)
        ]
        sabotaged = max(sabotaged, exact_epsilon(*halves))
    assert 0.9 * epsilon < worst <= epsilon * (1 + 1e-9)
    assert sabotaged > 1.5 * epsilon


@pytest.mark.parametrize(
    ("totals", "threshold"),
    [([0, 0, 0, 0, 4], 4), ([3, 9, -5], 12), (list(range(40)), 45)],
    ids=["five", "three", "forty, in several chunks"],
)
def test_the_whole_pass_has_its_exact_law(totals, threshold):
    rng = np.random.default_rng(1)
    noise = {
        "threshold_noise": SeededLaplace(8.0, rng),
        "query_noise": SeededLaplace(16.0, rng),
    }
    found = [first_above(np.array(totals), threshold, **noise) for _ in range(15_000)]
    counts = np.bincount(
        [len(totals) if i is None else i for i in found], minlength=len(totals) + 1
    )
    assert pvalue(counts, above_threshold_law(totals, threshold, 8.0, 16.0)) > 1e-9


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


@pytest.mark.parametrize("threshold", [0.0, 0.49, 0.95, 2.0])
def test_a_million_candidates(threshold):
    """The noise, of scale 4e-5 at most, would have to exceed 0.01."""
    means = np.random.default_rng(0).random(1_000_000) * 0.5
    utilities = Utilities.from_means(means, 1000)
    found = above_threshold(utilities, threshold, 100.0)
    assert (found is None) == (threshold > 0.5)


def test_a_million_candidates_in_half_a_gigabyte():
    # In a process of its own: the peak includes Python, numpy and OpenDP.
    code = """
import numpy as np
from optuna_dp.utilities import Utilities
from optuna_dp.utilities.above_threshold import above_threshold
utilities = Utilities.from_means(np.random.default_rng(0).random(1_000_000) * 0.5, 1000)
above_threshold(utilities, 0.95, 1.0)
# Not getrusage: its peak includes that of the process that started this one.
status = open("/proc/self/status").read()
print(status.split("VmHWM:")[1].split()[0])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert int(done.stdout) < 500_000


def test_the_noise_drawn_does_not_grow_with_the_number_of_candidates():
    # One good candidate in each chunk, the rest out of reach: the worst case for the screen.
    drawn = 0

    class Counting(SeededLaplace):
        def draw(self, size):
            nonlocal drawn
            drawn += size
            return super().draw(size)

    rng = np.random.default_rng(0)
    totals = np.full(400_000, -10_000)
    totals[::4096] = 0
    for _ in range(20):
        first_above(
            totals,
            20,
            threshold_noise=Counting(2.0, rng),
            query_noise=Counting(4.0, rng),
        )
    assert drawn / 20 < 3 * 4096
