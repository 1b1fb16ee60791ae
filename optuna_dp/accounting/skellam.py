"""Skellam noise on whole numbers: its exact privacy loss and the published RDP bound.

Sk(v) is the difference of two independent Poisson variables of rate v/2: symmetric, of variance v,
with P[X = x] = e^-v I_x(v), I the modified Bessel function. Sums of independent Skellams are
Skellam, which is why clients can add shares of it.

====================  ==========================================================================
``variance``          v of the noise of one entry of the sum
``changes``           how many entries neighbours change, by one each: Delta_1 = Delta_2^2
====================  ==========================================================================
"""

from __future__ import annotations

import functools
import math

import numpy as np
import numpy.typing as npt
from dp_accounting.pld import privacy_loss_distribution
from scipy.special import ive

from optuna_dp.accounting import plds
from optuna_dp.accounting.dominating_pairs import DominatingPair
from optuna_dp.accounting.rdp_curves import interpolated_rdp
from optuna_dp.core import validation
from optuna_dp.core.arrays import FloatArray
from optuna_dp.errors import InvalidArgumentError

# Beyond, one entry's law has millions of atoms; epsilon is 1e-4 and less there.
LARGEST_VARIANCE = 1e9
# Atoms of less mass go to the tail, which counts as infinite loss.
_SMALLEST_MASS = 1e-24
# What rounding of the masses may have lost, as infinite loss (a test compares with mpmath).
_ROUNDING = 1e-14
# Grid step over the standard deviation of the loss in all.
_STEP_OF_TOTAL = 1.0 / 400.0


def pmf(variance: float) -> tuple[npt.NDArray[np.int64], FloatArray]:
    """Returns (x, P[X = x]) for all x whose mass is a normal float.

    ``scipy.special.ive``, exponentially scaled, for the positive half; the law is symmetric.
    """
    v = _checked(variance)
    reach = math.ceil(40.0 * math.sqrt(v) + 60.0)
    x = np.arange(reach + 1)
    upper_half = np.asarray(ive(x.astype(np.float64), v), dtype=np.float64)
    upper_half = upper_half[: int(np.argmax(upper_half < 1e-290)) or reach + 1]
    values = np.concatenate([upper_half[:0:-1], upper_half])
    return np.arange(values.size) - (upper_half.size - 1), values


def _checked(variance: float) -> float:
    v = validation.positive("variance", variance)
    if v > LARGEST_VARIANCE:
        raise InvalidArgumentError(
            "variance",
            variance,
            allowed=f"it must be at most {LARGEST_VARIANCE:g}",
            fix="Raise epsilon.",
        )
    return v


@functools.lru_cache(maxsize=32)
def shift_pair(variance: float) -> DominatingPair:
    """Returns the pair of X and X + 1 for X of Sk(``variance``): one changed entry.

    Exact up to 1e-14 of mass, which counts as infinite loss. Both directions are the same, by the
    symmetry of X: reflect and shift.
    """
    _, f = pmf(variance)
    # Atoms x in the middle; O(x) = f(x), O'(x) = f(x - 1). Losses fall with x (f is log-concave).
    atoms = np.flatnonzero(np.minimum(f[1:], f[:-1]) >= _SMALLEST_MASS) + 1
    mass, mass_prime = f[atoms], f[atoms - 1]
    losses = np.log(mass) - np.log(mass_prime)
    infinite_mass = float(f.sum()) - float(mass.sum())
    infinite_mass_prime = float(f.sum()) - float(mass_prime.sum())
    order = np.argsort(losses, kind="stable")
    losses, mass = losses[order], mass[order]
    # The middle atoms of a wide law have losses a rounding apart: join what is not ascending.
    is_ascending = np.concatenate([[True], np.diff(losses) > 0.0])
    if not is_ascending.all():
        mass = np.add.reduceat(mass, np.flatnonzero(is_ascending))
        losses = losses[is_ascending]
    return DominatingPair(
        losses,
        mass,
        max(infinite_mass, 0.0) + _ROUNDING,
        max(infinite_mass_prime, 0.0) + _ROUNDING,
    )


def vote_pld(variance: float, changes: int) -> privacy_loss_distribution.PrivacyLossDistribution:
    """Returns dp-accounting's PLD of ``changes`` changed entries, on a fine grid."""
    # At tiny variances losses are few and far between, whatever their standard deviation.
    interval = min(_STEP_OF_TOTAL * math.sqrt(max(changes, 1) / _checked(variance)), 0.05)
    # Both directions are the same: one of them is composed.
    pmf_of_votes = plds.pmf_of_pair(shift_pair(variance), interval)
    return privacy_loss_distribution.PrivacyLossDistribution(pmf_of_votes).self_compose(changes)


def vote_epsilon(variance: float, changes: int, delta: float) -> float:
    """Returns an epsilon at which ``changes`` changed entries are (epsilon, delta)-private.

    Rounded up: the grid and the FFT's noise only add to it.
    """
    target = validation.open_unit("delta", delta)
    if changes == 0:
        return 0.0
    slack = plds.fft_slack(changes)
    if target <= slack:
        return math.inf
    return float(vote_pld(variance, changes).get_epsilon_for_delta(target - slack))


def rdp_bound(variance: float, changes: int, orders: npt.ArrayLike) -> FloatArray:
    """Returns the RDP bound of the multi-dimensional Skellam mechanism.

    Agarwal, Kairouz & Liu, arXiv 2110.04995v1, Theorem 3.5, with Delta_1 = Delta_2^2 = changes
    and integer sensitivities:
    a Delta_2^2 / (2v) + min{((2a - 1) Delta_2^2 + 6 Delta_1) / (4 v^2), 3 Delta_1 / (2v)}. It is
    for whole orders a; between them the curve is joined as RDP allows, and it exceeds the exact
    divergence a little: the profile is the tight account, this a cross-check of it.

    Args:
        variance: Of the noise of one entry, v.
        changes: How many entries change by one.
        orders: Shape (n,), above 1.
    """
    v = _checked(variance)
    a = np.asarray(orders, dtype=np.float64)
    whole_orders = np.unique(np.concatenate([[2.0], np.floor(a), np.ceil(a)]))
    whole_orders = whole_orders[whole_orders >= 2.0]
    excess = np.minimum(((2.0 * whole_orders - 1.0) + 6.0) / (4.0 * v * v), 3.0 / (2.0 * v))
    return interpolated_rdp(whole_orders, changes * (whole_orders / (2.0 * v) + excess), a)
