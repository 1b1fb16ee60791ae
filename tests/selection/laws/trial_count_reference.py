"""Laws of T in arbitrary precision, written without the library's formulas."""

from __future__ import annotations

import mpmath

from optuna_dp import Binomial, NegativeBinomial, Poisson, TrialCount


def mp_pmf(law: TrialCount, k: int) -> mpmath.mpf:
    """The table of laws in arbitrary precision, written without the library's formulas."""
    with mpmath.workprec(400):
        if isinstance(law, NegativeBinomial):
            g, eta = mpmath.mpf(law.gamma), mpmath.mpf(law.shape)
            if eta == 0:
                return (1 - g) ** k / (k * mpmath.log(1 / g))
            product = mpmath.mpf(1)
            for i in range(k):
                product *= (i + eta) / (i + 1)
            return (1 - g) ** k / (g**-eta - 1) * product
        if isinstance(law, Poisson):
            return (
                mpmath.exp(-mpmath.mpf(law.mean)) * mpmath.mpf(law.mean) ** k / mpmath.factorial(k)
            )
        assert isinstance(law, Binomial)
        p = mpmath.mpf(law.mean) / law.n
        return mpmath.binomial(law.n, k) * p**k * (1 - p) ** (law.n - k)
