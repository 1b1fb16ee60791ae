"""The events of dp-accounting, each with what accountants ask of it.

:data:`FOREIGN_KINDS` is the one table from a class of dp-accounting to such an object, and
:func:`kind_of` gives the object of any event: events of this package answer for themselves
(:class:`~optuna_dp.accounting.kinds.base.OwnEvent`). Where no answer of ours is better,
dp-accounting's own accountants compute the cost of an event.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING

import numpy as np
from dp_accounting import dp_event
from dp_accounting.pld import PLDAccountant
from dp_accounting.rdp import RdpAccountant

from optuna_dp.accounting import events
from optuna_dp.accounting.kinds.base import EventKind, OwnEvent, Part
from optuna_dp.core.arrays import FloatArray

if TYPE_CHECKING:
    from optuna_dp.accounting.dominating_pairs import DominatingPair

# Under this relation a record that is replaced moves a sum by two contributions.
_REPLACED = "replace_one"
_NOISE_FIELDS = ("noise_multiplier", "noise_parameter", "standard_deviation")


def has_profile(event: dp_event.DpEvent, relation: str) -> bool:
    """Returns whether dp-accounting's PLD accountant supports an event."""
    return bool(PLDAccountant(events.neighboring_relation(relation)).supports(event))


def has_rdp(event: dp_event.DpEvent, relation: str) -> bool:
    """Returns whether dp-accounting's RDP accountant supports an event, and rightly.

    It takes a Laplace mechanism under "replace_one" at the sensitivity of adding a record, half
    of what replacing one can do; its PLD accountant refuses, and so does this.
    """
    if relation == _REPLACED and _holds(event, dp_event.LaplaceDpEvent):
        return False
    return bool(RdpAccountant(None, events.neighboring_relation(relation)).supports(event))


def _holds(event: dp_event.DpEvent, cls: type[dp_event.DpEvent]) -> bool:
    inner = [getattr(event, "event", None), *(getattr(event, "events", None) or [])]
    return isinstance(event, cls) or any(_holds(e, cls) for e in inner if e is not None)


def never_touches(event: dp_event.DpEvent) -> bool:
    """Returns whether sampling leaves every record out, so that the event costs nothing."""
    return (
        getattr(event, "sampling_probability", None) == 0.0
        or getattr(event, "sample_size", None) == 0
    )


class ForeignEvent(EventKind):
    """An event of dp-accounting of which this package knows no more than its accountants do.

    Args:
        event: The event.
    """

    def __init__(self, event: dp_event.DpEvent) -> None:
        self.event = event

    def rests_on(self, relation: str) -> list[dp_event.DpEvent] | None:
        """See :class:`EventKind`."""
        return None

    def known_by_curve(self, relation: str) -> bool:
        """See :class:`EventKind`."""
        return not has_profile(self.event, relation)

    def within(self) -> list[dp_event.DpEvent]:
        """See :class:`EventKind`."""
        inner = getattr(self.event, "event", None)
        if inner is None or never_touches(self.event):
            return self.children()
        return self.children() or [inner]

    def not_private(self) -> str | None:
        """See :class:`EventKind`."""
        for field in _NOISE_FIELDS:
            if getattr(self.event, field, None) == 0.0:
                return f"a {type(self.event).__name__} has {field} 0"
        return None

    def words(self, of: Callable[[dp_event.DpEvent], str]) -> str:
        """See :class:`EventKind`."""
        return str(self.event.words(of)) if hasattr(self.event, "words") else repr(self.event)

    def part(self, count: int, relation: str) -> Part:
        """See :class:`EventKind`."""
        return Part(self.event, count)


class JudgedHere(ForeignEvent):
    """An event of dp-accounting whose cost this package computes from that of its children."""

    def rests_on(self, relation: str) -> list[dp_event.DpEvent]:
        """See :class:`EventKind`."""
        return self.children()


class Nothing(JudgedHere):
    """What touches no data."""

    @property
    def is_nothing(self) -> bool:
        """See :class:`EventKind`."""
        return True

    def pure(self, relation: str, pure_of: Callable[[dp_event.DpEvent, str], float]) -> float:
        """See :class:`EventKind`."""
        return 0.0


class NonPrivate(JudgedHere):
    """What protects nothing."""

    def not_private(self) -> str | None:
        """See :class:`EventKind`."""
        return "it contains a NonPrivateDpEvent"


class Repetition(JudgedHere):
    """One event, several times."""

    @property
    def is_nothing(self) -> bool:
        """See :class:`EventKind`."""
        return self.event.count == 0 or kind_of(self.event.event).is_nothing

    def children(self) -> list[dp_event.DpEvent]:
        """See :class:`EventKind`."""
        return [self.event.event]

    def applications(self) -> list[Part]:
        """See :class:`EventKind`."""
        return [Part(self.event.event, self.event.count)]

    def not_private(self) -> str | None:
        """See :class:`EventKind`; its one child says it."""
        return None

    def words(self, of: Callable[[dp_event.DpEvent], str]) -> str:
        """See :class:`EventKind`."""
        inner = of(self.event.event)
        return inner if self.event.count == 1 else f"{self.event.count} times [{inner}]"

    def pair(
        self, relation: str, pair_of: Callable[[dp_event.DpEvent, str], DominatingPair]
    ) -> DominatingPair | None:
        """See :class:`EventKind`."""
        return kind_of(self.event.event).pair_of_many(self.event.count)

    def pure(self, relation: str, pure_of: Callable[[dp_event.DpEvent, str], float]) -> float:
        """See :class:`EventKind`."""
        event = self.event
        return event.count * pure_of(event.event, relation) if event.count else 0.0

    def curve(
        self, orders: FloatArray, relation: str, curve_of: Callable[[dp_event.DpEvent], FloatArray]
    ) -> FloatArray:
        """See :class:`EventKind`."""
        if self.event.count == 0:
            return np.zeros_like(orders)
        return np.asarray(self.event.count * curve_of(self.event.event))


class Composition(JudgedHere):
    """Several events, one after the other."""

    @property
    def is_nothing(self) -> bool:
        """See :class:`EventKind`."""
        return all(kind_of(event).is_nothing for event in self.event.events)

    def children(self) -> list[dp_event.DpEvent]:
        """See :class:`EventKind`."""
        return list(self.event.events)

    def applications(self) -> list[Part]:
        """See :class:`EventKind`."""
        return [Part(event, 1) for event in self.event.events]

    def words(self, of: Callable[[dp_event.DpEvent], str]) -> str:
        """See :class:`EventKind`."""
        events = [e for e in self.event.events if not isinstance(e, dp_event.NoOpDpEvent)]
        return "; then ".join(map(of, events)) or "nothing"

    def pure(self, relation: str, pure_of: Callable[[dp_event.DpEvent, str], float]) -> float:
        """See :class:`EventKind`."""
        return float(sum(pure_of(event, relation) for event in self.event.events))

    def curve(
        self, orders: FloatArray, relation: str, curve_of: Callable[[dp_event.DpEvent], FloatArray]
    ) -> FloatArray:
        """See :class:`EventKind`."""
        total = np.zeros_like(orders)
        for event in self.event.events:
            with np.errstate(over="ignore"):  # to inf: nothing is known
                total = total + curve_of(event)
        return total


class PoissonSample(ForeignEvent):
    """An event on a sample that each record joins with one probability."""

    @property
    def is_nothing(self) -> bool:
        """See :class:`EventKind`."""
        return kind_of(self.event.event).is_nothing

    def is_mixture(self, relation: str) -> bool:
        """Returns whether its pair is a mixture of that of the event on the sample.

        It is where dp-accounting makes no PLD of it. Under other relations than
        "add_or_remove_one" it has a Rényi curve, or is refused.
        """
        return relation == "add_or_remove_one" and not has_profile(self.event, relation)

    def rests_on(self, relation: str) -> list[dp_event.DpEvent] | None:
        """See :class:`EventKind`."""
        return [self.event.event] if self.is_mixture(relation) else None

    def known_by_curve(self, relation: str) -> bool:
        """See :class:`EventKind`."""
        return not self.is_mixture(relation) and super().known_by_curve(relation)

    def words(self, of: Callable[[dp_event.DpEvent], str]) -> str:
        """See :class:`EventKind`."""
        inner = of(self.event.event)
        # Of all of it: without brackets the last part alone would seem to be on the sample.
        inner = inner if isinstance(self.event.event, dp_event.GaussianDpEvent) else f"[{inner}]"
        return f"{inner} on a Poisson sample of {self.event.sampling_probability:.6g}"

    def pair(
        self, relation: str, pair_of: Callable[[dp_event.DpEvent, str], DominatingPair]
    ) -> DominatingPair | None:
        """See :class:`EventKind`."""
        if not self.is_mixture(relation):
            return None
        return pair_of(self.event.event, relation).sampled(self.event.sampling_probability)

    def pure(self, relation: str, pure_of: Callable[[dp_event.DpEvent, str], float]) -> float:
        """See :class:`EventKind`.

        Amplification by sampling: Balle, Barthe & Gaboardi, arXiv 1807.01647v2, Theorem 8.
        """
        if relation == _REPLACED:
            return math.inf
        inner, rate = pure_of(self.event.event, relation), self.event.sampling_probability
        if rate == 0.0 or math.isinf(inner):
            return 0.0 if rate == 0.0 else math.inf
        if rate == 1.0:
            return inner
        if inner < 1.0:
            return float(np.log1p(rate * np.expm1(inner)))  # accurate where it is tiny
        return float(np.logaddexp(np.log1p(-rate), np.log(rate) + inner))


class GaussianNoise(ForeignEvent):
    """A Gaussian mechanism."""

    def words(self, of: Callable[[dp_event.DpEvent], str]) -> str:
        """See :class:`EventKind`."""
        return f"Gaussian noise of {self.event.noise_multiplier:g} times the sensitivity"


class LaplaceNoise(ForeignEvent):
    """A Laplace mechanism."""

    def words(self, of: Callable[[dp_event.DpEvent], str]) -> str:
        """See :class:`EventKind`."""
        return f"Laplace noise of {self.event.noise_multiplier:g} times the sensitivity"

    def pure(self, relation: str, pure_of: Callable[[dp_event.DpEvent, str], float]) -> float:
        """See :class:`EventKind`."""
        if relation == _REPLACED or not self.event.noise_multiplier > 0.0:
            return math.inf
        return float(1.0 / self.event.noise_multiplier)


class DiscreteLaplaceNoise(ForeignEvent):
    """A Laplace mechanism on whole numbers."""

    def pure(self, relation: str, pure_of: Callable[[dp_event.DpEvent, str], float]) -> float:
        """See :class:`EventKind`."""
        if relation == _REPLACED:
            return math.inf
        # dp-accounting takes parameter 0 for "no noise".
        return float(self.event.noise_parameter * self.event.sensitivity) or math.inf


class ZeroConcentrated(JudgedHere):
    """Any mechanism of zero-concentrated differential privacy."""

    def not_private(self) -> str | None:
        """See :class:`EventKind`."""
        if math.isfinite(self.event.rho + self.event.xi):
            return None
        return "a ZCDpEvent has no finite rho"

    def words(self, of: Callable[[dp_event.DpEvent], str]) -> str:
        """See :class:`EventKind`."""
        return f"a {self.event.rho:g}-zCDP mechanism"


class RandomisedResponse(ForeignEvent):
    """An answer that is drawn at random with some probability, and true otherwise."""

    def not_private(self) -> str | None:
        """See :class:`EventKind`."""
        if self.event.num_buckets > 1 and self.event.noise_parameter == 0.0:
            return "a RandomizedResponseDpEvent has noise_parameter 0"
        return None

    def pair(
        self, relation: str, pair_of: Callable[[dp_event.DpEvent, str], DominatingPair]
    ) -> DominatingPair:
        """See :class:`EventKind`; dp-accounting counts repeated ones once."""
        # Lazy: no event of this package is one.
        from optuna_dp.accounting.kinds.approximate import k_ary_response

        return k_ary_response(self.event.noise_parameter, self.event.num_buckets)

    def pure(self, relation: str, pure_of: Callable[[dp_event.DpEvent, str], float]) -> float:
        """See :class:`EventKind`."""
        if relation == "add_or_remove_one":
            return math.inf
        noise, buckets = self.event.noise_parameter, self.event.num_buckets
        if buckets <= 1:
            return 0.0
        return float(np.log1p(buckets * (1.0 - noise) / noise)) if noise > 0.0 else math.inf


FOREIGN_KINDS: Mapping[type[dp_event.DpEvent], type[ForeignEvent]] = MappingProxyType(
    {
        dp_event.ComposedDpEvent: Composition,
        dp_event.DiscreteLaplaceDpEvent: DiscreteLaplaceNoise,
        dp_event.GaussianDpEvent: GaussianNoise,
        dp_event.LaplaceDpEvent: LaplaceNoise,
        dp_event.MixtureOfGaussiansDpEvent: ForeignEvent,
        dp_event.NoOpDpEvent: Nothing,
        dp_event.NonPrivateDpEvent: NonPrivate,
        dp_event.PoissonSampledDpEvent: PoissonSample,
        dp_event.RandomizedResponseDpEvent: RandomisedResponse,
        dp_event.RepeatAndSelectDpEvent: ForeignEvent,
        dp_event.SampledWithoutReplacementDpEvent: ForeignEvent,
        dp_event.SelfComposedDpEvent: Repetition,
        dp_event.TruncatedSubsampledGaussianDpEvent: ForeignEvent,
        dp_event.ZCDpEvent: ZeroConcentrated,
    }
)


def kind_of(event: dp_event.DpEvent) -> EventKind:
    """Returns what answers for an event: the event itself if it is one of this package.

    A class that is derived from one of dp-accounting's answers as that one does. Of any other
    class dp-accounting's accountants are asked.
    """
    if isinstance(event, OwnEvent):
        return event
    kinds = (FOREIGN_KINDS[cls] for cls in type(event).__mro__ if cls in FOREIGN_KINDS)
    return next(kinds, ForeignEvent)(event)


def pure_of(event: dp_event.DpEvent, relation: str = "add_or_remove_one") -> float:
    """Returns an epsilon for which the event is epsilon-DP, ``inf`` if none is known."""
    return kind_of(event).pure(relation, pure_of)
