"""Formulas of truncated negative binomial laws of every shape but 1, which is the geometric law.

Everything here is written so that relative errors stay near 1e-13 where the textbook formula
would cancel: gamma close to 0 or 1, shapes close to 0, probabilities far in a tail.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from optuna_dp.core.arrays import FloatArray
from optuna_dp.selection.laws.exact import PRECISION, SMALLEST_GAMMA
from optuna_dp.selection.laws.special import scipy, stirling_error

if TYPE_CHECKING:
    from mpmath import MPContext, mpf

_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(20)


def pmf(k: FloatArray, shape: float, gamma: float) -> FloatArray:
    """Returns P[T = k] for k >= 1 and 0 < gamma < 1."""
    top = -math.log(gamma)
    constant = log_norm(shape, top) - shape * top - math.lgamma(1.0 + shape)
    return np.asarray(np.exp(k * math.log1p(-gamma) + log_gamma_ratio(k, shape) + constant))


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


def log_norm(shape: float, log_inverse_gamma: float) -> float:
    """Returns log(shape / (1 - gamma^shape)); at shape 0 its limit, -log log(1/gamma)."""
    exponent = shape * log_inverse_gamma
    if abs(exponent) < 1e-300:
        return -math.log(log_inverse_gamma)
    return math.log(shape / -math.expm1(-exponent))


def tail(n: int, shape: float, gamma: float) -> float:
    """Returns P[T > n], n >= 1, for 0 < gamma < 1.

    P[T > n] = Gamma(n+1+shape) / (n! Gamma(1+shape)) * shape / (1 - gamma^shape) * I with
    I = integral over v in (gamma, 1) of (1-v)^n v^(shape-1). With v = e^-w the integrand is
    smooth and positive for every shape > -1, so Gauss-Legendre panels give all its digits.
    """
    z = 1.0 - gamma
    top = -math.log(gamma)
    k = float(n) + 1.0
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


def pgf(s: FloatArray, shape: float, gamma: float) -> FloatArray:
    """Returns phi(s) for 0 < gamma < 1."""
    x, top = -_log_stop(s, gamma), -math.log(gamma)
    if abs(shape) * top < 1e-300:
        return np.asarray(x / top)
    if shape < 0.0:
        return np.asarray(np.expm1(shape * x) / math.expm1(shape * top))
    ratio = np.expm1(-shape * x) / math.expm1(-shape * top)
    return np.asarray(np.exp(shape * (x - top)) * ratio)


def _log_stop(s: FloatArray, gamma: float) -> FloatArray:
    """log(1 - z s), from whichever end keeps the digits."""
    z = 1.0 - gamma
    drop = z * s
    far = np.log(gamma + z * (1.0 - s))
    return np.asarray(np.where(drop < 0.5, np.log1p(-np.minimum(drop, 0.5)), far))


def exact_tail(ctx: MPContext, n: int, shape: float, gamma: float) -> mpf:
    """Returns P[T > n], n >= 1, of the law with exactly these parameters, 0 < gamma < 1.

    The incomplete beta integral of :func:`tail` as a hypergeometric function. At shape 0 that
    function has a removable singularity which mpmath resolves slowly; the law is continuous in
    its shape, so 2^-280 stands in for 0 (which moves no probability by more than 2^-260).
    """
    g = ctx.mpf(gamma)
    z = 1 - g
    eta = ctx.mpf(shape) if abs(shape) > 2.0**-280 else ctx.ldexp(1, -280)
    with ctx.workprec(PRECISION + 2 * n.bit_length()):
        ratio = ctx.gammaprod([n + 1 + eta], [n + 2, 1 + eta])
    norm = eta / -ctx.expm1(eta * ctx.log(g))
    series = ctx.hyp2f1(n + 1 + eta, 1, n + 2, z, maxterms=10**7)
    return ratio * norm * z ** (n + 1) * g**eta * series
