"""Renyi divergences from privacy profiles: an integral of hockey sticks, rounded up.

For P, Q with hockey sticks d(e) of (P, Q) and r(e) of (Q, P) at e^e, and an order a > 1 (Sason &
Verdu, arXiv 1508.00335; a proof is in ``docs/explanation/rdp-of-selection.md``)::

    exp((a-1) D_a(P || Q)) = 1 + a (a-1) [ int e^((a-1) e) d(e) de + int e^(-a e) r(e) de ]

Both integrals begin at 0. Their weights are positive, so upper bounds of the two profiles give an
upper bound.
"""

from __future__ import annotations

import math

import numpy as np

from optuna_dp.accounting.dominating_pairs import DominatingPair
from optuna_dp.accounting.rdp_curves import running_minimum
from optuna_dp.core.arrays import FloatArray

# A profile is flat beyond its last point, which is still of use at low orders.
_BEYOND, _LARGEST_EPSILON = 200, 500.0
# A profile of 0 may be rounding; a logarithm needs a number.
_TINY = 1e-300
# Sums of some hundred terms, and profiles that were computed in doubles.
_SLACK = 1e-12


def pair_rdp(
    orders: FloatArray, pair: DominatingPair, pure: float, known: FloatArray
) -> FloatArray:
    """Returns upper bounds of the Renyi divergences of what a pair dominates, in both directions.

    Guarantees:
        * Never below the divergence of any P, Q that the pair dominates, whose divergences are
          at most ``known`` and which are ``pure``-DP.
        * Never above ``known``, and non-decreasing in the order if that is.

    Args:
        orders: Shape (n,), above 1, ascending.
        pair: Its mass of infinite loss may be rounding: ``known`` bounds what is beyond.
        pure: A pure epsilon, or ``inf``.
        known: Shape (n,): other bounds at these orders.
    """
    bends = np.unique(np.abs(pair.losses[np.isfinite(pair.losses)]))
    epsilons = np.append(0.0, bends[(bends > 0.0) & (bends < min(pure, _LARGEST_EPSILON))])
    if pure > _LARGEST_EPSILON:
        beyond = np.geomspace(max(epsilons[-1], 1e-9), 2.0 * _LARGEST_EPSILON, _BEYOND)
        epsilons = np.append(epsilons, beyond[1:])
    elif pure > 0.0:
        epsilons = np.append(epsilons, pure)
    else:
        return np.minimum(known, 0.0)
    forward, reverse = (
        np.where(epsilons < pure, np.clip(p.delta(epsilons) * (1.0 + _SLACK), _TINY, 1.0), 0.0)
        for p in (pair, pair.reversed())
    )
    beyond = _beyond(orders, epsilons, known)
    both = [
        _divergence(orders, epsilons, d, r, beyond)
        for d, r in ((forward, reverse), (reverse, forward))
    ]
    return np.minimum(known, running_minimum(orders, np.maximum(*both)))


def _beyond(orders: FloatArray, epsilons: FloatArray, known: FloatArray) -> FloatArray:
    """Returns logarithms of bounds of the first integral beyond each epsilon.

    An order b with divergence D bounds the profile by c e^((b-1) (D - e)), where
    c = (1 - 1/b)^(b-1) / b (Canonne, Kamath & Steinke, arXiv 2004.00010v4, Proposition 12). For
    b > a the integral of that beyond e is c e^((b-1) D + (a-b) e) / (b-a).
    """
    b = orders
    with np.errstate(over="ignore", invalid="ignore"):
        log_c = (b - 1.0) * np.log1p(-1.0 / b) - np.log(b)
        heights = (log_c + (b - 1.0) * known)[:, None] - b[:, None] * epsilons
    result = np.full((orders.size, epsilons.size), np.inf)
    for i, a in enumerate(orders[:-1]):
        later = heights[i + 1 :] - np.log(b[i + 1 :] - a)[:, None]
        result[i] = np.min(later, axis=0) + a * epsilons
    return result


def _divergence(
    orders: FloatArray,
    epsilons: FloatArray,
    forward: FloatArray,
    reverse: FloatArray,
    beyond: FloatArray,
) -> FloatArray:
    """Returns the bound in one direction, at each order by itself.

    A hockey stick is convex in t = e^epsilon. So in a cell it is below the chord in t between
    upper bounds at its ends, ``u - s e^x`` at a distance x from its lower end, with s >= 0.
    """
    width = np.diff(epsilons)
    a = orders[:, None]
    # The integral of e^((a-1) e) d(e) up to each point, in logarithms and from each upper end.
    s = np.maximum(forward[:-1] - forward[1:], 0.0) / np.expm1(width)
    up = (forward[:-1] + s) * _mass(a - 1.0, width) - s * np.exp(width) * _mass(a, width, -1.0)
    with np.errstate(divide="ignore"):
        cells = (a - 1.0) * epsilons[1:] + np.log(np.maximum(up, 0.0))
    until = np.logaddexp.accumulate(cells, axis=1)
    # Any point may be the last: what is beyond is bounded from there. Nothing is beyond pure.
    first = np.min(np.logaddexp(until, beyond[:, 1:]), axis=1)
    first = np.minimum(first, until[:, -1]) if forward[-1] == 0.0 else first
    # The integral of e^(-a e) r(e), from each lower end.
    s = np.maximum(reverse[:-1] - reverse[1:], 0.0) / np.expm1(width)
    down = (reverse[:-1] + s) * _mass(a, width) - s * _mass(a - 1.0, width, -1.0)
    second = (np.exp(-a * epsilons[:-1]) * np.maximum(down, 0.0)).sum(axis=1)
    second += reverse[-1] * np.exp(-orders * epsilons[-1]) / orders
    with np.errstate(divide="ignore"):
        log_sum = np.logaddexp(first, np.log(second)) + math.log1p(_SLACK)
    log_sum += np.log(orders) + np.log(orders - 1.0)
    return np.asarray(np.logaddexp(0.0, log_sum) / (orders - 1.0) * (1.0 + _SLACK))


def _mass(k: FloatArray, width: FloatArray, side: float = 1.0) -> FloatArray:
    """Returns the integral of e^(-k x) from 0 to the width, rounded up, or down for side -1."""
    return np.asarray(-np.expm1(-k * width) / k * (1.0 + side * 1e-14))
