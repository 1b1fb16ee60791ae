"""Both bounds for policies that see private outputs only: the smaller one at each epsilon.

The pointwise bound (``docs/explanation/pointwise-bound.md``) is the smaller one wherever its
search is fine enough; the older one (``docs/explanation/history-bound.md``) is quicker, and is all
there is for laws of T so long that the search would take minutes. Cells with slopes are searched
for geometric laws, where they give a closer bound in the same time. All are valid, so is their
minimum.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from optuna_dp import validation
from optuna_dp.accounting.bounds import ProfileMethod, smallest_epsilon
from optuna_dp.accounting.dominating_pairs import DominatingPair
from optuna_dp.arrays import FloatArray
from optuna_dp.private_selection.bounds import history_bound
from optuna_dp.private_selection.bounds.history_bound import HistoryProfile
from optuna_dp.private_selection.bounds.pointwise_bound import MOST_CELLS, PointwiseProfile
from optuna_dp.private_selection.bounds.pointwise_refined import RefinedProfile
from optuna_dp.private_selection.trial_counts.base import TrialCount

# Ratios of a law closer to one leave slopes no room for rounding.
_LONGEST = 1.0 - 1e-5
# Seconds, by a rough estimate of its own, that the search for one direction may take.
_PATIENCE = 1.2
# With fewer cells the pointwise bound is hardly ever the smaller one.
_FEWEST_CELLS = 100
# Enough to see that a direction costs less than the other one.
_FIRST_LOOK = 150
# Cells with slopes: at most so many, and with fewer than these the same time is better spent on
# cells without.
_MOST_REFINED = 1000
_FEWEST_REFINED = 250
# Deltas at which bounds and directions are compared.
_COMPARED_AT = (1e-3, 1e-5, 1e-8)


class HistoryOnlyProfile:
    """The smallest of the bounds, one direction.

    Guarantees:
        * ``delta(eps)`` is an upper bound for every real eps; ``delta(epsilon(d)) <= d``.
    """

    def __init__(self, bounds: list[HistoryProfile]) -> None:
        self.bounds = bounds
        #: Whether the law was too long for either bound.
        self.gave_up = all(bound.gave_up for bound in bounds)

    def delta(self, epsilons: npt.ArrayLike) -> FloatArray:
        """Returns the bound on delta at each epsilon (any real number; same shape)."""
        return np.asarray(np.minimum.reduce([bound.delta(epsilons) for bound in self.bounds]))

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
        if startup:
            # The prior lies within every (c, C): what holds without start-up runs holds with
            # them, and is counted as well, so that they never cost more than none.
            none = history_only_bound(pair, trials, density_bounds)
            self._sides: list[_Side] = [side.started(startup) for side in none._sides]
        else:
            both = (pair, pair.reversed())
            self._sides = [_Side(side, trials, density_bounds) for side in both]
        self._dearer, self._other = sorted(self._sides, key=lambda side: -side.costs[1])
        self.gave_up = all(side.old.gave_up for side in self._sides)
        too_long = "more runs are likely than this bound can follow one by one"
        first, second = (side.old for side in self._sides)
        super().__init__(first, second, too_long if self.gave_up else None)

    def delta(self, epsilons: npt.ArrayLike) -> FloatArray:
        """Returns the bound on delta at each epsilon (any real number; same shape)."""
        most = self._dearer.smaller.delta(epsilons)
        for bound in self._other.ever_smaller():
            other = bound.delta(epsilons)
            if np.all(other <= most):
                break
        return np.maximum(most, other)

    def epsilon(self, delta: float) -> float:
        """Returns an epsilon >= 0 with ``delta(epsilon) <= delta``; ``inf`` if there is none."""
        most = self._dearer.smaller.epsilon(delta)
        for bound in self._other.ever_smaller():
            other = bound.epsilon(delta)
            if other <= most:
                break
        return max(most, other)

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
        startup: int = 0,
        none: _Side | None = None,
    ) -> None:
        self._of = (pair, trials, density_bounds)
        self._startup, self._none = startup, none
        self._cost = (pair, trials, startup)
        self.old: HistoryProfile = none.old if none else HistoryProfile(*self._of)
        self.costs: FloatArray = none.costs if none else _costs(self.old)

    def started(self, runs: int) -> _Side:
        """Returns the same with start-up runs."""
        return _Side(*self._of, runs, self)

    def ever_smaller(self) -> Iterator[HistoryOnlyProfile]:
        """Yields bounds, each the smaller one and the slower one to make."""
        yield HistoryOnlyProfile([self.old])
        yield self._quick
        yield self.smaller

    @functools.cached_property
    def _quick(self) -> HistoryOnlyProfile:
        """With a coarse look: often enough to see that the other direction costs more."""
        found = self._none._quick.bounds if self._none else [self.old]
        if refined := refined_cells(*self._cost):
            return self._with(found, RefinedProfile, refined // 2)
        return self._with(found, PointwiseProfile, min(affordable_cells(*self._cost), _FIRST_LOOK))

    @functools.cached_property
    def smaller(self) -> HistoryOnlyProfile:
        """With the pointwise bound, if its search can be afforded."""
        found = self._none.smaller.bounds if self._none else [self.old]
        refined = refined_cells(*self._cost)
        kind = RefinedProfile if refined else PointwiseProfile
        return self._with(found, kind, refined or affordable_cells(*self._cost))

    def _with(
        self, found: list[HistoryProfile], kind: type[PointwiseProfile], cells: int
    ) -> HistoryOnlyProfile:
        if cells >= _FEWEST_CELLS and not self.old.gave_up:
            found = [*found, kind(*self._of, startup_runs=self._startup, cells=cells)]
        return HistoryOnlyProfile(found)


def affordable_cells(pair: DominatingPair, trials: TrialCount, startup_runs: int = 0) -> int:
    """Returns how many cells the search may evaluate, by a rough estimate of what one costs."""
    points, taps = _sizes(pair)
    law = history_bound._law(trials)
    applied = max(law.head - 1, startup_runs, 1)
    seconds = applied * points * (min(taps, pair.losses.size) + 24.0) / 4e8
    if law.high > 0.0:
        seconds += 1.5e-6 * points + 1e-11 * points * taps**2
    return _affordable(seconds, MOST_CELLS)


def refined_cells(pair: DominatingPair, trials: TrialCount, startup_runs: int = 0) -> int:
    """Returns the same for cells with slopes; 0 if cells without slopes are the better choice."""
    law = history_bound._law(trials)
    # Other laws are followed run by run, which slopes make ten times as long.
    if law.head > 1 or not 0.0 < law.high < _LONGEST:
        return 0
    points, taps = _sizes(pair)
    seconds = 8.5e-4 + 7e-11 * points * taps**2 + startup_runs * (1e-4 + 5e-9 * points * taps)
    # Start-up runs ask for as many cells, and each takes longer.
    cells = _affordable(seconds if startup_runs == 0 else 0.8 * seconds, _MOST_REFINED)
    return cells if cells >= _FEWEST_REFINED else 0


def _affordable(seconds: float, most: int) -> int:
    return int(_PATIENCE / seconds) if seconds * most > _PATIENCE else most


def _sizes(pair: DominatingPair) -> tuple[float, float]:
    """Returns about how many points and taps the fine grid has; 0 if all loss is infinite."""
    positive = pair.mass > 0.0
    if not np.any(positive):
        return 0.0, 0.0
    spread = math.sqrt(float(np.sum(pair.mass * pair.losses**2))) or 1.0
    scale = min(spread, history_bound._LARGEST_SCALE)
    spacing = scale / history_bound.POINTS_PER_SPREAD
    points = 2.0 * (8.0 * scale + 4.0 * (spread - scale)) / spacing
    return points, min(float(np.ptp(pair.losses[positive])) / spacing + 1.0, points)


def _costs(bound: HistoryProfile | HistoryOnlyProfile) -> FloatArray:
    return np.array([bound.epsilon(delta) for delta in _COMPARED_AT])
