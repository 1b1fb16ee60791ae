"""Choices of bounded range, and compositions that begin with one: in them it costs less.

What is released after a choice cannot change how its losses lie
(:mod:`optuna_dp.accounting.bounded_range`). Only an event's own children are looked at: a
composition within one is a unit, and other events may come before it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

import attr
from dp_accounting import dp_event

from optuna_dp.accounting import bounded_range as of_range
from optuna_dp.accounting.dominating_pairs import DominatingPair
from optuna_dp.accounting.kinds.base import OwnEvent, checked
from optuna_dp.core import validation
from optuna_dp.core.arrays import FloatArray


@attr.s(frozen=True, slots=True, auto_attribs=True)
class BoundedRangeDpEvent(OwnEvent):
    """A mechanism whose privacy loss lies in an interval of length ``epsilon`` that holds zero.

    Which interval may depend on the two neighbouring data sets and on what was released before.

    Attributes:
        epsilon: Non-negative, finite.
    """

    cheaper_first: ClassVar[bool] = True

    epsilon: float = checked(validation.non_negative, "epsilon")

    @property
    def curve_may_be_smaller(self) -> bool:
        """See :class:`OwnEvent`."""
        return True

    def words(self, of: Callable[[dp_event.DpEvent], str]) -> str:
        """See :class:`OwnEvent`."""
        return f"a choice of bounded range {self.epsilon:g}"

    def pair(
        self, relation: str, pair_of: Callable[[dp_event.DpEvent, str], DominatingPair]
    ) -> DominatingPair:
        """See :class:`OwnEvent`."""
        return of_range.pair_of_choice(self.epsilon)

    def pair_before(self, rest: DominatingPair) -> DominatingPair:
        """Returns the pair of this choice and of what follows it."""
        return of_range.pair_with_rest(self.epsilon, rest)

    def pure(self, relation: str, pure_of: Callable[[dp_event.DpEvent, str], float]) -> float:
        """See :class:`OwnEvent`."""
        return self.epsilon

    def curve(
        self, orders: FloatArray, relation: str, curve_of: Callable[[dp_event.DpEvent], FloatArray]
    ) -> FloatArray:
        """See :class:`OwnEvent`."""
        return of_range.rdp(self.epsilon, orders)


def bounded_range(epsilon: float) -> BoundedRangeDpEvent:
    """Returns the event of any epsilon-bounded-range mechanism.

    For neighbouring data sets the privacy losses of any two outputs differ by at most ``epsilon``
    (Durfee & Rogers, arXiv 1905.04273). The exponential mechanism with weights
    ``exp(epsilon * utility / (2 * sensitivity))`` is one; so is report-noisy-max with Gumbel
    noise of scale ``2 * sensitivity / epsilon``. Permute-and-flip (exponential noise) is not.
    Such a mechanism is ``epsilon``-DP, and in a composition it costs about half as much as
    ``pure_dp(epsilon)``, least where it comes first (:func:`optuna_dp.compose`).

    Args:
        epsilon: Non-negative, finite.

    Raises:
        InvalidArgumentError: If it is negative, infinite or NaN.

    Example:
        >>> import optuna_dp as odp
        >>> choice, training = odp.bounded_range(0.5), odp.gaussian(4.0)
        >>> round(odp.Guarantee(odp.compose(choice, training)).epsilon(delta=1e-5), 2)
        1.24
        >>> round(odp.Guarantee(odp.compose(odp.pure_dp(0.5), training)).epsilon(delta=1e-5), 2)
        1.4
    """
    return BoundedRangeDpEvent(epsilon)


# Choices that come one after the other are taken one by one, each at the cost of a convolution;
# of more than these the later ones have the larger pair.
_MOST_IN_TURN = 8


def choice_and_rest(
    event: dp_event.DpEvent,
) -> tuple[BoundedRangeDpEvent, dp_event.DpEvent] | None:
    """Returns the choice with which a composition begins and what follows, if it does."""
    if isinstance(event, dp_event.SelfComposedDpEvent):
        repeated, later_events = event, []
    elif isinstance(event, dp_event.ComposedDpEvent) and len(event.events) > 1:
        first_event, *later_events = event.events
        repeated = (
            first_event
            if isinstance(first_event, dp_event.SelfComposedDpEvent)
            else dp_event.SelfComposedDpEvent(first_event, 1)
        )
    else:
        return None
    choice, count = repeated.event, repeated.count
    if not isinstance(choice, BoundedRangeDpEvent) or not 1 <= count <= _MOST_IN_TURN:
        return None
    if count > 1:
        later_events = [dp_event.SelfComposedDpEvent(choice, count - 1), *later_events]
    if not later_events:
        return None
    return choice, later_events[0] if len(later_events) == 1 else dp_event.ComposedDpEvent(
        later_events
    )
