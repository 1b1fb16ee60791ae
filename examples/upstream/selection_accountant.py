"""An accountant with dp-accounting's own calls and the bounds of optuna-dp.

Copy the file. Every number is that of :class:`optuna_dp.Guarantee`.
"""

from __future__ import annotations

import math
from typing import Any

import attr
from dp_accounting import NeighboringRelation, dp_event, privacy_accountant

from optuna_dp.accounting.event_json import canonical_key
from optuna_dp.accounting.events import RELATIONS
from optuna_dp.accounting.guarantee import Guarantee
from optuna_dp.accounting.supported_events import non_private_reason
from optuna_dp.core import validation
from optuna_dp.errors import InvalidArgumentError, UnsupportedEventError
from optuna_dp.selection.event import PrivateSelectionDpEvent
from optuna_dp.selection.laws.negative_binomial import NegativeBinomial
from optuna_dp.selection.laws.poisson import Poisson

# What is known of a profile does not change beyond.
_LARGEST_EPSILON = 1e4


# dp_accounting ships no types, so its classes are Any to mypy: hence the ignore.
class SelectionAccountant(privacy_accountant.PrivacyAccountant):  # type: ignore[misc]
    """A ``dp_accounting.PrivacyAccountant`` that uses the bounds of optuna-dp.

    It takes every event that :class:`optuna_dp.Guarantee` takes, and dp-accounting's
    ``RepeatAndSelectDpEvent`` (negative binomial, geometric, logarithmic and Poisson), which it
    judges by the profile bound (``docs/explanation/accountants.md``).

    Args:
        neighboring_relation: One of dp-accounting's. ``REPLACE_SPECIAL`` is the null record. Under
            ``REPLACE_ONE`` a Gaussian mechanism is charged as dp-accounting's ``PLDAccountant``
            does: a record moves the sum by twice its contribution.

    Raises:
        InvalidArgumentError: By :meth:`compose` if a parameter of an event makes no sense.
        dp_accounting.UnsupportedEventError: By :meth:`compose`, naming the sub-event.

    Example:
        >>> import dp_accounting, optuna_dp as odp
        >>> from selection_accountant import SelectionAccountant
        >>> run = odp.dp_sgd(noise_multiplier=1.0, sample_rate=256 / 60000, steps=2344)
        >>> ten_runs = dp_accounting.dp_event.RepeatAndSelectDpEvent(run, mean=10, shape=1)
        >>> accountant = SelectionAccountant()
        >>> round(accountant.compose(ten_runs).get_epsilon(1e-5), 2)
        1.65
    """

    def __init__(
        self, neighboring_relation: NeighboringRelation = NeighboringRelation.ADD_OR_REMOVE_ONE
    ) -> None:
        super().__init__(neighboring_relation)
        names = {relation: name for name, relation in RELATIONS.items()}
        if neighboring_relation not in names:
            raise InvalidArgumentError(
                "neighboring_relation",
                neighboring_relation,
                allowed="it must be a dp_accounting.NeighboringRelation",
            )
        self._relation = names[neighboring_relation]
        self._calls = 0

    def _maybe_compose(self, event: Any, count: int, do_compose: bool) -> Any:
        self._calls += do_compose
        try:
            canonical_key(Guarantee(_in_our_words(event), self._relation).event)
        except UnsupportedEventError as error:
            return self.CompositionErrorDetails(error.event, error.reason)
        return None

    @property
    def guarantee(self) -> Guarantee:
        """The guarantee of all that was composed, with attack, methods and JSON record."""
        event = _in_our_words(self.ledger)
        if self._calls > 1 and isinstance(event, dp_event.ComposedDpEvent):
            # The order of calls is no statement about time (see Guarantee.compose).
            event = dp_event.ComposedDpEvent([dp_event.NoOpDpEvent(), *event.events])
        return Guarantee(event, self._relation)

    def get_epsilon(self, target_delta: float) -> float:
        """Returns the smallest epsilon known to hold at ``target_delta``, in [0, 1]."""
        delta = validation.number("target_delta", target_delta)
        guarantee = self.guarantee
        if non_private_reason(guarantee.event) is not None:
            return math.inf
        return 0.0 if delta == 1.0 else guarantee.epsilon(delta)

    def get_delta(self, target_epsilon: float) -> float:
        """Returns the smallest delta known to hold at ``target_epsilon``, at least 0 or inf."""
        unlimited = target_epsilon == math.inf
        return self.guarantee.delta(_LARGEST_EPSILON if unlimited else target_epsilon)


def _in_our_words(event: Any) -> Any:
    """Returns the tree with our selections in place of dp-accounting's."""
    if isinstance(event, dp_event.RepeatAndSelectDpEvent):
        law = (
            Poisson(event.mean)
            if event.shape == math.inf
            else NegativeBinomial(shape=event.shape, mean=event.mean)
        )
        return PrivateSelectionDpEvent(_in_our_words(event.event), law)
    for field in ("event", "run"):
        if isinstance(getattr(event, field, None), dp_event.DpEvent):
            return attr.evolve(event, **{field: _in_our_words(getattr(event, field))})
    if hasattr(event, "events"):
        return attr.evolve(event, events=[_in_our_words(e) for e in event.events])
    return event
