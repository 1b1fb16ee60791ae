"""At which epsilons a privacy loss distribution is read. Any points are sound."""

from __future__ import annotations

import math

import numpy as np

from optuna_dp.accounting.dominating_pairs import LARGEST_EPSILON
from optuna_dp.core.arrays import FloatArray

# Points per direction: half of them evenly up to where the profile ends, half evenly over the
# part above _CENTRAL_DELTA, where the answers are.
POINTS = 8000
_CENTRAL_DELTA = 1e-10


def reading_points(profiles: list[tuple[FloatArray, FloatArray]], level: float) -> FloatArray:
    """Returns the epsilons at which a profile is read, ascending from 0 on.

    Any points are sound, since what lies between is rounded up; these are where the answers are.

    Args:
        profiles: For each direction its losses, ascending from 0, and the deltas there.
        level: Beyond where the profile stays within this of its limit, nothing is read.
    """
    top = max(_first(losses, deltas, deltas[-1] + level) for losses, deltas in profiles)
    top = min(top, LARGEST_EPSILON)
    middle = min(top, max(_first(losses, deltas, _CENTRAL_DELTA) for losses, deltas in profiles))
    epsilons = np.union1d(
        np.linspace(0.0, top, POINTS // 2), np.linspace(0.0, middle, POINTS // 2)
    )
    # Two points closer than rounding would only make noise; the last one ends the profile.
    is_kept = np.diff(epsilons, append=math.inf) > 1e-3 * top / POINTS
    is_kept[0] = True
    return np.asarray(epsilons[is_kept])


def _first(losses: FloatArray, deltas: FloatArray, level: float) -> float:
    """Returns the first epsilon with at most this delta; the last one if there is none."""
    indices = np.flatnonzero(deltas <= level)
    return float(losses[indices[0] if indices.size else -1])
