"""What accountants ask of an event, and the base of those that dp-accounting does not have."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, TypeVar

import attr
from dp_accounting import dp_event

from optuna_dp.core.arrays import FloatArray

if TYPE_CHECKING:
    from optuna_dp.accounting.bounds import Method
    from optuna_dp.accounting.dominating_pairs import DominatingPair


V = TypeVar("V")


class Part(NamedTuple):
    """``times`` applications of one event."""

    event: dp_event.DpEvent
    times: int


def checked(check: Callable[..., V], name: str, *allowed: object, **field: Any) -> V:
    """Returns a field of an event.

    Args:
        check: Takes the name, what was given and ``allowed``; returns the value or raises.
        name: The field's name.
        allowed: Further arguments of the check.
        field: Arguments of ``attr.ib``.
    """
    checked_field: V = attr.ib(converter=lambda value: check(name, value, *allowed), **field)
    return checked_field


class EventKind:
    """What accountants ask of an event. Events of this package answer for themselves.

    For those of dp-accounting an object of :mod:`optuna_dp.accounting.kinds.foreign` answers:
    :func:`~optuna_dp.accounting.kinds.foreign.kind_of` gives it.

    Attributes:
        cheaper_first: Whether it may cost less where a composition begins with it.
    """

    cheaper_first: ClassVar[bool] = False

    @property
    def is_nothing(self) -> bool:
        """Returns whether it is the event of no step at all."""
        return False

    def is_mixture(self, relation: str) -> bool:
        """Returns whether its pair is a mixture of that of the event on a Poisson sample."""
        return False

    def known_by_curve(self, relation: str) -> bool:
        """Returns whether it has a Renyi-DP curve only, and no pair."""
        return False

    @property
    def curve_may_be_smaller(self) -> bool:
        """Returns whether its Renyi-DP curve may say less than its other bounds."""
        return False

    @property
    def given_orders(self) -> Sequence[float]:
        """Returns the orders at which its Renyi-DP curve was given."""
        return ()

    def children(self) -> list[dp_event.DpEvent]:
        """Returns the sub-events whose cost is computed on its own."""
        return []

    def within(self) -> list[dp_event.DpEvent]:
        """Returns the sub-events that have to protect something, or it protects nothing."""
        return self.children()

    def applications(self) -> list[Part] | None:
        """Returns what it applies one after the other; None if it is no composition."""
        return None

    def rests_on(self, relation: str) -> list[dp_event.DpEvent] | None:
        """Returns the sub-events whose cost decides about its own.

        None where dp-accounting computes the cost, and is asked whether it supports the event.
        """
        return self.children()

    def refusal(self, relation: str) -> str | None:
        """Returns why no accountant supports it under this relation; None if one does."""
        return None

    def not_private(self) -> str | None:
        """Returns why it protects nothing; None if it protects."""
        return None

    def words(self, of: Callable[[dp_event.DpEvent], str]) -> str:
        """Returns what was done to the data, as text; ``of`` gives the words of another event."""
        raise NotImplementedError

    def part(self, count: int, relation: str) -> Part:
        """Returns what ``count`` applications are in a composition."""
        raise NotImplementedError

    def pair(
        self, relation: str, pair_of: Callable[[dp_event.DpEvent, str], DominatingPair]
    ) -> DominatingPair | None:
        """Returns the pair of one application; ``pair_of`` gives that of another event.

        None where dp-accounting makes its privacy loss distribution, or only its curve is known.
        """
        return None

    def pair_of_many(self, count: int) -> DominatingPair | None:
        """Returns the pair of ``count`` applications; None if it has no closed form."""
        return None

    def methods(
        self, relation: str, pair_of: Callable[[dp_event.DpEvent, str], DominatingPair]
    ) -> Mapping[str, Method] | None:
        """Returns bounds of its own by name; None if the profile of its pair is the bound."""
        return None

    def pure(self, relation: str, pure_of: Callable[[dp_event.DpEvent, str], float]) -> float:
        """Returns an epsilon for which it is epsilon-DP; ``pure_of`` gives another event's."""
        return math.inf

    def curve(
        self, orders: FloatArray, relation: str, curve_of: Callable[[dp_event.DpEvent], FloatArray]
    ) -> FloatArray | None:
        """Returns its Renyi-DP curve, None for that of any mechanism of its pure epsilon."""
        return None

    def best_curve(
        self,
        orders: FloatArray,
        relation: str,
        curve_of: Callable[[dp_event.DpEvent], FloatArray],
        pair_of: Callable[[dp_event.DpEvent, str], DominatingPair],
    ) -> FloatArray | None:
        """Returns the smallest curve that is known; it may take longer than :meth:`curve`."""
        return self.curve(orders, relation, curve_of)

    def why_no_curve(self) -> str | None:
        """Returns why it has no Renyi-DP curve; None if it may have one."""
        return None


# dp_accounting ships no types, so its classes are Any to mypy: hence the ignore.
class OwnEvent(EventKind, dp_event.DpEvent):  # type: ignore[misc]
    """Base of the kinds of this package. Each says in one place what accountants ask of it.

    Attributes:
        readers: How fields that no other event has are read from a record, by name.
    """

    readers: ClassVar[Mapping[str, Callable[[str, object], object]]] = {}

    def part(self, count: int, relation: str) -> Part:
        """See :class:`EventKind`."""
        return Part(self, count)
