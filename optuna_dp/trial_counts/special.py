"""Floating-point formulas behind the laws of T.

Everything here is written so that relative errors stay near 1e-13 where the textbook formula
would cancel: gamma close to 0 or 1, shapes close to 0, probabilities far in a tail.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from optuna_dp.arrays import FloatArray

#: Smallest gamma (and so the largest log(1/gamma), 690.8) that the formulas are made for.
SMALLEST_GAMMA = 1e-300
#: Smallest mean of laws that include T = 0: below, ratios to it overflow.
SMALLEST_MEAN = 1e-100

_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(20)


def scipy() -> Any:
    """Returns ``scipy.special``, imported when first needed: it is slow, and laws are not."""
    from scipy import special  # start-up time

    return special


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


def log_gamma_ratio(k: FloatArray, shape: float) -> FloatArray:
    """Returns log Gamma(k + shape) - log Gamma(k + 1) for k >= 1 and shape > -1.

    A difference of two log-gammas would lose a digit for each digit of k.
    """
    k = np.asarray(k, dtype=np.float64)
    small = k < 16.0
    low = np.where(small, k, 1.0)
    direct = scipy().gammaln(low + shape) - scipy().gammaln(low + 1.0)
    high = np.where(small, 16.0, k)
    shift = shape - 1.0
    far = (
        shift * np.log(high + 1.0)
        + (high + shape - 0.5) * np.log1p(shift / (high + 1.0))
        - shift
        + stirling_error(high + shape)
        - stirling_error(high + 1.0)
    )
    return np.asarray(np.where(small, direct, far), dtype=np.float64)


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


def log_norm(shape: float, log_inverse_gamma: float) -> float:
    """Returns log(shape / (1 - gamma^shape)); at shape 0 its limit, -log log(1/gamma)."""
    exponent = shape * log_inverse_gamma
    if abs(exponent) < 1e-300:
        return -math.log(log_inverse_gamma)
    return math.log(shape / -math.expm1(-exponent))


def negative_binomial_tail(n: int, shape: float, gamma: float) -> float:
    """Returns P[T > n], n >= 1, of the truncated negative binomial law, 0 < gamma < 1.

    P[T > n] = Gamma(n+1+shape) / (n! Gamma(1+shape)) * shape / (1 - gamma^shape) * I with
    I = integral over v in (gamma, 1) of (1-v)^n v^(shape-1). With v = e^-w the integrand is
    smooth and positive for every shape > -1, so Gauss-Legendre panels give all its digits.
    """
    z = 1.0 - gamma
    top = -math.log(gamma)
    k = float(n) + 1.0
    if shape == 1.0:
        return math.exp(n * math.log1p(-gamma)) if n < 1e300 else 0.0
    if shape > 1.0:
        # I_z(n+1, shape) / (1 - gamma^shape), the regularised incomplete beta function.
        return float(scipy().betaincc(shape, k, gamma)) / -math.expm1(-shape * top)
    prefactor = (
        float(log_gamma_ratio(np.asarray(k), shape))
        + math.log(k)
        - math.lgamma(1.0 + shape)
        + log_norm(shape, top)
    )
    n_float = float(n)
    # Below `bottom` the integrand is under e^-60 of its value at the top end.
    deep = 60.0 + max(shape, 0.0) * top - n_float * math.log1p(-gamma)
    bottom = -math.log(-math.expm1(-deep / n_float)) if deep / n_float > 1e-300 else top
    bottom = min(max(bottom, 0.0), top)
    edges = _panel_edges(bottom, top, n_float * gamma / z)
    half = 0.5 * np.diff(edges)
    w = (edges[:-1] + half)[:, None] + half[:, None] * _NODES
    with np.errstate(divide="ignore"):
        log_one_minus = np.where(w > 0.7, np.log1p(-np.exp(-w)), np.log(-np.expm1(-w)))
    exponent = n_float * log_one_minus - shape * w
    peak = float(exponent.max())
    total = float(np.sum(half[:, None] * _WEIGHTS * np.exp(exponent - peak)))
    return min(1.0, math.exp(prefactor + peak + math.log(total)))


def _panel_edges(bottom: float, top: float, rate: float) -> FloatArray:
    """Returns panel edges that start fine at ``top``, where the integrand may rise at ``rate``."""
    edges = [top]
    width = 1.0 / (2.0 + rate)
    while edges[-1] - width > bottom:
        edges.append(edges[-1] - width)
        width = min(0.5, 1.6 * width)
    edges.append(bottom)
    return np.asarray(edges[::-1], dtype=np.float64)


def solve_gamma(shape: float, mean: float) -> float:
    """Returns the gamma at which the truncated negative binomial law has this mean (> 1).

    Returns 0.0 when that gamma lies below :data:`SMALLEST_GAMMA`.
    """
    if shape == 1.0:
        return 1.0 / mean
    from scipy import optimize  # start-up time

    top = -math.log(SMALLEST_GAMMA)

    def gap(log_inverse_gamma: float) -> float:
        return log_mean(shape, log_inverse_gamma) - math.log(mean)

    if gap(top) < 0.0:
        return 0.0
    # mean - 1 >= (1 + shape) x / 4 for small x = log(1/gamma), so this bracket holds the root.
    bottom = min(1e-17, (mean - 1.0) / (1.0 + shape) * 1e-3)
    root = optimize.brentq(gap, bottom, top, xtol=1e-300, rtol=8.9e-16, maxiter=500)
    return math.exp(-float(root))


def log_mean(shape: float, log_inverse_gamma: float) -> float:
    """Returns log E[T] of the truncated negative binomial law, from log(1/gamma)."""
    x = log_inverse_gamma
    log_odds = x + math.log(-math.expm1(-x))  # log(1/gamma - 1) without overflow
    return log_odds + log_norm(shape, x)


def as_result(values: Any, scalar: bool) -> float | npt.NDArray[np.float64]:
    """Returns a float for a scalar argument and a float64 array otherwise."""
    array = np.asarray(values, dtype=np.float64)
    return float(array) if scalar else array
