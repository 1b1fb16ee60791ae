"""Whole-number Laplace noise from OpenDP."""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np

from optuna_dp.arrays import IntArray
from optuna_dp.errors import InvalidArgumentError

# Noise of this scale leaves the range of 64-bit integers with probability exp(-2**17).
_LARGEST_SCALE = float(1 << 44)


class DiscreteLaplace:
    """The law ``P[X = x] = (1-a)/(1+a) a^|x|`` on whole numbers, ``a = exp(-1/scale)``.

    Draws are OpenDP's (exact sampling after Canonne, Kamath & Steinke, arXiv 2004.00010, from a
    cryptographic source); adding whole numbers to them is exact too.

    Guarantees:
        * No draw is made by floating-point arithmetic, and none comes from a seed.
    """

    def __init__(self, scale: float) -> None:
        import opendp.prelude as dp  # start-up time

        if not 0.0 < scale <= _LARGEST_SCALE:
            raise InvalidArgumentError(
                "noise scale", scale, f"it must be in (0, {_LARGEST_SCALE:g}]", "Raise epsilon."
            )
        dp.enable_features("contrib")
        # i64, not OpenDP's default of 32 bits: saturation would cut the noise.
        space = dp.vector_domain(dp.atom_domain(T="i64")), dp.l1_distance(T="i64")
        self.scale = scale
        self.measurement: Any = dp.m.make_laplace(*space, scale=scale)

    def draw(self, size: int) -> IntArray:
        """``size`` independent draws."""
        return np.asarray(self.measurement([0] * size), dtype=np.int64)


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
