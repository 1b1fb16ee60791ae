"""Tails P[T > n] of the laws of T in arbitrary precision, for exact sampling.

Working precision is 320 bits and every value returned is right to far better than 2^-230, so a
comparison with a 128-bit uniform is decided correctly unless the two agree to 2^-230.
"""

from __future__ import annotations

from typing import Any

PRECISION = 320
#: Smallest gamma (and so the largest log(1/gamma), 690.8) that the formulas are made for.
SMALLEST_GAMMA = 1e-300
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

    The incomplete beta integral of ``other_shapes.tail`` as a hypergeometric
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
