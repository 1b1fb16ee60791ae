"""Runs that may be any of several mechanisms."""

from __future__ import annotations

import math
from collections.abc import Callable

import attr
import numpy as np
from dp_accounting import dp_event

from optuna_dp.accounting import units
from optuna_dp.accounting.dominating_pairs import DominatingPair
from optuna_dp.accounting.events import as_events
from optuna_dp.accounting.kinds.base import OwnEvent
from optuna_dp.core.arrays import FloatArray

_PROFILE_POINTS = 4000


@attr.s(frozen=True, slots=True, auto_attribs=True)
class WorstCaseDpEvent(OwnEvent):
    """A run that is one of several mechanisms, depending on its hyperparameters.

    Attributes:
        events: The mechanisms it may be; which one is not secret and does not depend on the data.
    """

    events: tuple[dp_event.DpEvent, ...] = attr.ib(converter=as_events)

    def words(self, of: Callable[[dp_event.DpEvent], str]) -> str:
        """See :class:`OwnEvent`."""
        return "at worst one of [" + " | ".join(of(event) for event in self.events) + "]"

    @property
    def curve_may_be_smaller(self) -> bool:
        """See :class:`OwnEvent`."""
        return True

    def children(self) -> list[dp_event.DpEvent]:
        """See :class:`OwnEvent`."""
        return list(self.events)

    def pair(
        self, relation: str, pair_of: Callable[[dp_event.DpEvent, str], DominatingPair]
    ) -> DominatingPair:
        """See :class:`OwnEvent`."""
        return _pointwise_maximum([pair_of(child, relation) for child in self.events])

    def pure(self, relation: str, pure_of: Callable[[dp_event.DpEvent, str], float]) -> float:
        """See :class:`OwnEvent`."""
        return max(pure_of(child, relation) for child in self.events)

    def curve(
        self, orders: FloatArray, relation: str, curve_of: Callable[[dp_event.DpEvent], FloatArray]
    ) -> FloatArray:
        """See :class:`OwnEvent`."""
        return np.asarray(np.max([curve_of(child) for child in self.events], axis=0))


def worst_case(*events: dp_event.DpEvent) -> dp_event.DpEvent:
    """Returns the event of a run that is one of these, depending on its hyperparameters.

    Args:
        events: One or more; repeated ones count once. A single one is returned as it is.

    Raises:
        InvalidArgumentError: If there is none, one is not an event, or some are about records
            and others about clients (:func:`optuna_dp.per_client`).
    """
    checked: list[dp_event.DpEvent] = []
    for event in as_events(events):
        if event not in checked:
            checked.append(event)
    worst_event = checked[0] if len(checked) == 1 else WorstCaseDpEvent(tuple(checked))
    units.unit_of(worst_event)
    return worst_event


def _pointwise_maximum(pairs: list[DominatingPair]) -> DominatingPair:
    """The pair whose profile is at least every one of these, in both directions."""
    if any(pair.is_infinite for pair in pairs):
        return DominatingPair.infinite()
    losses = np.unique(np.concatenate([np.abs(pair.losses) for pair in pairs]))
    # A subset of the atoms is as sound (fewer dots to connect) and bounds the size.
    stride = max(1, math.ceil(losses.size / (2 * _PROFILE_POINTS)))
    epsilons = np.union1d([0.0], np.append(losses[::stride], losses[-1:]))
    return DominatingPair.from_profile(
        epsilons,
        np.maximum.reduce([pair.delta(epsilons) for pair in pairs]),
        np.maximum.reduce([pair.reversed().delta(epsilons) for pair in pairs]),
    )
