"""Renyi-DP curves of private selection for Poisson laws of T.

Notation and proofs: :mod:`optuna_dp.private_selection.bounds.renyi`,
``docs/explanation/rdp-of-selection.md``.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from optuna_dp import validation
from optuna_dp.accounting.rdp_curves import (
    at_orders_above_one,
    checked_curve,
    over_order,
    rdp_to_delta,
    running_minimum,
)
from optuna_dp.arrays import FloatArray
from optuna_dp.errors import InvalidArgumentError
from optuna_dp.private_selection.trial_counts.base import TrialCount
from optuna_dp.private_selection.trial_counts.poisson import Poisson

#: epsilons >= 0 -> upper bounds of the run's delta(epsilon), valid in both directions.
Profile = Callable[[FloatArray], npt.ArrayLike]


def poisson_selection_rdp(
    a: FloatArray,
    run: FloatArray,
    trials: TrialCount,
    density_bounds: tuple[float, float],
    run_delta: Profile | None,
) -> FloatArray:
    """Returns the RDP curve for a Poisson law of T; ``inf`` for every other law.

    Args:
        a: Orders, at least 1, shape (n,).
        run: The run's curve there, shape (n,).
        trials: Law of T.
        density_bounds: (c, C) with 0 < c <= 1 <= C.
        run_delta: The run's privacy profile, used besides what its curve implies.
    """
    if not isinstance(trials, Poisson):
        return np.full_like(a, np.inf)
    delta = _combined_profile(a, run, run_delta)
    if density_bounds[1] > 1.0:
        bound = adaptive_poisson_rdp(a, run, trials.mean, delta, density_bounds)
    elif trials.mean >= 1.0:
        bound = poisson_rdp(a, run, trials.mean, delta)
    else:
        bound = poisson_rdp_any_mean(a, run, trials.mean, delta)
    return running_minimum(a, bound)


def poisson_rdp(
    orders: npt.ArrayLike, run_rdp: npt.ArrayLike, mean: float, run_delta: Profile
) -> FloatArray:
    """Returns Theorem 6 of arXiv:2110.03620v2: eps(a) + mu delta_hat + log(mu)/(a-1), mu >= 1.

    delta_hat is the run's delta at e^eps_hat = a/(a-1). Below mu = 1 the formula is false (it
    turns negative), so such means are refused; use :func:`poisson_rdp_any_mean`.
    """
    a, run = checked_curve(orders, run_rdp)
    if not mean >= 1.0:
        raise InvalidArgumentError(
            "mean", mean, "Theorem 6 holds for means of at least 1", "Use poisson_rdp_any_mean."
        )
    exponent = mean * _deltas(run_delta, _log_t(a))
    return at_orders_above_one(a, run + exponent + over_order(a, math.log(mean)))


def poisson_rdp_any_mean(
    orders: npt.ArrayLike, run_rdp: npt.ArrayLike, mean: float, run_delta: Profile
) -> FloatArray:
    """Returns log(1 + mu e^((a-1) mu delta_hat) (e^((a-1) eps(a)) - 1)) / (a-1), any mu > 0.

    Own result, with the T = 0 outcome counted (docs/explanation/rdp-of-selection.md). It is never
    larger than Theorem 6 where that holds, nor than
    log(e^-mu + mu e^((a-1)(eps(a) + mu delta_hat))) / (a-1).
    """
    a, run = checked_curve(orders, run_rdp)
    mean = validation.positive("mean", mean)
    s = np.where((a > 1.0) & np.isfinite(a), a - 1.0, 1.0)
    exponent = mean * _deltas(run_delta, _log_t(a))
    value = np.logaddexp(0.0, math.log(mean) + s * exponent + _log_expm1(s * run)) / s
    at_infinity = np.where(run > 0.0, run + exponent, 0.0)  # the limit a -> inf
    return at_orders_above_one(a, np.where(np.isinf(a), at_infinity, value))


def adaptive_poisson_rdp(
    orders: npt.ArrayLike,
    run_rdp: npt.ArrayLike,
    mean: float,
    run_delta: Profile,
    density_bounds: tuple[float, float],
) -> FloatArray:
    """Returns the RDP curve for Poisson T and densities in [c, C], data-dependent ones included.

    log(e^-mu + C (C/c)^(a-1) mu e^((a-1)(eps(a) + mu kappa))) / (a-1), where kappa bounds
    hi(p') - t lo(p), t = a/(a-1), by the smallest of C H(tc/C), 1-c + c H(t),
    t(C-1) + C H(t) and 1-c + t(C-1) + c H(tC/c); H(r) = sup over events of P'(E) - r P(E).
    Own result (docs/explanation/rdp-of-selection.md).
    """
    a, run = checked_curve(orders, run_rdp)
    c, big_c = density_bounds
    mean = validation.positive("mean", mean)
    kappa = _kappa(_log_t(a), c, big_c, run_delta)
    log_ratio = math.log(big_c) - math.log(c)
    s = np.where((a > 1.0) & np.isfinite(a), a - 1.0, 1.0)
    ceiling = run + mean * kappa + log_ratio
    value = np.logaddexp(-mean, math.log(mean) + math.log(big_c) + s * ceiling) / s
    return at_orders_above_one(a, np.where(np.isinf(a), ceiling, value))


def _log_expm1(x: FloatArray) -> FloatArray:
    """log(e^x - 1) for x >= 0, -inf at 0."""
    with np.errstate(divide="ignore"):
        small = np.minimum(x, 40.0)
        return np.asarray(np.where(x < 40.0, np.log(np.expm1(small)), x))


def _combined_profile(a: FloatArray, run: FloatArray, run_delta: Profile | None) -> Profile:
    finite = np.isfinite(a)
    pure = float(np.min(run[~finite], initial=np.inf))

    def delta(epsilons: FloatArray) -> FloatArray:
        known = np.where(epsilons < pure, 1.0, 0.0)
        if finite.any():
            known = np.minimum(known, rdp_to_delta(a[finite], run[finite], epsilons))
        if run_delta is not None:
            known = np.minimum(known, _deltas(run_delta, epsilons))
        return known

    return delta


def _deltas(run_delta: Profile, epsilons: FloatArray) -> FloatArray:
    deltas = np.asarray(run_delta(epsilons), dtype=np.float64)
    if deltas.shape != epsilons.shape or not bool(np.all(deltas >= 0.0)):
        raise InvalidArgumentError(
            "run_delta", run_delta, "it must return a delta >= 0 for each epsilon, and no NaN"
        )
    return np.minimum(deltas, 1.0)


def _log_t(a: FloatArray) -> FloatArray:
    """log(a / (a - 1)), the largest eps_hat of Theorem 6; 1 stands in at order 1, never used."""
    return np.asarray(np.where(a > 1.0, -np.log1p(-1.0 / np.maximum(a, 1.0 + 1e-15)), 1.0))


def _kappa(log_t: FloatArray, c: float, big_c: float, run_delta: Profile) -> FloatArray:
    """Upper bounds of the supremum over p of hi(p') - t lo(p), one for each t."""
    t = np.exp(log_t)

    def hockey_stick(log_r: FloatArray) -> FloatArray:
        # sup of P'(E) - r P(E); for r < 1, P' - rP = (1-r) P' + r (P' - P).
        r = np.exp(np.minimum(log_r, 0.0))
        return 1.0 - r + r * _deltas(run_delta, np.maximum(log_r, 0.0))

    log_ratio = math.log(big_c) - math.log(c)
    at_t = hockey_stick(log_t)
    low_cut = t * (big_c - 1.0)
    bounds = [
        big_c * hockey_stick(log_t - log_ratio),
        1.0 - c + c * at_t,
        low_cut + big_c * at_t,
        1.0 - c + low_cut + c * hockey_stick(log_t + log_ratio),
    ]
    return np.asarray(np.minimum.reduce(bounds), dtype=np.float64)
