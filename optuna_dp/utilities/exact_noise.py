"""Whole-number Laplace noise from OpenDP, and an exact way to need little of it."""

from __future__ import annotations

import functools
import math
import os
from typing import Any

import numpy as np
import numpy.typing as npt

from optuna_dp.arrays import IntArray
from optuna_dp.errors import InvalidArgumentError

# Noise of this scale leaves the range of 64-bit integers with probability exp(-2**17).
_LARGEST_SCALE = float(1 << 44)
_GUARD_BITS = 64


class DiscreteLaplace:
    """The law ``P[X = x] = (1-a)/(1+a) a^|x|`` on whole numbers, ``a = exp(-1/scale)``.

    Draws are OpenDP's (exact sampling after Canonne, Kamath & Steinke, arXiv 2004.00010, from a
    cryptographic source); adding whole numbers to them is exact too.

    Guarantees:
        * No draw is made by floating-point arithmetic, and none comes from a seed.
        * :meth:`first_reaching` has exactly the law of drawing one value per entry and comparing.
    """

    def __init__(self, scale: float) -> None:
        if not 0.0 < scale <= _LARGEST_SCALE:
            raise InvalidArgumentError(
                "noise scale", scale, f"it must be in (0, {_LARGEST_SCALE:g}]", "Raise epsilon."
            )
        self.scale = scale
        self.measurement: Any = _opendp_sampler(scale)

    def draw(self, size: int) -> IntArray:
        """``size`` independent draws."""
        return np.asarray(self.measurement([0] * size), dtype=np.int64)

    def uniform_words(self, size: int) -> npt.NDArray[np.uint64]:
        """``size`` independent uniform 64-bit words from the operating system's entropy."""
        return np.frombuffer(os.urandom(8 * size), dtype=np.uint64)

    def first_reaching(self, gaps: IntArray) -> int | None:
        """The first i with ``X_i >= gaps[i]`` for independent draws X, or None.

        When every gap is at least d >= 1, most draws fall below d and then do not matter, so only
        the event ``X_i >= d`` is decided for them, with its exact probability. Where it happens,
        the law is memoryless, ``X - d`` given ``X >= d`` is that of X given ``X >= 0``, and is
        drawn. See docs/explanation/propose-test.md, "One pass over a million candidates".
        """
        d = int(gaps.min())
        if d <= 0:
            hits = np.flatnonzero(self.draw(len(gaps)) >= gaps)
            return int(hits[0]) if len(hits) else None
        far_out = np.flatnonzero(self.reaches(d, len(gaps)))
        if len(far_out) == 0:
            return None
        hits = far_out[d + self._non_negative(len(far_out)) >= gaps[far_out]]
        return int(hits[0]) if len(hits) else None

    def _non_negative(self, size: int) -> IntArray:
        """``size`` draws of X given ``X >= 0``, by rejection."""
        kept = np.empty(0, dtype=np.int64)
        while len(kept) < size:
            drawn = self.draw(2 * (size - len(kept)) + 4)
            kept = np.concatenate([kept, drawn[drawn >= 0]])
        return kept[:size]

    def reaches(self, d: int, size: int) -> npt.NDArray[np.bool_]:
        """``size`` independent events of probability ``p = P[X >= d]``, for d >= 1.

        A uniform number in [0, 1) is compared with p from its highest bits down. 64 bits settle
        it unless they agree with p's, up to the last place; then more are drawn until they do.
        """
        words = self.uniform_words(size)
        high = tail_bits(self.scale, d, 64)
        below = words < np.uint64(max(high - 1, 0))
        for i in np.flatnonzero((words >= np.uint64(max(high - 1, 0))) & (words <= high + 1)):
            below[i] = self._settle(int(words[i]), d)
        return below

    def _settle(self, word: int, d: int) -> bool:
        bits = 64
        while True:
            word = word << 64 | int(self.uniform_words(1)[0])
            bits += 64
            p = tail_bits(self.scale, d, bits)
            if abs(word - p) > 1:
                return word < p


@functools.lru_cache(maxsize=256)
def laplace_for(sensitivity: int, epsilon: float) -> DiscreteLaplace:
    """Noise that makes a shift by ``sensitivity`` cost at most ``epsilon``, by OpenDP's own map.

    Returns the smallest scale of at least ``sensitivity / epsilon`` for which OpenDP's privacy
    map, which rounds toward a larger epsilon, does not exceed ``epsilon``.
    """
    scale = sensitivity / epsilon
    while (noise := DiscreteLaplace(scale)).measurement.map(sensitivity) > epsilon:
        scale = math.nextafter(scale, math.inf)
    return noise


def _opendp_sampler(scale: float) -> Any:
    import opendp.prelude as dp  # start-up time

    dp.enable_features("contrib")
    # i64, not OpenDP's default of 32 bits: saturation would cut the noise.
    space = dp.vector_domain(dp.atom_domain(T="i64")), dp.l1_distance(T="i64")
    return dp.m.make_laplace(*space, scale=scale)


def tail_bits(scale: float, d: int, bits: int) -> int:
    """``P[X >= d] * 2**bits`` for d >= 1, within one of its floor.

    ``P[X >= d] = a**d / (1 + a)`` with ``a = exp(-1/scale)``; ``scale`` is taken as the exact
    rational number that the float is. Works on mpmath's pure functions: its contexts hold the
    working precision as state that threads would share.
    """
    from mpmath import libmp  # start-up time

    precision = bits + _GUARD_BITS
    minus_one_over_scale = libmp.mpf_div(libmp.from_int(-1), libmp.from_float(scale), precision)
    exponent = libmp.mpf_mul(minus_one_over_scale, libmp.from_int(d), precision)
    a_d = libmp.mpf_exp(exponent, precision)
    a = libmp.mpf_exp(minus_one_over_scale, precision)
    p = libmp.mpf_div(a_d, libmp.mpf_add(libmp.fone, a, precision), precision)
    return int(libmp.to_int(libmp.mpf_shift(p, bits), libmp.round_floor))
