"""A guarantee in one number: the noisiest Gaussian mechanism that leaks at least as much.

A mechanism is mu-Gaussian-DP (Dong, Roth & Su, arXiv 1905.02383v3) if telling its outputs on
neighbouring data sets apart is no easier than telling N(0, 1) from N(mu, 1). By duality that is
``delta(epsilon) <= delta_mu(epsilon)`` at every epsilon >= 0, in both directions, with
``delta_mu(e) = Phi(mu/2 - e/mu) - exp(e) Phi(-mu/2 - e/mu)``.
"""

from __future__ import annotations

import functools
import json
import math
from collections.abc import Callable

import numpy as np
from dp_accounting import dp_event
from scipy.special import log_ndtr, ndtr

from optuna_dp.accounting import run_profile
from optuna_dp.accounting.dominating_pairs import DominatingPair
from optuna_dp.accounting.epsilon_methods import deltas_of, epsilons_of
from optuna_dp.accounting.event_json import canonical_key, event_from_json
from optuna_dp.core.arrays import FloatArray

POINTS = 240
_BISECTIONS = 60
_LARGEST_MU = 1e3
# More than rounding takes from a delta of a Gaussian.
_ROUNDING = 1e-14


def mu_of(event: dp_event.DpEvent, relation: str, tail: float) -> float:
    """Returns the smallest mu found for an event, in both directions; cached."""
    return _mu(canonical_key(event), relation, tail)


@functools.lru_cache(maxsize=1024)
def _mu(key: str, relation: str, tail: float) -> float:
    event = event_from_json(json.loads(key))
    parts = run_profile.parts_of(event, relation)
    if len(parts) == 1 and isinstance(parts[0].event, dp_event.GaussianDpEvent):
        # A Gaussian mechanism is mu-Gaussian-DP itself, however little noise it has.
        moved = 2.0 if relation == "replace_one" else 1.0
        return moved / float(parts[0].event.noise_multiplier) * (1.0 + _ROUNDING)
    last_epsilon = min(epsilons_of(event, relation, tail).values())
    return smallest_mu(functools.partial(deltas_of, event, relation), last_epsilon, tail)


def smallest_mu(
    delta: Callable[[FloatArray], FloatArray], last_epsilon: float, tail: float
) -> float:
    """Returns a mu whose profile, plus ``tail``, lies above the given one; ``inf`` if none does.

    Args:
        delta: Upper bounds of a profile, the larger of the two directions.
        last_epsilon: An epsilon where it is at most ``tail``; inf if there is none.
        tail: Above 1e-12.

    Guarantees:
        * Rounds toward a larger mu. Between two points of a grid the profile lies below its chord
          in e^epsilon, and that of a Gaussian above its tangent in the middle, both being convex.
    """
    if not math.isfinite(last_epsilon):
        return math.inf
    if last_epsilon == 0.0 and float(delta(np.zeros(1))[0]) <= tail:
        return 0.0
    epsilons = np.linspace(0.0, last_epsilon, POINTS)
    deltas = delta(epsilons)
    # Bounds of selections are loose near epsilon = 0, where the convexity of the truth says more.
    deltas = DominatingPair.from_profile(epsilons, deltas, deltas).delta(epsilons)
    floor = deltas - tail + _ROUNDING

    def covered(mu: float) -> bool:
        middles = (epsilons[1:] + epsilons[:-1]) / 2.0
        height = _delta(mu, middles)
        # The slope in e^epsilon, times e^middle.
        slope = -np.exp(middles + log_ndtr(-mu / 2.0 - middles / mu))
        # Where a step is too long for floats, this is -inf or NaN, and nothing is covered.
        with np.errstate(over="ignore", invalid="ignore"):
            below = height + slope * np.expm1(np.stack([epsilons[:-1], epsilons[1:]]) - middles)
        return bool(np.all(np.stack([floor[:-1], floor[1:]]) <= below))

    low, high = 0.0, 1e-3
    while not covered(high):
        low, high = high, 2.0 * high
        if high > _LARGEST_MU:
            return math.inf
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2.0
        if not low < middle < high or high - low < 1e-9 * high:
            break
        low, high = (low, middle) if covered(middle) else (middle, high)
    return high


def _delta(mu: float, epsilons: FloatArray) -> FloatArray:
    return np.asarray(
        ndtr(mu / 2.0 - epsilons / mu) - np.exp(epsilons + log_ndtr(-mu / 2.0 - epsilons / mu))
    )
