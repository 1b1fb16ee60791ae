"""What a guarantee says of attacks: the best test of whether a record is in the data.

A test is wrong in a share p of the cases where the record is absent (false positives), and right
in a share t of those where it is present (true positives). Each (epsilon, delta) of a guarantee
allows two lines only (Kairouz, Oh & Viswanath, arXiv 1311.0776v4, Theorem 2.1)::

    t <= e^epsilon p + delta,    1 - p <= e^epsilon (1 - t) + delta.

So the smallest of all of them bounds t, and any finite set of them does. On the line t = 1 - p
they cross, which bounds the advantage max (t - p) by
``(e^epsilon - 1 + 2 delta) / (e^epsilon + 1)``. The words are those of Kulynych et al., arXiv
2407.02191v2 (the package riskcal).
"""

from __future__ import annotations

import functools
import json

import numpy as np
from dp_accounting import dp_event

from optuna_dp.accounting.epsilon_methods import deltas_of, epsilons_of
from optuna_dp.accounting.event_json import canonical_key, event_from_json
from optuna_dp.core.arrays import FloatArray

_POINTS = 120
# Smaller deltas change no share that anybody shows.
_LAST_DELTA = 1e-9
_LARGEST_EPSILON = 500.0
_ROUNDING = 1e-12


def true_positive_rates(
    event: dp_event.DpEvent, relation: str, false_positive_rates: FloatArray
) -> FloatArray:
    """Returns the largest shares of true positives that any test can have.

    Args:
        event: What is released.
        relation: The neighbouring relation.
        false_positive_rates: In [0, 1], shape (n,).

    Returns:
        In [0, 1], shape (n,), rounded up.
    """
    ratios, deltas = _profile(canonical_key(event), relation)
    p = np.asarray(false_positive_rates, dtype=np.float64)[:, None]
    above = ratios * p + deltas
    mirrored = 1.0 - (1.0 - p - deltas) / ratios
    rates = np.minimum(above, mirrored).min(axis=1, initial=1.0) + _ROUNDING
    return np.asarray(np.clip(rates, p[:, 0], 1.0))


def advantage(event: dp_event.DpEvent, relation: str) -> float:
    """Returns the largest difference of true and false positives of any test, in [0, 1]."""
    ratios, deltas = _profile(canonical_key(event), relation)
    crossing = (ratios - 1.0 + 2.0 * deltas) / (ratios + 1.0)
    return min(1.0, float(crossing.min(initial=1.0)) + _ROUNDING)


@functools.lru_cache(maxsize=64)
def _profile(key: str, relation: str) -> tuple[FloatArray, FloatArray]:
    """Returns e^epsilon and delta at points of an event's profile, both shape (n,)."""
    event = event_from_json(json.loads(key))
    # Up to where delta falls no more, as of an (epsilon, delta)-DP mechanism.
    smallest = float(deltas_of(event, relation, np.array([_LARGEST_EPSILON]))[0])
    tail = max(_LAST_DELTA, smallest * (1.0 + 1e-9))
    if tail >= 1.0:
        return np.ones(1), np.ones(1)
    last = min(*epsilons_of(event, relation, tail).values(), _LARGEST_EPSILON)
    epsilons = np.linspace(0.0, last, _POINTS)
    deltas = np.minimum(deltas_of(event, relation, epsilons), 1.0)
    return np.exp(epsilons), deltas
