"""A selection as one mechanism among others: its dominating pair, for composition."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from optuna_dp.accounting.dominating_pairs import DominatingPair
from optuna_dp.accounting.events import PrivateSelectionDpEvent
from optuna_dp.accounting.run_profile import pair_of
from optuna_dp.accounting.selection.history_bound import HistoryProfile
from optuna_dp.accounting.selection.profile_bound import DataProfile, smallest_epsilon
from optuna_dp.arrays import FloatArray

_POINTS = 1500
# Beyond the epsilon with this delta the pair counts the rest as infinite loss, which only adds
# this much to delta.
_TAIL = 1e-14


def selection_pair(event: PrivateSelectionDpEvent, relation: str) -> DominatingPair:
    """Returns a pair that dominates the selection's released output.

    At each epsilon of a grid the smallest of the profile bounds that hold is taken, in each
    direction; :meth:`DominatingPair.from_profile` rounds up between the points.
    """
    pair = pair_of(event.run, relation)
    directions = (pair, pair.reversed())
    adaptive = event.policy == "history" and event.density_bounds != (1.0, 1.0)
    kinds = (DataProfile, HistoryProfile) if adaptive else (DataProfile,)
    profiles = [
        [kind(direction, event.trials, event.density_bounds) for kind in kinds]
        for direction in directions
    ]

    def smallest(which: int, epsilons: npt.ArrayLike) -> FloatArray:
        return np.asarray(np.minimum.reduce([p.delta(epsilons) for p in profiles[which]]))

    far = float(np.max([smallest(which, [500.0])[0] for which in (0, 1)]))

    def reach_of(which: int) -> float:
        return smallest_epsilon(lambda eps: smallest(which, [eps])[0], far + _TAIL)

    reach = max(reach_of(0), reach_of(1))
    # Dense where the loss is small, where most of the mass is.
    grid = reach * np.linspace(0.0, 1.0, _POINTS if reach > 0.0 else 1) ** 1.5
    return DominatingPair.from_profile(grid, smallest(0, grid), smallest(1, grid))
