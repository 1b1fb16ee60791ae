"""Tails P[T > n] of the laws of T in arbitrary precision, for exact sampling.

Working precision is 320 bits and every value returned is right to far better than 2^-230, so a
comparison with a 128-bit uniform is decided correctly unless the two agree to 2^-230.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

PRECISION = 320
#: Differences below 2^-TIE_BITS count as equality.
TIE_BITS = 230


def context() -> Any:
    """Returns a private mpmath context, so that no other thread's precision is touched."""
    import mpmath  # start-up time

    ctx = mpmath.MPContext()
    ctx.prec = PRECISION
    return ctx


def negative_binomial_tail(ctx: Any, n: int, shape: float, gamma: float) -> Any:
    """Returns P[T > n] of the truncated negative binomial law with exactly these parameters.

    The incomplete beta integral of ``special.negative_binomial_tail`` as a hypergeometric
    function. At shape 0 that function has a removable singularity which mpmath resolves slowly;
    the law is continuous in its shape, so 2^-280 stands in for 0 (which moves no probability
    by more than 2^-260).
    """
    if n <= 0:
        return ctx.mpf(1)
    g = ctx.mpf(gamma)
    z = 1 - g
    if z == 0:
        return ctx.mpf(0)
    if shape == 1.0:
        return z**n
    eta = ctx.mpf(shape) if abs(shape) > 2.0**-280 else ctx.ldexp(1, -280)
    with ctx.workprec(PRECISION + 2 * n.bit_length()):
        ratio = ctx.gammaprod([n + 1 + eta], [n + 2, 1 + eta])
    norm = eta / -ctx.expm1(eta * ctx.log(g))
    series = ctx.hyp2f1(n + 1 + eta, 1, n + 2, z, maxterms=10**7)
    return ratio * norm * z ** (n + 1) * g**eta * series


def poisson_tail(ctx: Any, n: int, mean: float) -> Any:
    """Returns P[T > n] for a Poisson law, by summing towards the thinner side from n."""
    mu = Fraction(mean)
    if n < 0:
        return ctx.mpf(1)

    def pmf(k: int) -> Any:
        with ctx.workprec(PRECISION + 3 * max(k, int(mu) + 1).bit_length()):
            m = ctx.mpf(mean)
            return ctx.exp(k * ctx.log(m) - m - ctx.loggamma(k + 1))

    def up(k: int) -> tuple[int, int]:
        return mu.numerator, mu.denominator * (k + 1)

    if n + 1 > mu:
        return pmf(n + 1) * _sum(ctx, n + 1, up, step=1)
    return 1 - pmf(n) * _sum(ctx, n, lambda k: up(k - 1)[::-1], step=-1)


def binomial_tail(ctx: Any, k: int, n: int, mean: float) -> Any:
    """Returns P[T > k] for the binomial law of n trials with success probability mean / n."""
    if k < 0:
        return ctx.mpf(1)
    if k >= n:
        return ctx.mpf(0)
    p = Fraction(mean) / n
    if p == 1:
        return ctx.mpf(1)
    odds = p / (1 - p)

    def pmf(j: int) -> Any:
        with ctx.workprec(PRECISION + 3 * n.bit_length()):
            choose = ctx.loggamma(n + 1) - ctx.loggamma(j + 1) - ctx.loggamma(n - j + 1)
            success = ctx.mpf(p.numerator) / p.denominator
            failure = ctx.mpf((1 - p).numerator) / (1 - p).denominator
            return ctx.exp(choose + j * ctx.log(success) + (n - j) * ctx.log(failure))

    def up(j: int) -> tuple[int, int]:
        return (n - j) * odds.numerator, (j + 1) * odds.denominator

    if k + 1 > p * n:
        return pmf(k + 1) * _sum(ctx, k + 1, up, step=1)
    return 1 - pmf(k) * _sum(ctx, k, lambda j: up(j - 1)[::-1], step=-1)


def _sum(ctx: Any, start: int, ratio: Callable[[int], tuple[int, int]], *, step: int) -> Any:
    """Sums 1 + r(start) + r(start) r(start + step) + ... in fixed point; no ratio exceeds 1.

    ``ratio(k)`` is pmf(k + step) / pmf(k) as numerator and denominator; walking down ends at 0.
    """
    term = total = 1 << PRECISION
    k = start
    while term and (step > 0 or k > 0):
        numerator, denominator = ratio(k)
        term = term * numerator // denominator
        total += term
        k += step
    return ctx.ldexp(ctx.mpf(total), -PRECISION)
