"""Draws of T follow its law: exact tails, inversion, and what is read of the random source."""

from __future__ import annotations

import math
import random
from fractions import Fraction

import mpmath
import numpy as np
import numpy.typing as npt
import pytest
from scipy import stats
from selection.laws.trial_count_reference import mp_pmf

from optuna_dp import Binomial, Geometric, Logarithmic, NegativeBinomial, Poisson, TrialCount

FloatArray = npt.NDArray[np.float64]


def _boundaries(law: TrialCount, cdf: Fraction, k: int) -> None:
    """The 128-bit uniforms on the two sides of P[T <= k] go to k and k + 1."""
    # u belongs to k when (2u + 1) / 2^129 <= cdf.
    u = (cdf * 2**129 - 1) // 2
    if 0 <= u < 2**128:
        assert law.invert(int(u)) <= k
    if 0 <= u + 1 < 2**128:
        assert law.invert(int(u) + 1) > k


@pytest.mark.parametrize(
    "law",
    [
        Geometric(10),
        Geometric(2),
        Binomial(9, 2),
        Binomial(8, 4),
        NegativeBinomial(shape=2, mean=4),
    ],
    ids=repr,
)
def test_inversion_against_rational_cdfs(law: TrialCount) -> None:
    total = Fraction(0)
    if isinstance(law, Binomial):
        p = Fraction(law.mean) / law.n
        for k in range(law.n):
            total += math.comb(law.n, k) * p**k * (1 - p) ** (law.n - k)
            _boundaries(law, total, k)
        return
    assert isinstance(law, NegativeBinomial)
    g = Fraction(law.gamma)
    for k in range(1, 140):
        weight = math.comb(k + int(law.shape) - 1, k) * (1 - g) ** k
        total += weight / (g ** -int(law.shape) - 1)
        if k < 8 or k in (60, 127, 128, 129, 139):
            _boundaries(law, total, k)


@pytest.mark.slow
@pytest.mark.parametrize(
    "law",
    [
        Logarithmic(10),
        NegativeBinomial(shape=-0.5, mean=5),
        NegativeBinomial(shape=0.7, mean=30),
        Poisson(3),
    ],
    ids=repr,
)
def test_inversion_against_arbitrary_precision_cdfs(law: TrialCount) -> None:
    with mpmath.workprec(400):
        total = mp_pmf(law, 0) if isinstance(law, Poisson) else mpmath.mpf(0)
        for k in range(1, 25):
            total += mp_pmf(law, k)
            sign, man, exponent, _ = total._mpf_
            assert sign == 0
            _boundaries(law, Fraction(int(man)) * Fraction(2) ** int(exponent), k)


@pytest.mark.parametrize(
    "law",
    [
        Poisson(1e4),
        Logarithmic(1e6),
        NegativeBinomial(shape=-0.5, mean=1e6),
        NegativeBinomial(shape=2.5, mean=1e3),
        Binomial(10**6, 1e4),
    ],
    ids=repr,
)
def test_inversion_of_large_laws(law: TrialCount) -> None:
    ctx = mpmath.MPContext()
    ctx.prec = 320
    rng = random.Random(5)
    for u in [0, 2**128 - 1, *(rng.getrandbits(128) for _ in range(5))]:
        k = law.invert(u)
        v = 1 - (ctx.mpf(u) + ctx.mpf(0.5)) / ctx.mpf(2) ** 128
        assert law.exact_tail(ctx, k) <= v
        assert k == 0 or law.exact_tail(ctx, k - 1) > v


def test_exact_tails_agree_with_other_representations() -> None:
    ctx = mpmath.MPContext()
    ctx.prec = 320
    for mean, n in ((1e4, 9900), (1e4, 10500), (3.5, 0), (3.5, 20)):
        other = ctx.gammainc(n + 1, 0, mean, regularized=True)
        assert abs(Poisson(mean).exact_tail(ctx, n) - other) < 2.0**-240
    for mean, n in ((10, 25), (300, 1000)):
        law = NegativeBinomial(shape=0.5, mean=mean)
        z = 1 - ctx.mpf(law.gamma)
        other = ctx.betainc(n + 1, 0.5, 0, z, regularized=True) / (1 - ctx.sqrt(law.gamma))
        assert abs(law.exact_tail(ctx, n) - other) < 2.0**-240
    for k in (3, 8):
        law_b = Binomial(20, 5.5)
        p = ctx.mpf(5.5) / 20
        other = ctx.betainc(k + 1, 20 - k, 0, p, regularized=True)
        assert abs(law_b.exact_tail(ctx, k) - other) < 2.0**-240


def _cells(law: TrialCount) -> list[int]:
    return sorted({law.quantile(float(q)) for q in np.linspace(0.1, 0.9, 9)})


def _cell_masses(law: TrialCount, edges: list[int]) -> FloatArray:
    return np.diff(np.concatenate([[0.0], [law.cdf(edge) for edge in edges], [1.0]]))


def _chi_square_p(sampled: TrialCount, claimed: TrialCount, draws: int, seed: int) -> float:
    bits = random.Random(seed).getrandbits
    sample = np.array([sampled.sample(bits) for _ in range(draws)])
    edges = _cells(claimed)
    counts = np.bincount(np.searchsorted(edges, sample), minlength=len(edges) + 1)
    return float(stats.chisquare(counts, draws * _cell_masses(claimed, edges)).pvalue)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("law", "wrong", "draws"),
    [
        (Geometric(20), Geometric(26), 800),
        (Logarithmic(10), Logarithmic(16), 900),
        (Poisson(12), Poisson(15.6), 150),
        (Binomial(20, 5), Binomial(20, 6.5), 150),
        (NegativeBinomial(shape=2.5, mean=10), NegativeBinomial(shape=2.5, mean=13), 400),
    ],
    ids=repr,
)
def test_draws_follow_the_law_and_no_other(law: TrialCount, wrong: TrialCount, draws: int) -> None:
    level = 1e-4
    edges = _cells(law)
    claimed, actual = _cell_masses(law, edges), _cell_masses(wrong, edges)
    # Power against the wrong law: the statistic is then non-central chi-square.
    shift = draws * float(np.sum((actual - claimed) ** 2 / claimed))
    freedom = claimed.size - 1
    assert stats.ncx2.sf(stats.chi2.isf(level, freedom), freedom, shift) > 0.99
    assert _chi_square_p(law, law, draws, seed=1) > level
    assert _chi_square_p(wrong, law, draws, seed=2) < level


def test_sampling_reads_128_bits_of_the_given_source_and_the_operating_system_by_default(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    import secrets

    asked: list[int] = []

    def source(bits: int) -> int:
        asked.append(bits)
        return 1 << 127

    assert Geometric(20).sample(source) == Geometric(20).quantile(0.5)
    assert asked == [128]
    monkeypatch.setattr(secrets, "randbits", source)
    assert Geometric(20).sample() == Geometric(20).quantile(0.5)
    assert asked == [128, 128]
