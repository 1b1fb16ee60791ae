"""A selection as one part of a composition: its own dominating pair."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from optuna_dp.accounting.bounds import ProfileMethod, smallest_epsilon
from optuna_dp.accounting.dominating_pairs import DominatingPair
from optuna_dp.core.arrays import FloatArray

_SELECTION_POINTS = 1500
# Beyond the epsilon with this delta a selection's pair counts the rest as infinite loss, which
# only adds this much to delta.
_SELECTION_TAIL = 1e-14


def pair_of_selection(
    bounds: Iterable[ProfileMethod], points: int = _SELECTION_POINTS
) -> DominatingPair:
    """Returns a pair that dominates the selection's released output.

    At each epsilon of a grid the smallest of the bounds is taken, in each direction;
    :meth:`DominatingPair.from_profile` rounds up between the points.

    Args:
        bounds: The profile bounds that hold for it.
        points: How many epsilons the bounds are read at; any number is sound.
    """
    profiles = list(zip(*(bound.directions for bound in bounds), strict=True))

    def smallest(direction: int, epsilons: npt.ArrayLike) -> FloatArray:
        return np.asarray(np.minimum.reduce([p.delta(epsilons) for p in profiles[direction]]))

    far = float(np.max([smallest(direction, [500.0])[0] for direction in (0, 1)]))

    def reach_of(direction: int) -> float:
        return smallest_epsilon(lambda eps: smallest(direction, [eps])[0], far + _SELECTION_TAIL)

    reach = max(reach_of(0), reach_of(1))
    # Dense where the loss is small, where most of the mass is.
    grid = reach * np.linspace(0.0, 1.0, points if reach > 0.0 else 1) ** 1.5
    return DominatingPair.from_profile(grid, smallest(0, grid), smallest(1, grid))
