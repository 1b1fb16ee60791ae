"""Checks the whole tree of events for unsupported ones, before any work.

Two questions: can any accountant judge this event (:func:`check_supported`), and does it protect
anything at all (:func:`non_private_reason`).
"""

from __future__ import annotations

import math
from typing import Any

from dp_accounting import dp_event
from dp_accounting.pld import PLDAccountant
from dp_accounting.rdp import RdpAccountant

from optuna_dp.accounting import events
from optuna_dp.accounting.kinds.base import OwnEvent
from optuna_dp.errors import UnsupportedEventError

# Ours, and those of dp-accounting's that are judged here.
_JUDGED = (OwnEvent, dp_event.NoOpDpEvent, dp_event.NonPrivateDpEvent, dp_event.ZCDpEvent)


def children(event: Any) -> list[Any]:
    """Returns the sub-events whose cost is computed on its own, none for a leaf."""
    if isinstance(event, dp_event.ComposedDpEvent):
        return list(event.events)
    if isinstance(event, dp_event.SelfComposedDpEvent):
        return [event.event]
    return event.children() if isinstance(event, OwnEvent) else []


def has_profile(leaf: Any, relation: str) -> bool:
    """Returns whether dp-accounting's PLD accountant supports this leaf."""
    return bool(PLDAccountant(events.neighboring_relation(relation)).supports(leaf))


def has_rdp(leaf: Any, relation: str) -> bool:
    """Returns whether dp-accounting's RDP accountant supports this leaf, and rightly.

    It takes a Laplace mechanism under "replace_one" at the sensitivity of adding a record, half
    of what replacing one can do; its PLD accountant refuses, and so does this.
    """
    if relation == "replace_one" and _holds(leaf, dp_event.LaplaceDpEvent):
        return False
    return bool(RdpAccountant(None, events.neighboring_relation(relation)).supports(leaf))


def _holds(event: Any, cls: type[Any]) -> bool:
    inner = [getattr(event, "event", None), *(getattr(event, "events", None) or [])]
    return isinstance(event, cls) or any(_holds(e, cls) for e in inner if e is not None)


def sampled_by_pair(event: Any, relation: str) -> bool:
    """Whether an event is anything on a Poisson sample that dp-accounting's PLDs do not know."""
    return isinstance(event, dp_event.PoissonSampledDpEvent) and not has_profile(event, relation)


def check_supported(event: Any, relation: str) -> None:
    """Raises unless every sub-event has a profile or an RDP curve.

    Raises:
        UnsupportedEventError: Names the first sub-event without an accountant.
    """
    for child in children(event):
        check_supported(child, relation)
    why = event.refusal(relation) if isinstance(event, OwnEvent) else None
    if why is not None:
        raise UnsupportedEventError(event, why)
    if children(event) or isinstance(event, _JUDGED):
        return
    if relation == "add_or_remove_one" and sampled_by_pair(event, relation):
        return check_supported(event.event, relation)
    if isinstance(event, dp_event.ComposedDpEvent):
        return  # an empty composition does nothing
    if not (has_profile(event, relation) or has_rdp(event, relation)):
        # Lazy: only the words of a refusal need it.
        from optuna_dp.accounting.event_words import why_unsupported

        raise UnsupportedEventError(event, why_unsupported(event, relation))


def non_private_reason(event: Any) -> str | None:
    """Returns why the event protects nothing (its epsilon is inf), or None if it protects."""
    if isinstance(event, dp_event.SelfComposedDpEvent) and event.count == 0:
        return None
    for child in children(event):
        reason = non_private_reason(child)
        if reason is not None:
            return reason
    if isinstance(event, dp_event.NonPrivateDpEvent):
        return "it contains a NonPrivateDpEvent"
    if isinstance(event, OwnEvent):
        return event.not_private()
    if isinstance(event, dp_event.ZCDpEvent) and not math.isfinite(event.rho + event.xi):
        return "a ZCDpEvent has no finite rho"
    if isinstance(event, dp_event.RandomizedResponseDpEvent):
        if event.num_buckets > 1 and event.noise_parameter == 0.0:
            return "a RandomizedResponseDpEvent has noise_parameter 0"
        return None
    for field in ("noise_multiplier", "noise_parameter", "standard_deviation"):
        if getattr(event, field, None) == 0.0:
            return f"a {type(event).__name__} has {field} 0"
    inner = getattr(event, "event", None)
    if inner is not None and not children(event) and not never_touches(event):
        return non_private_reason(inner)
    return None


def never_touches(event: Any) -> bool:
    """Returns whether sampling leaves every record out, so that the event costs nothing."""
    return (
        getattr(event, "sampling_probability", None) == 0.0
        or getattr(event, "sample_size", None) == 0
    )
