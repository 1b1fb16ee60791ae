"""Renyi-DP curves of private selection: a secret number T of runs, only the best released.

Notation (docs/explanation/rdp-of-selection.md; Papernot & Steinke, arXiv:2110.03620v2; Wang et
al., DP-HyPO, arXiv:2306.05734v2):

==============  ==================================================================================
here            meaning
==============  ==================================================================================
``a``, ``b``    orders; ``b`` is the one the selection term minimises over
eps(a)          RDP of one run: supremum over hyperparameters and both adjacency directions
eta             ``shape`` of the truncated negative binomial law of T
gamma, m        its stopping parameter and its mean E[T]
mu              mean of a Poisson law
(c, C)          bounds of every run's density relative to the prior, c <= 1 <= C
==============  ==================================================================================

``inf`` means that nothing is known at that order; NaN never appears. Laws other than the
truncated negative binomial family have no RDP formula, except Poisson ones without density bounds:
:func:`why_no_rdp` says why.
"""

from __future__ import annotations

import math

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
from optuna_dp.private_selection.trial_counts.base import TrialCount
from optuna_dp.private_selection.trial_counts.negative_binomial import NegativeBinomial
from optuna_dp.private_selection.trial_counts.poisson import Poisson


def selection_rdp(
    orders: npt.ArrayLike,
    run_rdp: npt.ArrayLike,
    trials: TrialCount,
    density_bounds: tuple[float, float] = (1.0, 1.0),
) -> FloatArray:
    """Returns the RDP curve of releasing the best of T runs.

    Truncated negative binomial laws: :func:`negative_binomial_rdp`. Poisson laws:
    :func:`poisson_rdp`, at C = c = 1.

    Guarantees:
        * At C = c = 1 the values are those of dp-accounting's ``RepeatAndSelectDpEvent`` wherever
          it takes the parameters, and for Poisson laws never above them.
        * Non-decreasing in the order (Renyi divergences are, so the running minimum from the
          right is a bound), in the mean of T, in C, in 1/c and in the curve of the run.
        * Everything else gives ``inf`` everywhere.

    Args:
        orders: Shape (n,), at least 1, ``inf`` allowed (pure DP), in any sequence.
        run_rdp: Shape (n,), the run's curve at these orders, ``inf`` allowed.
        trials: Law of T.
        density_bounds: (c, C) with 0 < c <= 1 <= C.

    Returns:
        Shape (n,).
    """
    a, run = checked_curve(orders, run_rdp)
    bounds = validation.density_bounds(density_bounds)
    if why_no_rdp(trials, bounds) is not None:
        return np.full_like(a, np.inf)
    if isinstance(trials, NegativeBinomial):
        return negative_binomial_rdp(a, run, trials, bounds)
    return poisson_rdp(a, run, trials.mean, _implied_deltas(a, run))


def why_no_rdp(trials: TrialCount, density_bounds: tuple[float, float] = (1.0, 1.0)) -> str | None:
    """Returns why no RDP formula covers this law of T, or None if one does."""
    if isinstance(trials, NegativeBinomial):
        return None
    if isinstance(trials, Poisson):
        if density_bounds == (1.0, 1.0):
            return None
        return "no RDP formula is used for Poisson laws with density bounds: the profiles say more"
    return (
        f"the RDP theorems of selection do not hold for {trials!r}: they need phi' of a truncated "
        "negative binomial or Poisson law, and for capped laws they are false (min(T, 20) for "
        "geometric T of mean 1000 and 1-DP runs leaks 5.9, not 3). The profile bounds cover it."
    )


def negative_binomial_rdp(
    orders: npt.ArrayLike,
    run_rdp: npt.ArrayLike,
    trials: NegativeBinomial,
    density_bounds: tuple[float, float] = (1.0, 1.0),
) -> FloatArray:
    """Returns the RDP curve for a truncated negative binomial T, shape > -1.

    eps(a) + log(C/c) + log(C)/(a-1) + log(m)/(a-1)
    + (1+eta) min over b of [(1-1/b)(eps(b) + log(1/c)) + log(C) + log(1/gamma)/b].

    At C = c = 1 this is Theorem 2 of arXiv:2110.03620v2. For density bounds it is never larger
    than DP-HyPO's Theorem 1; the proof is ours (docs/explanation/rdp-of-selection.md), since the
    printed one takes a step that fails for suprema.
    """
    a, run = checked_curve(orders, run_rdp)
    c, big_c = density_bounds
    term = selection_term(a, run, trials, -math.log(c), math.log(big_c))
    extra = -math.log(c) + math.log(big_c)
    per_order = over_order(a, math.log(trials.mean) + math.log(big_c))
    return running_minimum(a, at_orders_above_one(a, run + extra + per_order + term))


def poisson_rdp(
    orders: npt.ArrayLike, run_rdp: npt.ArrayLike, mean: float, deltas: npt.ArrayLike
) -> FloatArray:
    """Returns log(1 + mu e^((a-1) mu delta_hat) (e^((a-1) eps(a)) - 1)) / (a-1), any mu > 0.

    Own result, with the T = 0 outcome counted (docs/explanation/rdp-of-selection.md, Theorem 2).
    It is never larger than Theorem 6 of arXiv:2110.03620v2, which holds for mu >= 1.

    Args:
        orders: Shape (n,), at least 1.
        run_rdp: The run's curve there, shape (n,).
        mean: mu.
        deltas: delta_hat, the run's delta at e^eps_hat = a/(a-1) for each order, shape (n,).
    """
    a, run = checked_curve(orders, run_rdp)
    mean = validation.positive("mean", mean)
    s = np.where((a > 1.0) & np.isfinite(a), a - 1.0, 1.0)
    exponent = mean * np.asarray(deltas)
    value = np.logaddexp(0.0, math.log(mean) + s * exponent + _log_expm1(s * run)) / s
    at_infinity = np.where(run > 0.0, run + exponent, 0.0)  # the limit a -> inf
    bound = np.where(np.isinf(a), at_infinity, value)
    return running_minimum(a, at_orders_above_one(a, bound))


# -- helpers --------------------------------------------------------------------------------------


def selection_term(
    a: FloatArray, run: FloatArray, trials: NegativeBinomial, per_run: float, constant: float
) -> float:
    """(1+eta) min over b of [(1-1/b)(eps(b) + per_run) + constant + log(1/gamma)/b]."""
    # b = 1 needs nothing of the run: 0 * inf is 0 there, by the proof and not by convention.
    weighted = np.where(a > 1.0, (1.0 - 1.0 / a) * np.where(a > 1.0, run + per_run, 0.0), 0.0)
    terms = weighted + constant + trials.log_inverse_gamma / a
    return (1.0 + trials.shape) * float(np.min(terms))


def _implied_deltas(a: FloatArray, run: FloatArray) -> FloatArray:
    """What a Renyi curve implies for delta at log(a / (a - 1)); 1 stands in at order 1."""
    epsilons = np.where(a > 1.0, -np.log1p(-1.0 / np.maximum(a, 1.0 + 1e-15)), 1.0)
    finite = np.isfinite(a)
    pure = float(np.min(run[~finite], initial=np.inf))
    deltas = np.where(epsilons < pure, 1.0, 0.0)
    if finite.any():
        deltas = np.minimum(deltas, rdp_to_delta(a[finite], run[finite], epsilons))
    return deltas


def _log_expm1(x: FloatArray) -> FloatArray:
    """log(e^x - 1) for x >= 0, -inf at 0."""
    with np.errstate(divide="ignore"):
        small = np.minimum(x, 40.0)
        return np.asarray(np.where(x < 40.0, np.log(np.expm1(small)), x))
