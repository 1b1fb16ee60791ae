"""At which epsilons a privacy loss distribution is read. Any points are sound."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from optuna_dp.accounting.dominating_pairs import LARGEST_EPSILON
from optuna_dp.arrays import FloatArray

Atoms = Callable[[Any], "tuple[FloatArray, FloatArray, float] | None"]

# Points per direction: half of them evenly up to where the profile ends, half evenly over the
# part above _CENTRAL_DELTA, where the answers are.
POINTS = 8000
_CENTRAL_DELTA = 1e-10


def reading_points(forward: Any, reverse: Any, level: float, atoms_of: Atoms) -> FloatArray:
    """Returns the epsilons at which a profile is read, ascending from 0 on.

    Any points are sound, since what lies between is rounded up; these are where the answers are.

    Args:
        forward: dp-accounting's loss distribution of one direction.
        reverse: That of the other.
        level: Beyond where the profile stays within this of its limit, nothing is read.
        atoms_of: Returns the losses, their mass and the infinite mass of a dense distribution.
    """
    top = max(_end_of_profile(side, level, atoms_of) for side in (forward, reverse))
    middle = min(top, max(_epsilon(side, _CENTRAL_DELTA, atoms_of) for side in (forward, reverse)))
    epsilons = np.union1d(
        np.linspace(0.0, top, POINTS // 2), np.linspace(0.0, middle, POINTS // 2)
    )
    # Two points closer than rounding would only make noise; the last one ends the profile.
    keep = np.diff(epsilons, append=math.inf) > 1e-3 * top / POINTS
    keep[0] = True
    return np.asarray(epsilons[keep])


def _end_of_profile(side: Any, level: float, atoms_of: Atoms) -> float:
    """Returns an epsilon >= 0 beyond which delta stays within ``level`` of its limit."""
    limit = float(side.get_delta_for_epsilon([math.inf])[0])
    return min(_epsilon(side, min(limit + level, 1.0), atoms_of), LARGEST_EPSILON)


def _epsilon(side: Any, delta: float, atoms_of: Atoms) -> float:
    """Returns ``side.get_epsilon_for_delta(delta)``, without its walk down the grid in Python."""
    atoms = atoms_of(side)
    if atoms is None:
        return float(side.get_epsilon_for_delta(delta))
    losses, probs, infinite = atoms
    if infinite > delta:
        return math.inf
    upper = np.cumsum(np.concatenate([[infinite], probs[::-1]]))
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        lower = np.cumsum(np.concatenate([[0.0], probs[::-1] * np.exp(-losses[::-1])]))
        # Where the loss is so large that nothing of the other side is left, nothing is taken off.
        less = np.where(lower[:-1] > 0.0, np.exp(losses[::-1]) * lower[:-1], 0.0)
        # The first atom from above at which the profile exceeds delta.
        high = upper[:-1] - less >= delta
    taken = int(np.argmax(high[1:])) + 1 if high[1:].any() else losses.size
    if upper[taken] <= lower[taken] + delta:
        return 0.0
    return math.log((upper[taken] - delta) / lower[taken]) if lower[taken] > 0.0 else math.inf
