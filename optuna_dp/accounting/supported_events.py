"""Checks the whole tree of events for unsupported ones, before any work.

Two questions: can any accountant judge this event (:func:`check_supported`), and does it protect
anything at all (:func:`non_private_reason`).
"""

from __future__ import annotations

from typing import Any

from optuna_dp.accounting.kinds.foreign import PoissonSample, has_profile, has_rdp, kind_of
from optuna_dp.errors import UnsupportedEventError


def children(event: Any) -> list[Any]:
    """Returns the sub-events whose cost is computed on its own, none for a leaf."""
    return kind_of(event).children()


def sampled_by_pair(event: Any, relation: str) -> bool:
    """Whether an event is anything on a Poisson sample whose pair is a mixture."""
    kind = kind_of(event)
    return isinstance(kind, PoissonSample) and kind.is_mixture(relation)


def check_supported(event: Any, relation: str) -> None:
    """Raises unless every sub-event has a profile or an RDP curve.

    Raises:
        UnsupportedEventError: Names the first sub-event without an accountant.
    """
    kind = kind_of(event)
    for child in kind.children():
        check_supported(child, relation)
    reason = kind.refusal(relation)
    if reason is not None:
        raise UnsupportedEventError(event, reason)
    if kind.judged_here:
        return
    if sampled_by_pair(event, relation):
        return check_supported(event.event, relation)
    if not (has_profile(event, relation) or has_rdp(event, relation)):
        # Lazy: only the words of a refusal need it.
        from optuna_dp.accounting.event_words import why_unsupported

        raise UnsupportedEventError(event, why_unsupported(event, relation))


def non_private_reason(event: Any) -> str | None:
    """Returns why the event protects nothing (its epsilon is inf), or None if it protects."""
    kind = kind_of(event)
    if kind.is_nothing:
        return None
    reasons = (non_private_reason(part) for part in kind.within())
    return next((reason for reason in reasons if reason is not None), kind.not_private())
