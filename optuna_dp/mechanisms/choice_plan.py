"""The base of the mechanisms that choose by averaged utilities, and the error of such a choice."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING

from optuna_dp.core.json_entries import Entry
from optuna_dp.mechanisms.utility_values import RESOLUTION, Utilities

if TYPE_CHECKING:
    import dp_accounting

# Rounding to the grid, and the half grid points by which whole-number noise exceeds real noise.
GRID_ERROR = 2.0 / RESOLUTION
# Means carry a sensitivity one grid point above that of scores.
_GRID_FACTOR = 1.0 + 1.0 / RESOLUTION


@dataclass(frozen=True)
class ErrorBound:
    """An error in utility as a function of the number of partitions, ``fixed + scaled / k``."""

    fixed: float
    scaled: float

    @classmethod
    def of_noise(cls, scaled: float) -> ErrorBound:
        """Returns the error of noise of size ``scaled / k``, with that of the grid added."""
        return cls(GRID_ERROR, _GRID_FACTOR * scaled)

    def at(self, n_partitions: int) -> float:
        """Returns the error with so many partitions."""
        return self.fixed + self.scaled / n_partitions

    def partitions(self, resolve: float) -> int | None:
        """Returns the smallest k at which the error is at most ``resolve``; None if none is."""
        margin = resolve - self.fixed
        # One part in 10**9 above, so that the error at the returned k is not above by rounding.
        count = self.scaled / margin * (1 + 1e-9) if margin > 0 else math.inf
        return max(2, math.ceil(count)) if count < math.inf else None


@dataclass(frozen=True)
class ChoicePlan(Entry, ABC):
    """What is fixed before a private choice looks at the data.

    Attributes:
        epsilon: Privacy of one answer.

    Guarantees:
        * :meth:`answers` satisfies :meth:`event` with respect to a change of one partition. The
          guarantee follows from the plan alone.
    """

    epsilon: float

    @abstractmethod
    def event(self) -> dp_accounting.DpEvent:
        """Returns the whole choice as an event."""

    @abstractmethod
    def answers(self, utilities: Utilities) -> tuple[int | None, ...]:
        """Draws the private answers: each the index of an accepted candidate, or None.

        The candidate accepted last is the choice.
        """

    @abstractmethod
    def error(self, n_candidates: int, beta: float = 0.05) -> ErrorBound:
        """Returns a loss in utility that is exceeded with probability at most ``beta``."""

    @abstractmethod
    def total_epsilon(self, delta: float) -> float:
        """Returns the epsilon of the whole choice at ``delta``."""

    @abstractmethod
    def words(self) -> str:
        """Returns the mechanism and its epsilon as the privacy statement names them."""
