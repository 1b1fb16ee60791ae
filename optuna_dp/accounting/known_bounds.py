"""Pairs of what is known by a Renyi-DP curve only, and of answers at random."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from dp_accounting import dp_event

from optuna_dp.accounting import run_rdp
from optuna_dp.accounting.dominating_pairs import LARGEST_EPSILON, DominatingPair
from optuna_dp.accounting.kinds.approximate import without_extremes
from optuna_dp.accounting.rdp_curves import rdp_to_delta, rdp_to_epsilon

_PROFILE_POINTS = 4000


def pair_of_what_is_known(event: Any, relation: str) -> DominatingPair:
    """Returns the pair of one part of a composition that dp-accounting makes no PLD of.

    Args:
        event: k-ary randomised response, of which dp-accounting counts repeated ones once, or a
            composition of events that have a curve only.
        relation: The neighbouring relation.
    """
    if isinstance(event, dp_event.RandomizedResponseDpEvent):
        return _k_ary_response(event.noise_parameter, event.num_buckets)
    return _pair_of_rdp(event, relation)


def _k_ary_response(noise_parameter: float, buckets: int) -> DominatingPair:
    """The pair when the input changes, exactly: the answer is the input, the other or a third."""
    third_mass = noise_parameter / buckets
    true_mass = 1.0 - noise_parameter + third_mass
    loss = math.log1p((1.0 - noise_parameter) / third_mass)
    mass = np.array([third_mass, max((buckets - 2) * third_mass, 0.0), true_mass])
    return without_extremes(np.array([-loss, 0.0, loss]), mass, mass[::-1], 0.0)


def _pair_of_rdp(event: Any, relation: str) -> DominatingPair:
    """The pair that a curve implies: the same bound in both directions."""
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
