"""Both bounds for policies that see private outputs only: the smaller one at each epsilon.

The pointwise bound (``docs/explanation/pointwise-bound.md``) is the smaller one wherever its
search is fine enough; the older one (``docs/explanation/history-bound.md``) is quicker, and is all
there is for laws of T so long that the search would take minutes. Both are valid, so is their
minimum.
"""

from __future__ import annotations

import functools
import math

import numpy as np
import numpy.typing as npt

from optuna_dp import validation
from optuna_dp.accounting.dominating_pairs import DominatingPair
from optuna_dp.accounting.selection import history_bound
from optuna_dp.accounting.selection.history_bound import HistoryProfile
from optuna_dp.accounting.selection.pointwise_bound import MOST_CELLS, PointwiseProfile
from optuna_dp.accounting.selection.profile_bound import smallest_epsilon
from optuna_dp.arrays import FloatArray
from optuna_dp.trial_counts.base import TrialCount

# Seconds, by a rough estimate of its own, that the search for one direction may take.
_PATIENCE = 1.2
# With fewer cells the pointwise bound is hardly ever the smaller one.
_FEWEST_CELLS = 100
# A first, coarse look. The search brings its epsilon down by about 3 per cent more: if it is
# above that of the older bound by this factor, nothing is to be gained worth the time.
_FIRST_LOOK = 150
_HOPELESS = 1.04
# Deltas at which bounds and directions are compared.
_COMPARED_AT = (1e-3, 1e-5, 1e-8)


class HistoryOnlyProfile:
    """The smaller of the two bounds, one direction.

    Guarantees:
        * ``delta(eps)`` is an upper bound for every real eps; ``delta(epsilon(d)) <= d``.
    """

    def __init__(self, bounds: list[HistoryProfile]) -> None:
        self._bounds = bounds
        #: Whether the law was too long for either bound.
        self.gave_up = all(bound.gave_up for bound in bounds)

    def delta(self, epsilons: npt.ArrayLike) -> FloatArray:
        """Returns the bound on delta at each epsilon (any real number; same shape)."""
        return np.asarray(np.minimum.reduce([bound.delta(epsilons) for bound in self._bounds]))

    def epsilon(self, delta: float) -> float:
        """Returns an epsilon >= 0 with ``delta(epsilon) <= delta``; ``inf`` if there is none."""
        return smallest_epsilon(self.delta, validation.open_unit("delta", delta))


@functools.lru_cache(maxsize=32)
def history_only_profiles(
    pair: DominatingPair,
    trials: TrialCount,
    density_bounds: tuple[float, float],
    startup_runs: int = 0,
) -> tuple[HistoryOnlyProfile, HistoryOnlyProfile]:
    """Returns the bounds of both directions, (O, O') first; cached.

    The search is made for the direction that costs more, and for the other one only where that
    would decide otherwise.

    Args:
        pair: Dominates one run, forward; ``pair.reversed()`` in the other direction.
        trials: The law of T.
        density_bounds: (c, C), with 0 < c <= 1 <= C, of the slots after the start-up runs.
        startup_runs: How many slots, the first ones, draw from the prior itself.
    """
    # Start-up runs that are hardly ever reached cost time and gain nothing; to charge for fewer
    # is sound, since the prior lies within every (c, C).
    startup = min(startup_runs, history_bound._last_that_counts(trials))
    sides = [_Side(side, trials, density_bounds, startup) for side in (pair, pair.reversed())]
    dearer, other = sorted(sides, key=lambda side: -side.costs[1])
    dearer.search()
    if np.any(other.costs > dearer.costs):
        other.search()
    return HistoryOnlyProfile(sides[0].bounds), HistoryOnlyProfile(sides[1].bounds)


class _Side:
    """One direction, and the bounds that have been found for it so far."""

    def __init__(
        self,
        pair: DominatingPair,
        trials: TrialCount,
        density_bounds: tuple[float, float],
        startup: int,
    ) -> None:
        self._pair, self._trials = pair, trials
        self._density_bounds, self._startup = density_bounds, startup
        self.bounds = [HistoryProfile(pair, trials, density_bounds)]
        self.costs = _costs(self.bounds[0])

    def search(self) -> None:
        """Adds the pointwise bound, if its search can be afforded and is likely to gain."""
        cells = affordable_cells(self._pair, self._trials, self._startup)
        if cells < _FEWEST_CELLS or self.bounds[0].gave_up:
            return
        # Where little can be afforded, all of it goes into one search.
        for some in (_FIRST_LOOK, cells) if cells > 4 * _FIRST_LOOK else (cells,):
            bound = PointwiseProfile(
                self._pair,
                self._trials,
                self._density_bounds,
                startup_runs=self._startup,
                cells=some,
            )
            self.bounds = [self.bounds[0], bound]
            found = _costs(bound)
            if np.all(found > _HOPELESS * self.costs):
                break
        self.costs = np.minimum(self.costs, found)


def affordable_cells(pair: DominatingPair, trials: TrialCount, startup_runs: int = 0) -> int:
    """Returns how many cells the search may evaluate, by a rough estimate of what one costs."""
    positive = pair.mass > 0.0
    if not np.any(positive):
        return MOST_CELLS
    law = history_bound._law(trials)
    spread = math.sqrt(float(np.sum(pair.mass * pair.losses**2))) or 1.0
    scale = min(spread, history_bound._LARGEST_SCALE)
    spacing = scale / history_bound.POINTS_PER_SPREAD
    points = 2.0 * (8.0 * scale + 4.0 * (spread - scale)) / spacing
    taps = min(float(np.ptp(pair.losses[positive])) / spacing + 1.0, points)
    applied = max(law.head - 1, startup_runs, 1)
    seconds = applied * points * (min(taps, pair.losses.size) + 24.0) / 4e8
    if law.high > 0.0:
        seconds += 1.5e-6 * points + 1.5e-10 * points * taps**2
    # Each cell on the grid of twice the spacing, every second one on the fine grid as well.
    # A single run costs nothing to follow.
    return int(max(1.0, _PATIENCE / seconds)) if seconds * MOST_CELLS > _PATIENCE else MOST_CELLS


def _costs(bound: HistoryProfile) -> FloatArray:
    return np.array([bound.epsilon(delta) for delta in _COMPARED_AT])
