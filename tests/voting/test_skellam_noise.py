from __future__ import annotations

import os
import random
from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest
from refusals import refuses
from scipy import stats

from optuna_dp.voting import Skellam, skellam_noise
from voting.reference import poisson

VARIANCES = [Fraction(1, 50), Fraction(1), Fraction(155, 50), Fraction(212), Fraction(10609, 3)]


def seeded(seed: int) -> Callable[[int], bytes]:
    return np.random.default_rng(seed).bytes


def p_value(draws: np.ndarray, variance: float) -> float:
    """Chi-square against the law of Sk(variance), cells of expectation >= 10."""
    from optuna_dp.accounting.skellam import pmf

    x, f = pmf(variance)
    cells: list[list[float]] = [[0.0, 0.0]]
    counts = dict(zip(*np.unique(draws, return_counts=True), strict=True))
    for value, mass in zip(x.tolist(), f, strict=True):
        if cells[-1][1] * len(draws) >= 10.0:
            cells.append([0.0, 0.0])
        cells[-1][0] += counts.get(value, 0)
        cells[-1][1] += mass
    if cells[-1][1] * len(draws) < 10.0 and len(cells) > 1:
        last = cells.pop()
        cells[-1] = [cells[-1][0] + last[0], cells[-1][1] + last[1]]
    observed, expected = np.array(cells).T
    assert observed.sum() == len(draws)
    return float(stats.chisquare(observed, expected / expected.sum() * len(draws)).pvalue)


@pytest.mark.promise("noise")
@pytest.mark.parametrize("variance", VARIANCES)
def test_draws_have_the_law_and_the_test_has_power(variance: Fraction) -> None:
    draws = Skellam(variance, random_bytes=seeded(7)).draw(40_000)
    assert p_value(draws, float(variance)) > 1e-4
    for wrong in (0.7, 1.3):
        assert p_value(draws, float(variance) * wrong) < 1e-9
        other = Skellam(variance * Fraction(wrong), random_bytes=seeded(8)).draw(40_000)
        assert p_value(other, float(variance)) < 1e-9


@pytest.mark.parametrize(("num", "den"), [(1, 3), (7, 2), (41, 4)])
def test_agrees_with_duchon_and_duvignau(num: int, den: int) -> None:
    rng = random.Random(1)
    theirs = np.array([poisson(num, den, rng) for _ in range(20_000)])
    ours = skellam_noise.poisson_draws(Fraction(num, den), 20_000, seeded(2))
    top = int(max(theirs.max(), ours.max()))
    table = np.array([np.bincount(a, minlength=top + 1) for a in (theirs, ours)])
    table = np.hstack(
        [
            table[:, table.sum(axis=0) >= 20],
            table[:, table.sum(axis=0) < 20].sum(axis=1, keepdims=True) + 1,
        ]
    )
    assert stats.chi2_contingency(table).pvalue > 1e-4


@pytest.mark.parametrize("rate", [Fraction(1, 100), Fraction(3, 2), Fraction(106), Fraction(512)])
def test_cumulative_probabilities_are_within_one_of_the_truth(rate: Fraction) -> None:
    import mpmath

    with mpmath.workprec(4000):
        scale = mpmath.mpf(2) ** 64
        values = skellam_noise.cumulative(rate, 64, (1 << 64) - 1)
        term = total = mpmath.exp(-mpmath.mpf(rate.numerator) / rate.denominator)
        for k, value in enumerate(values):
            assert 0 <= total * scale - value < 1
            term *= mpmath.mpf(rate.numerator) / rate.denominator / (k + 1)
            total += term


def test_a_word_on_the_border_is_settled_by_more_bits() -> None:
    rate = Fraction(3, 2)
    border = skellam_noise.cumulative(rate, 64, (1 << 64) - 2)[2]  # between 2 and 3
    truth = skellam_noise.cumulative(rate, 128, border + 2 << 64)[2]
    rest = truth - (border << 64)  # the next 64 bits of F(2)
    for low, expected in ((rest - 2, 2), (rest + 2, 3)):
        words = iter([border.to_bytes(8, "little"), low.to_bytes(8, "big")])
        drawn = skellam_noise.poisson_draws(rate, 1, lambda size, w=words: next(w))
        assert drawn.tolist() == [expected]


def test_the_highest_words_reach_beyond_the_table() -> None:
    top = b"\xff" * 8
    words = iter([top, top, b"\x00" * 8])
    drawn = skellam_noise.poisson_draws(Fraction(1), 1, lambda size: next(words))
    assert drawn[0] > len(skellam_noise.table_of(Fraction(1)))


def test_entropy_is_the_operating_systems(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[int] = []
    real = os.urandom
    monkeypatch.setattr(os, "urandom", lambda n: (read.append(n), real(n))[1])
    np.random.seed(0)
    first = Skellam(4).draw(64)
    np.random.seed(0)
    assert (first != Skellam(4).draw(64)).any()
    assert sum(read) >= 4 * 64 * 8


def test_shares_add_up() -> None:
    shares = [Skellam(Fraction(3, 10), random_bytes=seeded(i)).draw(20_000) for i in range(10)]
    assert p_value(np.sum(shares, axis=0), 3.0) > 1e-4


@pytest.mark.parametrize("variance", [0, -1.0, float("nan"), float("inf"), 2.0**41, "a"])
def test_bad_variances_are_refused(variance: object) -> None:
    with refuses("variance"):
        Skellam(variance)  # type: ignore[arg-type]
