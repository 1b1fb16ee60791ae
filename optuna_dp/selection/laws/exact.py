"""Tails P[T > n] of the laws of T in arbitrary precision, for exact sampling.

Working precision is 320 bits and every value returned is right to far better than 2^-230, so a
comparison with a 128-bit uniform is decided correctly unless the two agree to 2^-230.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mpmath import MPContext, mpf

PRECISION = 320
#: Smallest gamma (and so the largest log(1/gamma), 690.8) that the formulas are made for.
SMALLEST_GAMMA = 1e-300
#: Differences below 2^-TIE_BITS count as equality.
TIE_BITS = 230


def context() -> MPContext:
    """Returns a private mpmath context, so that no other thread's precision is touched."""
    import mpmath  # start-up time

    ctx = mpmath.MPContext()
    ctx.prec = PRECISION
    return ctx


def tail_by_sums(
    ctx: MPContext,
    n: int,
    mean: Fraction,
    pmf: Callable[[int], mpf],
    ratio: Callable[[int], tuple[int, int]],
) -> mpf:
    """Returns P[T > n], n >= 0, of a law whose probabilities rise up to the mean and fall beyond.

    They are summed from n on, away from the mean.

    Args:
        ctx: The mpmath context.
        n: At least 0.
        mean: E[T].
        pmf: P[T = k] as a number of the context.
        ratio: P[T = k + 1] / P[T = k], numerator and denominator.
    """
    if n + 1 > mean:
        return pmf(n + 1) * _sum(ctx, n + 1, ratio, step=1)
    return 1 - pmf(n) * _sum(ctx, n, lambda k: ratio(k - 1)[::-1], step=-1)


def _sum(ctx: MPContext, start: int, ratio: Callable[[int], tuple[int, int]], *, step: int) -> mpf:
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
