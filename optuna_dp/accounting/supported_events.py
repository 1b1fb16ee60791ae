"""Checks the whole tree of events for unsupported ones, before any work.

Two questions: can any accountant judge this event (:func:`check_supported`), and does it protect
anything at all (:func:`non_private_reason`).
"""

from __future__ import annotations

from dp_accounting import dp_event

from optuna_dp.accounting.kinds.foreign import has_profile, has_rdp, kind_of
from optuna_dp.errors import UnsupportedEventError


def check_supported(event: dp_event.DpEvent, relation: str) -> None:
    """Raises unless every sub-event has a profile or an RDP curve.

    Raises:
        UnsupportedEventError: Names the first sub-event without an accountant.
    """
    kind = kind_of(event)
    events_below = kind.rests_on(relation)
    for event_below in events_below or []:
        check_supported(event_below, relation)
    reason = kind.refusal(relation)
    if reason is not None:
        raise UnsupportedEventError(event, reason)
    if events_below is None and not (has_profile(event, relation) or has_rdp(event, relation)):
        # Lazy: only the words of a refusal need it.
        from optuna_dp.accounting.event_words import why_unsupported

        raise UnsupportedEventError(event, why_unsupported(event, relation))


def non_private_reason(event: dp_event.DpEvent) -> str | None:
    """Returns why the event protects nothing (its epsilon is inf), or None if it protects."""
    kind = kind_of(event)
    if kind.is_nothing:
        return None
    reasons = (non_private_reason(part) for part in kind.within())
    return next((reason for reason in reasons if reason is not None), kind.not_private())
