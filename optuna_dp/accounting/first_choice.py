"""Which compositions begin with a choice of bounded range: in them it costs less.

What is released after a choice cannot change how its losses lie
(:mod:`optuna_dp.accounting.bounded_range`). Only an event's own children are looked at: a
composition within one is a unit, and other events may come before it.
"""

from __future__ import annotations

from typing import Any

from dp_accounting import dp_event

from optuna_dp.accounting.events import BoundedRangeDpEvent

# Choices that come one after the other are taken one by one, each at the cost of a convolution;
# of more than these the later ones have the larger pair.
_MOST_IN_TURN = 8


def choice_and_rest(event: Any) -> tuple[BoundedRangeDpEvent, Any] | None:
    """Returns the choice with which a composition begins and what follows, if it does."""
    if isinstance(event, dp_event.SelfComposedDpEvent):
        repeated, later = event, []
    elif isinstance(event, dp_event.ComposedDpEvent) and len(event.events) > 1:
        first, *later = event.events
        repeated = (
            first
            if isinstance(first, dp_event.SelfComposedDpEvent)
            else dp_event.SelfComposedDpEvent(first, 1)
        )
    else:
        return None
    choice, count = repeated.event, repeated.count
    if not isinstance(choice, BoundedRangeDpEvent) or not 1 <= count <= _MOST_IN_TURN:
        return None
    if count > 1:
        later = [dp_event.SelfComposedDpEvent(choice, count - 1), *later]
    if not later:
        return None
    return choice, later[0] if len(later) == 1 else dp_event.ComposedDpEvent(later)
