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
