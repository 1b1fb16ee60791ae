"""Tails of the Poisson and binomial laws in arbitrary precision, as sums of probabilities."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

from optuna_dp.private_selection.trial_counts.exact import PRECISION


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
