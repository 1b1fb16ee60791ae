"""Theorem 1 of DP-HyPO (Wang et al. 2023, arXiv 2306.05734v2) as printed, for comparison."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from optuna_dp.accounting.rdp_curves import (
    at_orders_above_one,
    checked_curve,
    over_order,
    running_minimum,
)
from optuna_dp.arrays import FloatArray
from optuna_dp.private_selection.bounds.renyi import selection_term
from optuna_dp.private_selection.trial_counts.base import TrialCount
from optuna_dp.private_selection.trial_counts.negative_binomial import NegativeBinomial


def theorem1_as_printed(
    orders: npt.ArrayLike,
    run_rdp: npt.ArrayLike,
    trials: TrialCount,
    density_bounds: tuple[float, float],
) -> FloatArray:
    """Returns DP-HyPO's Theorem 1 (arXiv:2306.05734v2) as printed, for comparison.

    eps(a) + (a/(a-1) + 1 + eta) log(C/c) + log(m)/(a-1)
    + (1+eta) min over b of [(1-1/b) eps(b) + log(1/gamma)/b].

    The statement is true (it follows from :func:`negative_binomial_rdp`), its printed proof is
    not. ``inf`` for laws outside the truncated negative binomial family.
    """
    a, run = checked_curve(orders, run_rdp)
    c, big_c = density_bounds
    if not isinstance(trials, NegativeBinomial):
        return np.full_like(a, np.inf)
    log_ratio = math.log(big_c) - math.log(c)
    term = selection_term(a, run, trials, 0.0, 0.0) + (2.0 + trials.shape) * log_ratio
    per_order = over_order(a, math.log(trials.mean) + log_ratio)
    return running_minimum(a, at_orders_above_one(a, run + per_order + term))
