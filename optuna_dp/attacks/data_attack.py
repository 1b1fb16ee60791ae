"""Attacks by policies that see the data, and the search for their mechanisms."""

from __future__ import annotations

import math

import numpy as np

from optuna_dp.accounting.dominating_pairs import DominatingPair
from optuna_dp.attacks.history_attack import policy_vertices
from optuna_dp.attacks.policy_search import Found, rows, shown_epsilon, truncated
from optuna_dp.core.arrays import FloatArray
from optuna_dp.selection.laws.base import TrialCount

_LONG = np.longdouble


def data_attack(
    pair: DominatingPair,
    pmf: FloatArray,
    vertices: FloatArray,
    tops: FloatArray,
    events: FloatArray,
) -> tuple[FloatArray, FloatArray]:
    """Returns (max A(E) on D, min A'(E) on D') of the runs T <= len(pmf).

    Args:
        pair: Attainable pair of one run, one direction.
        pmf: P[T = 1..N].
        vertices: Extreme points of the policy set, shape (V, L).
        tops: beta, one mechanism per row, shape (M, L).
        events: theta, shape (M, L).
    """
    low, low_prime = trade_off_vertices(pair)
    high = np.concatenate([[0.0], pair.infinite_mass + np.cumsum(pair.mass[::-1])])
    high_prime = np.concatenate([[0.0], np.cumsum(pair.mass_prime[::-1])])
    if pair.infinite_mass > 0.0:
        high = np.insert(high, 1, pair.infinite_mass)
        high_prime = np.insert(high_prime, 1, 0.0)
    events = np.minimum(events, 1.0 - tops)
    # An empty block leaves out the O-null outputs too: the adversary may rank them anywhere.
    block = np.where(tops > 0.0, np.interp(tops, low, low_prime), 0.0)
    between_mass = np.minimum(np.interp(events, high, high_prime), 1.0 - block)
    result = []
    for top, event, extremum in ((tops, events, np.max), (block, between_mass, np.min)):
        stay, complement = 1.0 - top, np.maximum(1.0 - top - event, 0.0)
        factor = extremum(stay @ vertices.T, axis=1)
        after_event = np.zeros(tops.shape[0])
        before_event = np.zeros(tops.shape[0])
        for p in pmf[::-1]:
            after_event = p + factor * after_event
            values = event * after_event[:, None] + complement * before_event[:, None]
            before_event = extremum(values @ vertices.T, axis=1)
        result.append(before_event)
    return result[0], result[1]


def trade_off_vertices(pair: DominatingPair) -> tuple[FloatArray, FloatArray]:
    """Returns all vertices (p, G(p)) of the trade-off curve, p ascending from 0 to 1.

    G(p) = sup{ O'(E) : O(E) <= p }, events randomised as needed. The Neyman-Pearson lemma takes
    atoms by ascending loss, so G is piecewise linear with its vertices at the cumulated masses:
    interpolating between *these* vertices is exact, not a chord below a concave function.
    """
    p = np.concatenate(([0.0], np.cumsum(pair.mass, dtype=_LONG), [1.0]))
    g = np.concatenate(([0.0], np.cumsum(pair.mass_prime, dtype=_LONG), [0.0]))
    g = np.minimum(g + _LONG(pair.null_mass), 1.0)
    g[-1] = 1.0
    if pair.infinite_mass == 0.0:
        g[-2] = 1.0  # nothing is left but rounding
    p = np.maximum.accumulate(np.minimum(p, 1.0))
    return p.astype(np.float64), g.astype(np.float64)


def search_data(
    pair: DominatingPair, trials: TrialCount, c: float, big_c: float, delta: float
) -> Found | None:
    """Returns the best attack found by a seeded evolution over (beta, theta), if there is one."""
    pmf, tail = truncated(trials, delta, math.log(big_c / c) * 2.0 + 5.0)
    w = (1.0 - c) / (big_c - c)
    small, remainder = (w, 1.0 - 2.0 * w) if w < 0.5 else (1.0 - w, 2.0 * w - 1.0)
    # One lambda for the event, one for the block, each small enough to have density C (or, if
    # that is more than half of the space, the complements of sets that are), and the others.
    prior = (small, small, remainder) if remainder > 1e-9 else (0.5, 0.5)
    vertices = policy_vertices(prior, c, big_c)
    size = len(prior)
    # A few mechanisms at a time for laws with long tails.
    population = int(np.clip(60_000 / pmf.size, 24, 400))
    keep = population // 4
    rng = np.random.default_rng(0)  # a search, not a source of privacy: fixed, to be reproducible
    tops = np.exp(rng.uniform(math.log(1e-4), 0.0, (population, size)))
    tops[rng.random(tops.shape) < 0.4] = 0.0
    events = np.exp(rng.uniform(math.log(0.1 * delta), 0.0, (population, size)))
    events[rng.random(events.shape) < 0.3] = 0.0
    best: Found | None = None
    for generation in range(40):
        on, off = data_attack(pair, pmf, vertices, tops, events)
        score = np.array([shown_epsilon(a, b + tail, delta) for a, b in zip(on, off, strict=True)])
        order = np.argsort(-score)[:keep]
        i = int(order[0])
        if math.isfinite(score[i]) and (best is None or score[i] > best[0]):
            best = (float(score[i]), prior, rows(tops[i, :, None]), rows(events[i, :, None]))
        # The best stay, unchanged; the others are their offspring, ever closer to them.
        parents = order[rng.integers(0, keep, population - keep)]
        width = 1.5 * 0.9**generation
        offspring = []
        for values in (tops, events):
            child = values[parents] * np.exp(rng.normal(0.0, width, (parents.size, size)))
            fresh = rng.random(child.shape) < 0.05
            child[fresh] = np.exp(rng.uniform(math.log(delta), 0.0, int(fresh.sum())))
            child[rng.random(child.shape) < 0.05] = 0.0
            offspring.append(np.concatenate([values[order], np.minimum(child, 1.0)]))
        tops, events = offspring
    return best
