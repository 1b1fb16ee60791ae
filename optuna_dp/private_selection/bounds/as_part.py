"""A selection as one part of a composition: its own dominating pair."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from optuna_dp.accounting.bounds import smallest_epsilon
from optuna_dp.accounting.dominating_pairs import DominatingPair
from optuna_dp.arrays import FloatArray
from optuna_dp.private_selection.bounds.profile_bound import DataProfile
from optuna_dp.private_selection.trial_counts.base import TrialCount


class Selection(Protocol):
    """What is needed of :class:`optuna_dp.private_selection.event.PrivateSelectionDpEvent`."""

    @property
    def trials(self) -> TrialCount: ...
    @property
    def density_bounds(self) -> tuple[float, float]: ...
    @property
    def startup_runs(self) -> int: ...
    @property
    def learns_from_outputs(self) -> bool: ...


_SELECTION_POINTS = 1500
# Beyond the epsilon with this delta a selection's pair counts the rest as infinite loss, which
# only adds this much to delta.
_SELECTION_TAIL = 1e-14


def pair_of_selection(event: Selection, pair: DominatingPair) -> DominatingPair:
    """Returns a pair that dominates the selection's released output.

    At each epsilon of a grid the smallest of the profile bounds that hold is taken, in each
    direction; :meth:`DominatingPair.from_profile` rounds up between the points.

    Args:
        event: The selection.
        pair: The pair of one run.
    """
    directions = (pair, pair.reversed())
    profiles: list[tuple[Any, ...]] = [
        (DataProfile(direction, event.trials, event.density_bounds),) for direction in directions
    ]
    if event.learns_from_outputs:
        # Lazy: only density bounds need it.
        from optuna_dp.private_selection.bounds.pointwise_bound import pointwise_bound

        better = pointwise_bound(
            pair, event.trials, event.density_bounds, event.startup_runs
        ).directions
        profiles = [(*old, new) for old, new in zip(profiles, better, strict=True)]

    def smallest(which: int, epsilons: npt.ArrayLike) -> FloatArray:
        return np.asarray(np.minimum.reduce([p.delta(epsilons) for p in profiles[which]]))

    far = float(np.max([smallest(which, [500.0])[0] for which in (0, 1)]))

    def reach_of(which: int) -> float:
        return smallest_epsilon(lambda eps: smallest(which, [eps])[0], far + _SELECTION_TAIL)

    reach = max(reach_of(0), reach_of(1))
    # Dense where the loss is small, where most of the mass is.
    grid = reach * np.linspace(0.0, 1.0, _SELECTION_POINTS if reach > 0.0 else 1) ** 1.5
    return DominatingPair.from_profile(grid, smallest(0, grid), smallest(1, grid))
