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
truncated negative binomial family and Poisson have no RDP formula: :func:`why_no_rdp` says why.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from optuna_dp import validation
from optuna_dp.accounting.rdp_curves import (
    at_orders_above_one,
    checked_curve,
    over_order,
    running_minimum,
)
from optuna_dp.arrays import FloatArray
from optuna_dp.private_selection.trial_counts.base import TrialCount
from optuna_dp.private_selection.trial_counts.negative_binomial import NegativeBinomial

if TYPE_CHECKING:
    from optuna_dp.private_selection.bounds.renyi_poisson import Profile


def selection_rdp(
    orders: npt.ArrayLike,
    run_rdp: npt.ArrayLike,
    trials: TrialCount,
    density_bounds: tuple[float, float] = (1.0, 1.0),
    *,
    run_delta: Profile | None = None,
) -> FloatArray:
    """Returns the RDP curve of releasing the best of T runs.

    Truncated negative binomial laws: :func:`negative_binomial_rdp`. Poisson: Theorem 6 of
    arXiv:2110.03620v2 and our own (:mod:`optuna_dp.private_selection.bounds.renyi_poisson`).

    Guarantees:
        * At C = c = 1 the values are those of dp-accounting's ``RepeatAndSelectDpEvent`` wherever
          it takes the parameters, up to the monotonicity below, which it leaves out for Poisson.
        * Non-decreasing in the order (Renyi divergences are, so the running minimum from the
          right is a bound), in the mean of T, in C, in 1/c and in the curve of the run.
        * Capped and binomial laws give ``inf`` everywhere.

    Args:
        orders: Shape (n,), at least 1, ``inf`` allowed (pure DP), in any sequence.
        run_rdp: Shape (n,), the run's curve at these orders, ``inf`` allowed.
        trials: Law of T.
        density_bounds: (c, C) with 0 < c <= 1 <= C.
        run_delta: For Poisson laws, the run's privacy profile (an array of epsilons to an array
            of deltas); what the RDP curve implies is used besides, whichever is smaller.

    Returns:
        Shape (n,).
    """
    a, run = checked_curve(orders, run_rdp)
    c, big_c = validation.density_bounds(density_bounds)
    if isinstance(trials, NegativeBinomial):
        return negative_binomial_rdp(a, run, trials, (c, big_c))
    # Lazy: negative binomial distributions do not need it.
    from optuna_dp.private_selection.bounds.renyi_poisson import poisson_selection_rdp

    return poisson_selection_rdp(a, run, trials, (c, big_c), run_delta)


def why_no_rdp(trials: TrialCount) -> str | None:
    """Returns why no RDP formula covers this law of T, or None if one does."""
    if isinstance(trials, NegativeBinomial):
        return None
    from optuna_dp.private_selection.trial_counts.poisson import Poisson  # as above

    if isinstance(trials, Poisson):
        return None
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


# -- helpers --------------------------------------------------------------------------------------


def selection_term(
    a: FloatArray, run: FloatArray, trials: NegativeBinomial, per_run: float, constant: float
) -> float:
    """(1+eta) min over b of [(1-1/b)(eps(b) + per_run) + constant + log(1/gamma)/b]."""
    # b = 1 needs nothing of the run: 0 * inf is 0 there, by the proof and not by convention.
    weighted = np.where(a > 1.0, (1.0 - 1.0 / a) * np.where(a > 1.0, run + per_run, 0.0), 0.0)
    terms = weighted + constant + trials.log_inverse_gamma / a
    return (1.0 + trials.shape) * float(np.min(terms))
