"""Floating-point formulas behind more than one law of T, the geometric one aside.

Everything here is written so that relative errors stay near 1e-13 where the textbook formula
would cancel: means close to a value, probabilities far in a tail.
"""

from __future__ import annotations

import math
from types import ModuleType

import numpy as np

from optuna_dp.core.arrays import FloatArray

#: Smallest mean of laws that include T = 0: below, ratios to it overflow.
SMALLEST_MEAN = 1e-100


def scipy() -> ModuleType:
    """Returns ``scipy.special``, imported when first needed: it is slow, and laws are not."""
    from scipy import special  # start-up time

    functions: ModuleType = special
    return functions


def stirling_error(x: FloatArray) -> FloatArray:
    """Returns log Gamma(x) - [(x - 1/2) log x - x + log(2 pi)/2] for x >= 1."""
    x = np.asarray(x, dtype=np.float64)
    big = np.maximum(x, 16.0)
    inverse = 1.0 / (big * big)
    series = (
        1 / 12
        - inverse * (1 / 360 - inverse * (1 / 1260 - inverse * (1 / 1680 - inverse * (1 / 1188))))
    ) / big
    small = np.minimum(x, 16.0)
    direct = scipy().gammaln(small) - (
        (small - 0.5) * np.log(small) - small + 0.5 * math.log(2 * math.pi)
    )
    return np.asarray(np.where(x >= 16.0, series, direct), dtype=np.float64)


def deviance(x: FloatArray, mean: float | FloatArray) -> FloatArray:
    """Returns x log(x / mean) + mean - x (Loader's bd0) without cancellation, for x > 0."""
    x = np.asarray(x, dtype=np.float64)
    ratio = (x - mean) / mean
    # (1 + r) log1p(r) - r; near r = 0 by its series, whose first term is r^2 / 2.
    near = np.abs(ratio) < 0.05
    r = np.where(near, ratio, 0.0)
    series = np.zeros_like(r)
    for j in range(16, 1, -1):
        series = series * -r + 1.0 / (j * (j - 1))
    far = np.where(near, 1.0, ratio)
    exact = (1.0 + far) * np.log1p(far) - far
    return np.asarray(mean * np.where(near, series * r * r, exact), dtype=np.float64)
