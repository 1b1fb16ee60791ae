"""Mechanisms whose neighbours differ in one client with all its records."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

import attr
from dp_accounting import dp_event

from optuna_dp.accounting import units
from optuna_dp.accounting.events import as_event
from optuna_dp.accounting.kinds.base import checked


@attr.s(frozen=True, slots=True, auto_attribs=True)
class PerClientDpEvent(dp_event.DpEvent):  # type: ignore[misc]
    """A mechanism whose neighbours differ in one client with all its records, not in one record.

    Accountants compute the cost of ``event``; what it changes is whose data are protected.

    Attributes:
        event: The mechanism, one contribution of it being that of one client.
    """

    unit: ClassVar[str] = units.CLIENT

    event: dp_event.DpEvent = checked(as_event, "event")

    def words(self, of: Callable[[dp_event.DpEvent], str]) -> str:
        """Returns what was done to the data, as text; ``of`` gives the words of another event."""
        return f"for each client as a whole: {of(self.event)}"


def per_client(event: dp_event.DpEvent) -> dp_event.DpEvent:
    """Returns the event of a mechanism that hides one client with all its records.

    For federated training in which each client's whole contribution to a round is clipped and the
    noise is in proportion to that (DP-FedAvg). DP-SGD *within* a client clips single records; it
    protects records, and this must not be said of it.

    Args:
        event: The mechanism; a contribution, a noise multiplier and a sampling rate in it are
            about clients. One that is about clients already is returned as it is.

    Raises:
        InvalidArgumentError: If it is not an event.

    Example:
        >>> import optuna_dp as odp
        >>> rounds = odp.dp_sgd(noise_multiplier=2.0, sample_rate=1.0, steps=10)
        >>> odp.Guarantee(odp.per_client(rounds), "replace_one").unit
        'client'
    """
    checked = as_event("event", event)
    return checked if units.unit_of(checked) == units.CLIENT else PerClientDpEvent(checked)


def without_units(event: dp_event.DpEvent) -> dp_event.DpEvent:
    """Returns the event as accountants judge it: they need not know whose data it speaks of."""
    if hasattr(type(event), "unit") and hasattr(event, "event"):
        return without_units(event.event)
    for field in ("event", "run"):
        if isinstance(getattr(event, field, None), dp_event.DpEvent):
            return attr.evolve(event, **{field: without_units(getattr(event, field))})
    if hasattr(event, "events"):
        return attr.evolve(event, events=type(event.events)(map(without_units, event.events)))
    return event
