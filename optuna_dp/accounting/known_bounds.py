"""Pairs of what is known by a Renyi-DP curve only."""

from __future__ import annotations

from typing import Any

import numpy as np

from optuna_dp.accounting import run_rdp
from optuna_dp.accounting.dominating_pairs import LARGEST_EPSILON, DominatingPair
from optuna_dp.accounting.rdp_curves import rdp_to_delta, rdp_to_epsilon

_PROFILE_POINTS = 4000


def pair_of_curve(event: Any, relation: str) -> DominatingPair:
    """Returns the pair that an event's curve implies: the same bound in both directions."""
    orders = run_rdp.orders_for(event)
    rdp = run_rdp.rdp_of(event, relation, orders)
    if not np.any(np.isfinite(rdp)):
        return DominatingPair.infinite()
    top = min(rdp_to_epsilon(orders, rdp, 1e-16), LARGEST_EPSILON)
    middle = min(rdp_to_epsilon(orders, rdp, 1e-8), top)
    half = _PROFILE_POINTS // 2
    epsilons = np.union1d(np.linspace(0.0, top, half), np.linspace(0.0, middle, half))
    deltas = rdp_to_delta(orders, rdp, epsilons)
    return DominatingPair.from_profile(epsilons, deltas, deltas)
