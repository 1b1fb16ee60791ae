"""Both bounds for policies that see private outputs only: the smaller one at each epsilon.

The pointwise bound (``docs/explanation/pointwise-bound.md``) is the smaller one wherever its
search is fine enough; the older one (``docs/explanation/history-bound.md``) is quicker, and is all
there is for laws of T so long that the search would take minutes. Where a plain search would not
catch up with it, and the law of T ends as a geometric one does, cells with slopes are searched.
All are valid, so is their minimum.
"""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np
import numpy.typing as npt

from optuna_dp import validation
from optuna_dp.accounting.bounds import ProfileMethod
from optuna_dp.accounting.dominating_pairs import DominatingPair
from optuna_dp.accounting.selection import history_bound
from optuna_dp.accounting.selection.history_bound import HistoryProfile
from optuna_dp.accounting.selection.pointwise_bound import MOST_CELLS, PointwiseProfile
from optuna_dp.accounting.selection.pointwise_refined import RefinedProfile
from optuna_dp.accounting.selection.profile_bound import smallest_epsilon
from optuna_dp.arrays import FloatArray
from optuna_dp.trial_counts.base import TrialCount

# Seconds, by a rough estimate of its own, that the search for one direction may take.
_PATIENCE = 1.2
# With fewer cells the pointwise bound is hardly ever the smaller one.
_FEWEST_CELLS = 100
# A first, coarse look. The search brings its epsilon down by a few per cent more: if it is above
# that of the older bound by this factor, more of the same cells gain nothing worth the time.
_FIRST_LOOK = 150
_HOPELESS = 1.06
# Cells with slopes: at most so many, and each takes so many times as long as one without. Ratios
# of the law closer to one leave no room for rounding.
_MOST_REFINED = 700
_REFINED_COST = 2.4
_LONGEST = 1.0 - 1e-5
# Deltas at which bounds and directions are compared.
_COMPARED_AT = (1e-3, 1e-5, 1e-8)


class HistoryOnlyProfile:
    """The smallest of the bounds, one direction.

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


class HistoryOnlyBound(ProfileMethod):
    """The larger of the two directions, which is what a guarantee needs.

    The search is made for the direction that costs more, and for the other one only where that
    would decide otherwise: at the epsilons asked about.

    Guarantees:
        * ``delta(eps)`` is an upper bound for both directions; ``delta(epsilon(d)) <= d``.
        * No answer depends on what was asked before.

    Args:
        pair: Dominates one run, forward; ``pair.reversed()`` in the other direction.
        trials: The law of T.
        density_bounds: (c, C), with 0 < c <= 1 <= C, of the slots after the start-up runs.
        startup_runs: How many slots, the first ones, draw from the prior itself.

    Attributes:
        gave_up: Whether the law was too long for either bound.
    """

    def __init__(
        self,
        pair: DominatingPair,
        trials: TrialCount,
        density_bounds: tuple[float, float],
        startup_runs: int = 0,
    ) -> None:
        # Start-up runs that are hardly ever reached cost time and gain nothing; to charge for
        # fewer is sound, since the prior lies within every (c, C).
        startup = min(startup_runs, history_bound._last_that_counts(trials))
        both = (pair, pair.reversed())
        self._sides = [_Side(side, trials, density_bounds, startup) for side in both]
        self._dearer, self._other = sorted(self._sides, key=lambda side: -side.costs[1])
        self.gave_up = all(side.old.gave_up for side in self._sides)
        too_long = "more runs are likely than this bound can follow one by one"
        first, second = (side.old for side in self._sides)
        super().__init__(first, second, too_long if self.gave_up else None)

    def delta(self, epsilons: npt.ArrayLike) -> FloatArray:
        """Returns the bound on delta at each epsilon (any real number; same shape)."""
        most, other = self._dearer.smaller.delta(epsilons), self._other.old.delta(epsilons)
        if np.any(other > most):
            other = self._other.smaller.delta(epsilons)
        return np.maximum(most, other)

    def epsilon(self, delta: float) -> float:
        """Returns an epsilon >= 0 with ``delta(epsilon) <= delta``; ``inf`` if there is none."""
        most, other = self._dearer.smaller.epsilon(delta), self._other.old.epsilon(delta)
        return max(most, self._other.smaller.epsilon(delta)) if other > most else most

    def directions(self) -> tuple[HistoryOnlyProfile, HistoryOnlyProfile]:
        """Returns each direction by itself, (O, O') first."""
        found = {self._dearer: self._dearer.smaller}
        closer = np.any(self._other.costs > _costs(self._dearer.smaller))
        found[self._other] = (
            self._other.smaller if closer else HistoryOnlyProfile([self._other.old])
        )
        return found[self._sides[0]], found[self._sides[1]]


@functools.lru_cache(maxsize=32)
def history_only_bound(
    pair: DominatingPair,
    trials: TrialCount,
    density_bounds: tuple[float, float],
    startup_runs: int = 0,
) -> HistoryOnlyBound:
    """Returns the bound of :class:`HistoryOnlyBound`; cached, since it takes seconds."""
    return HistoryOnlyBound(pair, trials, density_bounds, startup_runs)


class _Side:
    """One direction.

    Attributes:
        old: The older bound.
        costs: Its epsilons.
    """

    def __init__(
        self,
        pair: DominatingPair,
        trials: TrialCount,
        density_bounds: tuple[float, float],
        startup: int,
    ) -> None:
        self._pair, self._trials = pair, trials
        self._density_bounds, self._startup = density_bounds, startup
        self.old = HistoryProfile(pair, trials, density_bounds)
        self.costs = _costs(self.old)

    @functools.cached_property
    def smaller(self) -> HistoryOnlyProfile:
        """With the pointwise bound, if its search can be afforded and is likely to gain."""
        cells = affordable_cells(self._pair, self._trials, self._startup)
        if cells < _FEWEST_CELLS or self.old.gave_up:
            return HistoryOnlyProfile([self.old])
        # Where little can be afforded, all of it goes into one search.
        make = functools.partial(self._searched, PointwiseProfile)
        bound = make(_FIRST_LOOK if cells > 4 * _FIRST_LOOK else cells)
        # Without start-up runs, whatever was asked: they must not cost more than none.
        without = make(_FIRST_LOOK, startup_runs=0) if self._startup else bound
        if bound.cells < cells and self._hopeful(bound):
            bound = make(cells, begun=bound)
        found: list[HistoryProfile] = [self.old, bound, *([without] if self._startup else [])]
        if not self._hopeful(without):
            # The prior lies within every (c, C): what holds without start-up runs holds with
            # them. A second search, with them, would take longer than its gain of half a per cent.
            cells = refined_cells(self._pair, self._trials)
            if cells >= _FEWEST_CELLS:
                found.append(self._searched(RefinedProfile, cells, startup_runs=0))
        return HistoryOnlyProfile(found)

    def _hopeful(self, bound: PointwiseProfile) -> bool:
        return bool(np.any(_costs(bound) <= _HOPELESS * self.costs))

    def _searched(
        self, kind: type[PointwiseProfile], cells: int, **settings: Any
    ) -> PointwiseProfile:
        settings = {"startup_runs": self._startup, **settings}
        return kind(self._pair, self._trials, self._density_bounds, cells=cells, **settings)


def affordable_cells(pair: DominatingPair, trials: TrialCount, startup_runs: int = 0) -> int:
    """Returns how many cells the search may evaluate, by a rough estimate of what one costs."""
    return _affordable(_seconds(pair, trials, startup_runs), MOST_CELLS)


def refined_cells(pair: DominatingPair, trials: TrialCount, startup_runs: int = 0) -> int:
    """Returns how many cells with slopes may be looked at; 0 for laws followed run by run."""
    if not 0.0 < history_bound._law(trials).high < _LONGEST:
        return 0
    return _affordable(_REFINED_COST * _seconds(pair, trials, startup_runs), _MOST_REFINED)


def _affordable(seconds: float, most: int) -> int:
    # A single run costs nothing to follow.
    return int(max(1.0, _PATIENCE / seconds)) if seconds * most > _PATIENCE else most


def _seconds(pair: DominatingPair, trials: TrialCount, startup_runs: int) -> float:
    """Returns what a cell costs, on the grid of twice the spacing and now and then on the fine."""
    positive = pair.mass > 0.0
    if not np.any(positive):
        return 0.0
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
    return seconds


def _costs(bound: HistoryProfile | HistoryOnlyProfile) -> FloatArray:
    return np.array([bound.epsilon(delta) for delta in _COMPARED_AT])
