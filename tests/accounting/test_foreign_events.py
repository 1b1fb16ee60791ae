"""One table says what accountants ask of dp-accounting's events."""

from __future__ import annotations

import inspect
from typing import Any

import pytest
from dp_accounting import dp_event

import optuna_dp as odp
from optuna_dp.accounting.event_json import event_from_json
from optuna_dp.accounting.event_words import in_words
from optuna_dp.accounting.kinds.base import EventKind, OwnEvent
from optuna_dp.accounting.kinds.foreign import FOREIGN_KINDS, kind_of
from optuna_dp.errors import InvalidArgumentError, UnsupportedEventError

CLASSES = [
    cls
    for _, cls in inspect.getmembers(dp_event, inspect.isclass)
    if issubclass(cls, dp_event.DpEvent) and cls is not dp_event.DpEvent
]


def can_be_stored(cls: type[Any]) -> bool:
    """Whether a record may name a class of dp-accounting."""
    try:
        event_from_json({"type": cls.__name__})
    except InvalidArgumentError as error:
        return error.argument != "event.type"
    return True


@pytest.mark.parametrize("cls", CLASSES, ids=lambda cls: cls.__name__)
def test_an_event_has_a_row_if_a_record_may_hold_it(cls: type[Any]) -> None:
    assert (cls in FOREIGN_KINDS) == can_be_stored(cls)


def test_an_event_of_this_package_answers_for_itself() -> None:
    event = odp.pure_dp(1.0)
    assert isinstance(event, OwnEvent)
    assert kind_of(event) is event


def test_a_derived_class_answers_as_the_one_it_is_derived_from() -> None:
    class Tagged(dp_event.LaplaceDpEvent):  # type: ignore[misc]
        pass

    assert in_words(Tagged(2.0)) == in_words(dp_event.LaplaceDpEvent(2.0))
    assert kind_of(Tagged(2.0)).pure("add_or_remove_one", lambda *_: 0.0) == 0.5


def test_an_event_that_is_in_no_row_is_left_to_dp_accounting() -> None:
    class Unheard(dp_event.DpEvent):  # type: ignore[misc]
        def __repr__(self) -> str:
            return "Unheard()"

    assert in_words(Unheard()) == "Unheard()"
    with pytest.raises(UnsupportedEventError) as caught:
        odp.Guarantee(Unheard())
    assert isinstance(caught.value.event, Unheard)


@pytest.mark.parametrize(
    "kind", dict.fromkeys([*FOREIGN_KINDS.values(), OwnEvent]), ids=lambda kind: kind.__name__
)
def test_a_row_answers_what_is_asked_and_nothing_else(kind: type[EventKind]) -> None:
    """A misspelt answer would be none, and the default be taken for it."""
    asked = {name for name in vars(EventKind) if not name.startswith("_")}
    own = {"event", "is_mixture", "readers"}
    inherited = set(dir(dp_event.DpEvent)) if issubclass(kind, dp_event.DpEvent) else set()
    assert {n for n in dir(kind) if not n.startswith("_")} - asked - own - inherited == set()


NOTHING = dp_event.NoOpDpEvent()
STEP = dp_event.PoissonSampledDpEvent(0.1, dp_event.GaussianDpEvent(1.0))


@pytest.mark.parametrize(
    ("event", "is_nothing"),
    [
        (NOTHING, True),
        (dp_event.SelfComposedDpEvent(STEP, 0), True),
        (dp_event.SelfComposedDpEvent(NOTHING, 3), True),
        (dp_event.SelfComposedDpEvent(STEP, 1), False),
        (dp_event.ComposedDpEvent([]), True),
        (dp_event.ComposedDpEvent([NOTHING, STEP]), False),
        (dp_event.PoissonSampledDpEvent(0.1, NOTHING), True),
        (dp_event.NonPrivateDpEvent(), False),
    ],
)
def test_no_step_at_all_is_nothing(event: Any, is_nothing: bool) -> None:
    assert kind_of(event).is_nothing is is_nothing
