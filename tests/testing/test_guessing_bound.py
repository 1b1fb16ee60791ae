"""The bound on right guesses: a linear program, exact laws, and mechanisms that conspire."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from scipy.optimize import linprog
from scipy.stats import binom, norm

from optuna_dp.testing.guessing_bound import (
    Lines,
    lines_at,
    lines_of,
    p_value,
    possible,
    refuted_epsilon,
)


def gaussian_delta(mu: float):
    """Balle & Wang 2018, arXiv 1805.06530, Theorem 8."""
    return lambda e: norm.cdf(mu / 2 - e / mu) - math.exp(e) * norm.cdf(-mu / 2 - e / mu)


def by_linear_program(right: int, guesses: int, canaries: int, lines: Lines) -> float:
    """The largest chance of ``right`` or more over all laws that keep the constraints."""
    count = np.arange(guesses + 1)
    rows, limits = [], []
    for least in range(1, guesses + 1):
        hit = np.where(count >= least, count, 0) / canaries
        miss = np.where(count >= least - 1, guesses - count, 0) / canaries
        for intercept, slope in zip(*lines, strict=True):
            rows.append(hit - slope * miss)
            limits.append(intercept)
    goal = -(count >= right).astype(float)
    solved = linprog(goal, rows, limits, [np.ones(guesses + 1)], [1.0], (0, 1), method="highs")
    return -solved.fun


@pytest.mark.parametrize(
    ("canaries", "guesses", "mu"), [(10, 10, 0.5), (15, 12, 1.0), (20, 6, 0.5), (8, 8, 2.0)]
)
def test_it_is_the_optimum_of_the_linear_program(canaries, guesses, mu) -> None:
    lines = lines_of(gaussian_delta(mu))
    for right in range(guesses // 2, guesses + 1):
        exact = by_linear_program(right, guesses, canaries, lines)
        assert exact - 1e-6 <= p_value(right, guesses, canaries, lines) <= exact * 1.001 + 1e-6


def test_perfect_guesses_about_randomised_response_are_its_exact_chance() -> None:
    """For all m right, pure epsilon leaves no slack: the bound is attained."""
    p = math.e / (1 + math.e)
    lines = lines_at(1.0, 0.0)
    for m in (1, 5, 10):
        assert p_value(m, m, m, lines) == pytest.approx(p**m, rel=1e-3)
        for right in range(m + 1):
            assert p_value(right, m, m, lines) >= binom.sf(right - 1, m, p) * (1 - 1e-9)


def all_chances(law, coins: int) -> np.ndarray:
    """P[at least k right] for k = 0...m, of a mechanism given by its law of guesses."""
    chance = np.zeros(coins + 1)
    for secret in itertools.product((0, 1), repeat=coins):
        for guess, mass in law(secret):
            chance[sum(a == b for a, b in zip(secret, guess, strict=True))] += mass / 2**coins
    return chance[::-1].cumsum()[::-1]


def parity_conspiracy(epsilon: float):
    """Canaries that depend on each other as much as pure DP lets them: one bit, about all."""

    def law(secret):
        # Reports the majority by randomised response: changes of one canary move it by at most
        # epsilon; guesses are all ones or all zeros.
        majority = int(sum(secret) * 2 > len(secret))
        keep = math.exp(epsilon) / (1 + math.exp(epsilon))
        yield (majority,) * len(secret), keep
        yield (1 - majority,) * len(secret), 1 - keep

    return law


def reveals_all_at_times(delta: float):
    """(0, delta)-DP: with probability delta everything is shown; else guesses are blind."""

    def law(secret):
        yield tuple(secret), delta
        for guess in itertools.product((0, 1), repeat=len(secret)):
            yield guess, (1 - delta) / 2 ** len(secret)

    return law


@pytest.mark.parametrize(
    ("law", "lines"),
    [
        (parity_conspiracy(1.0), lines_at(1.0, 0.0)),
        (parity_conspiracy(0.3), lines_at(0.3, 0.0)),
        (reveals_all_at_times(0.05), lines_at(0.0, 0.05)),
        (reveals_all_at_times(0.3), lines_at(0.0, 0.3)),
    ],
    ids=["majority 1", "majority 0.3", "all at times 0.05", "all at times 0.3"],
)
def test_mechanisms_that_conspire_are_not_accused(law, lines) -> None:
    chance = all_chances(law, 7)
    for right in range(8):
        assert chance[right] <= p_value(right, 7, 7, lines) * (1 + 1e-9)


def test_a_smaller_bound_would_be_wrong() -> None:
    """The test above has teeth: with half of delta the mechanism that shows all exceeds it."""
    chance = all_chances(reveals_all_at_times(0.3), 7)
    assert any(chance[k] > p_value(k, 7, 7, lines_at(0.0, 0.15)) for k in range(8))


def steinke(right: int, guesses: int, canaries: int, epsilon: float, delta: float) -> float:
    """Theorem 5.2 of arXiv 2305.08846 with its Appendix D: an independent, weaker p-value."""
    q = 1 / (1 + math.exp(-epsilon))
    beta = binom.sf(right - 1, guesses, q)
    i = np.arange(1, right + 1)
    alpha = max(0.0, float(np.max((binom.sf(right - i - 1, guesses, q) - beta) / i)))
    return min(1.0, beta + 2 * canaries * delta * alpha)


def test_beside_steinkes_bound() -> None:
    """Not the same proof: near each other where both are known to be good (pure, large m)."""
    for right, epsilon in ((650, 0.3), (760, 1.0), (900, 1.9)):
        ours = p_value(right, 1000, 1000, lines_at(epsilon, 0.0))
        theirs = steinke(right, 1000, 1000, epsilon, 0.0)
        assert theirs * (1 - 1e-9) <= ours <= 6 * theirs + 1e-9


def test_epsilon_refuted_is_where_the_chance_falls_below_the_error() -> None:
    found = refuted_epsilon(95, 100, 1000, delta=1e-5, error=0.05)
    assert 1.5 < found < math.log(19)
    assert possible(0.05, 95, 100, 1000, lines_at(found + 0.01, 1e-5))
    assert not possible(0.05, 95, 100, 1000, lines_at(found - 0.01, 1e-5))
    assert refuted_epsilon(50, 100, 1000, delta=1e-5, error=0.05) == 0.0


def test_a_claim_that_says_nothing_is_never_refuted() -> None:
    assert p_value(100, 100, 100, lines_of(lambda epsilon: 1.0)) == 1.0
