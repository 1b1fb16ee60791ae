"""Pairs of runs that are described by what is known of them, or that may be any of several.

An (epsilon, delta), a Renyi-DP curve, an answer at random; the worst of several events.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from dp_accounting import dp_event
from scipy.stats import binom

from optuna_dp.accounting import run_rdp
from optuna_dp.accounting.dominating_pairs import DominatingPair
from optuna_dp.accounting.events import WorstCaseDpEvent
from optuna_dp.accounting.kinds.approximate import randomized_response
from optuna_dp.accounting.rdp_curves import DEFAULT_ORDERS, rdp_to_delta, rdp_to_epsilon

_LARGEST_EPSILON = 600.0
_PROFILE_POINTS = 4000


def pair_of_what_is_known(
    event: Any, relation: str, pair_of: Callable[[Any, str], DominatingPair]
) -> DominatingPair:
    """Returns the pair of one part of a composition that dp-accounting makes no PLD of.

    Args:
        event: Repeated (epsilon, delta)-DP mechanisms, k-ary randomised response, a worst case, or
            a composition of events that have an RDP curve only.
        relation: The neighbouring relation.
        pair_of: Returns the pair of any event.
    """
    if isinstance(event, dp_event.SelfComposedDpEvent):
        return _repeated_response(event.event.epsilon, event.event.delta, event.count)
    if isinstance(event, dp_event.RandomizedResponseDpEvent):
        return _k_ary_response(event.noise_parameter, event.num_buckets)
    if isinstance(event, WorstCaseDpEvent):
        return _pointwise_maximum([pair_of(child, relation) for child in event.events])
    return _pair_of_rdp(event, relation)


def _repeated_response(epsilon: float, delta: float, count: int) -> DominatingPair:
    """The pair of ``count`` adaptive (epsilon, delta)-DP mechanisms, exactly.

    Kairouz, Oh & Viswanath, arXiv 1311.0776v4: randomised response dominates each, so the loss
    is a binomial number of +epsilon less the rest, unless some mechanism showed the data.
    """
    if count == 1 or epsilon == 0.0:
        shown = -math.expm1(count * math.log1p(-delta))
        return randomized_response(epsilon, shown)
    shown = -math.expm1(count * math.log1p(-delta))
    up = np.arange(count + 1)
    losses = (2.0 * up - count) * epsilon
    mass = (1.0 - shown) * binom.pmf(up, count, 1.0 / (1.0 + math.exp(-epsilon)))
    return _without_extremes(losses, mass, mass[::-1], shown)


def _k_ary_response(noise_parameter: float, buckets: int) -> DominatingPair:
    """The pair of k-ary randomised response when the input changes (dp-accounting's event)."""
    if buckets <= 1 or noise_parameter >= 1.0:
        return DominatingPair.identity()
    other = noise_parameter / buckets
    own = 1.0 - noise_parameter + other
    loss = math.log1p((1.0 - noise_parameter) / other)
    rest = max((buckets - 2) * other, 0.0)
    losses, mass = np.array([-loss, 0.0, loss]), np.array([other, rest, own])
    return _without_extremes(losses, mass, mass[::-1], 0.0)


def _without_extremes(losses: Any, mass: Any, prime: Any, shown: float) -> DominatingPair:
    """A pair of these atoms; losses too large for floats count as infinite, which claims less."""
    keep = np.abs(losses) <= _LARGEST_EPSILON
    return DominatingPair(
        losses[keep],
        mass[keep],
        min(shown + float(mass[~keep].sum()), 1.0),
        min(shown + float(prime[~keep].sum()), 1.0),
    )


def _pointwise_maximum(pairs: list[DominatingPair]) -> DominatingPair:
    """The pair whose profile is at least every one of these, in both directions."""
    if any(pair.is_infinite for pair in pairs):
        return DominatingPair.infinite()
    losses = np.unique(np.concatenate([np.abs(pair.losses) for pair in pairs]))
    # A subset of the atoms is as sound (fewer dots to connect) and bounds the size.
    stride = max(1, math.ceil(losses.size / (2 * _PROFILE_POINTS)))
    epsilons = np.union1d([0.0], np.append(losses[::stride], losses[-1:]))
    return DominatingPair.from_profile(
        epsilons,
        np.maximum.reduce([pair.delta(epsilons) for pair in pairs]),
        np.maximum.reduce([pair.reversed().delta(epsilons) for pair in pairs]),
    )


def _pair_of_rdp(event: Any, relation: str) -> DominatingPair:
    """The pair that an RDP curve implies: the same bound in both directions."""
    rdp = run_rdp.rdp_of(event, relation)
    orders = np.array(DEFAULT_ORDERS)
    if not np.any(np.isfinite(rdp)):
        return DominatingPair.infinite()
    top = min(rdp_to_epsilon(orders, rdp, 1e-16), _LARGEST_EPSILON)
    middle = min(rdp_to_epsilon(orders, rdp, 1e-8), top)
    half = _PROFILE_POINTS // 2
    epsilons = np.union1d(np.linspace(0.0, top, half), np.linspace(0.0, middle, half))
    deltas = rdp_to_delta(orders, rdp, epsilons)
    return DominatingPair.from_profile(epsilons, deltas, deltas)
