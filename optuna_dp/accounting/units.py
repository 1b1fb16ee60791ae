"""Whose data an event speaks of: one record, or one client with all records that it holds.

A guarantee for records says little about a client that holds thousands, so the two never add up
to one epsilon. Events are about records unless they say otherwise; a class of events that says so
has an attribute ``unit``.
"""

from __future__ import annotations

from dp_accounting import dp_event

from optuna_dp.errors import InvalidArgumentError, Text

RECORD, CLIENT = "record", "client"

_FIX = (
    "If a part protects a client with all its records (its whole contribution is clipped and "
    "noised, as in DP-FedAvg), wrap its event: per_client(event). Otherwise no single epsilon "
    "covers both parts: state two guarantees."
)


def unit_of(event: dp_event.DpEvent) -> str | None:
    """Returns ``"record"`` or ``"client"``; None for an event that touches no data.

    Raises:
        InvalidArgumentError: If one part is about records and another about clients.
    """
    unit_of_class = getattr(type(event), "unit", None)
    if isinstance(unit_of_class, str):
        return unit_of_class
    if isinstance(event, dp_event.NoOpDpEvent):
        return None
    parts = _parts(event)
    if parts is None:
        return RECORD
    units = {unit_of(part) for part in parts} - {None}
    if len(units) > 1:
        raise InvalidArgumentError(
            "event",
            Text("a part about records and a part about clients"),
            allowed="the parts of one guarantee must be about the same unit",
            fix=_FIX,
        )
    return units.pop() if units else None


def check_relation(event: dp_event.DpEvent, relation: str) -> None:
    """Refuses ``"null_client"`` for an event about records: its epsilon would read as a client's.

    Raises:
        InvalidArgumentError: If it is one, or parts of the event are about different units.
    """
    if relation == "null_client" and unit_of(event) != CLIENT:
        raise InvalidArgumentError(
            "neighboring_relation",
            relation,
            problem="the event is about records, and not about clients",
            fix='Use "add_or_remove_one" or "replace_one", or wrap the event: per_client(event).',
        )


def _parts(event: dp_event.DpEvent) -> list[dp_event.DpEvent] | None:
    """The events within an event, None if it has no place for any."""
    for field in ("event", "run"):
        if isinstance(getattr(event, field, None), dp_event.DpEvent):
            return [getattr(event, field)]
    return list(event.events) if hasattr(event, "events") else None
