"""The guarantee of a procedure: the cost of its events."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
import numpy.typing as npt
from dp_accounting import dp_event

from optuna_dp.accounting import events, supported_events, units
from optuna_dp.accounting.epsilon_methods import (
    all_epsilons_of,
    deltas_of,
    epsilons_of,
    methods_of,
)
from optuna_dp.accounting.event_json import event_from_json, event_to_json
from optuna_dp.accounting.kinds.foreign import pure_of
from optuna_dp.accounting.run_profile import first_choice, pair_of
from optuna_dp.core import by_name, validation
from optuna_dp.core.arrays import FloatArray
from optuna_dp.core.json_entries import Entry, stored
from optuna_dp.core.value_types import JsonValue
from optuna_dp.errors import InvalidArgumentError

# What mu may leave out unless another tail is asked for.
MU_TAIL = 1e-10


@dataclass(frozen=True)
class Guarantee(Entry):
    """What is guaranteed of the released output of a procedure.

    The event is data; this class judges it. Every number is the smallest over the methods that
    have a vote for the event, all of them proved here; :meth:`by_method` shows each, and beside
    them the bounds of others, which have no vote.

    Guarantees:
        * For every delta, the procedure's output is (``epsilon(delta)``, delta)-differentially
          private with respect to ``neighboring_relation``, provided the event describes it.
        * ``epsilon`` and ``delta`` round toward less privacy: ``delta(epsilon(d)) <= d``.
        * Where nothing finite is known the result is ``inf`` (and :meth:`reasons` says why), never
          NaN.

    Args:
        event: What was done to the data, as a tree of events.
        neighboring_relation: ``"add_or_remove_one"`` or ``"replace_one"``, for the whole tree;
            ``"null_client"`` for one that is taken away and takes part all the same, with noise
            alone.

    Raises:
        InvalidArgumentError: If ``event`` is not an event, parts of it are about records and
            others about clients, or the relation is unknown; by a method if its argument is not
            allowed.
        UnsupportedEventError: If no accountant supports a sub-event (named), before any work.

    Example:
        >>> import optuna_dp as odp
        >>> round(odp.Guarantee(odp.gaussian(noise_multiplier=4.0)).epsilon(delta=1e-5), 2)
        0.93
    """

    event: dp_event.DpEvent = field(metadata=stored(write=event_to_json, read=event_from_json))
    neighboring_relation: str = "add_or_remove_one"
    constants: ClassVar[dict[str, JsonValue]] = {"format": "optuna-dp guarantee", "version": 1}

    def __post_init__(self) -> None:
        events.neighboring_relation(self.neighboring_relation)
        events.as_event("event", self.event)
        units.unit_of(self.event)
        supported_events.check_supported(self.judged_event, self.neighboring_relation)

    def __repr__(self) -> str:
        # In words: the tree of a training run is long. `event` has all of it. Lazy: no number
        # depends on them.
        from optuna_dp.accounting.event_words import in_words

        return f"Guarantee(<{in_words(self.event)}>, {self.neighboring_relation!r})"

    @property
    def unit(self) -> str:
        """Whose data are protected: ``"record"``, or ``"client"`` (all records of one client)."""
        return units.unit_of(self.event) or units.RECORD

    def _repr_html_(self) -> str | None:
        return by_name.notebook_page(self)

    def epsilon(self, delta: float) -> float:
        """Returns the smallest epsilon known to hold at ``delta``, in [0, 1); ``inf`` if none.

        At 0 it is finite for mechanisms of which a pure epsilon is known.
        """
        if validation.number("delta", delta) == 0.0:
            return pure_of(self.judged_event, self.neighboring_relation)
        return min(self._epsilons(delta).values())

    def delta(self, epsilon: float) -> float:
        """Returns the smallest delta known to hold at ``epsilon``, finite and at least 0."""
        eps = validation.non_negative("epsilon", epsilon)
        return float(deltas_of(self.judged_event, self.neighboring_relation, np.array([eps]))[0])

    def mu(self, tail: float = MU_TAIL) -> float:
        """Returns the smallest mu known for which the release is mu-Gaussian-DP, up to ``tail``.

        No test of whether a record is in the data does better on the released output than the
        best test of N(0, 1) against N(mu, 1), by more than ``tail`` in power. So at every epsilon
        the true delta of the release is at most that of a Gaussian mechanism of noise multiplier
        1 / mu plus ``tail``. The bound that :meth:`delta` returns may lie above that where it is
        not convex in e^epsilon, as every true profile is. Without an allowance mu would be
        infinite wherever numbers are rounded, and for sampled Gaussians it would speak of outputs
        that never occur.

        Args:
            tail: In [1e-12, 1).

        Returns:
            At least 0, rounded up; ``inf`` if there is none: an output may tell everything with a
            larger probability than ``tail``, as of an (epsilon, delta)-DP mechanism.

        Example:
            >>> import optuna_dp as odp
            >>> round(odp.Guarantee(odp.gaussian(noise_multiplier=4.0)).mu(), 3)
            0.25
        """
        tail = validation.open_unit("tail", tail)
        if tail < 1e-12:
            raise InvalidArgumentError("tail", tail, allowed="it must lie in [1e-12, 1)")
        # Lazy: no epsilon depends on it.
        from optuna_dp.accounting.gaussian_dp import mu_of

        return mu_of(self.judged_event, self.neighboring_relation, tail)

    def true_positive_rate(self, false_positive_rate: float) -> float:
        """Returns the largest share of present records that an attack can recognise.

        The attacker knows everything but whether a given record is in the data, sees what is
        released, and takes an absent record for a present one in at most the given share of cases.

        Args:
            false_positive_rate: In [0, 1].

        Returns:
            In [0, 1], rounded up; the given share would be guessing.

        Example:
            >>> import optuna_dp as odp
            >>> guarantee = odp.Guarantee(odp.gaussian(noise_multiplier=4.0))
            >>> 0.08 < guarantee.true_positive_rate(0.05) < 0.09
            True
        """
        rate = validation.number("false_positive_rate", false_positive_rate)
        if not 0.0 <= rate <= 1.0:
            raise InvalidArgumentError(
                "false_positive_rate", rate, allowed="it must lie in [0, 1]"
            )
        # Lazy: no epsilon depends on it.
        from optuna_dp.accounting.attack_risks import true_positive_rates

        event, relation = self.judged_event, self.neighboring_relation
        return float(true_positive_rates(event, relation, np.array([rate]))[0])

    def advantage(self) -> float:
        """Returns the largest difference of true and false positive rates of any attack.

        In [0, 1]; an attacker who guesses has 0. If a record is present in half of the cases, an
        attacker is right in a share (1 + advantage) / 2 of them at most.
        """
        # Lazy: no epsilon depends on it.
        from optuna_dp.accounting.attack_risks import advantage

        return advantage(self.judged_event, self.neighboring_relation)

    def method(self, delta: float) -> str:
        """Returns the name of the method that gives :meth:`epsilon`, one of :meth:`by_method`."""
        epsilons = self._epsilons(delta)
        return min(epsilons, key=lambda name: epsilons[name])

    def by_method(self, delta: float) -> dict[str, float]:
        """Returns epsilon at ``delta`` under every method that applies, by name.

        The names are explained in :mod:`optuna_dp.accounting.epsilon_methods`. The last ones,
        those of :meth:`comparisons`, are no part of :meth:`epsilon`, even where they are smaller;
        nor is ``"rdp"`` where a profile is known, though it is proved as well.
        """
        target = validation.open_unit("delta", delta)
        epsilons = all_epsilons_of(self.judged_event, self.neighboring_relation, target)
        return {**epsilons, **self.comparisons(delta)}

    def comparisons(self, delta: float) -> dict[str, float]:
        """Returns epsilon at ``delta`` by bounds that are shown for comparison only, by name.

        ``"koskela"`` is Koskela, Redberg & Wang's (arXiv 2402.06701v1), ``"theorem_1"`` DP-HyPO's
        as printed (arXiv 2306.05734v2). An error in their code cannot lower a guarantee.
        """
        return {name: epsilon for name, (epsilon, _) in self._beside(delta).items()}

    def reasons(self, delta: float) -> dict[str, str]:
        """Returns why the methods without a finite epsilon at ``delta`` have none, by name."""
        not_private = supported_events.non_private_reason(self.judged_event)
        methods = methods_of(self.judged_event, self.neighboring_relation)
        by_method, comparisons = self.by_method(delta), self._beside(delta)
        reasons = {
            name: methods[name].why_infinite(delta)
            for name, epsilon in by_method.items()
            if epsilon == math.inf and name not in comparisons
        }
        reasons |= {name: reason for name, (e, reason) in comparisons.items() if e == math.inf}
        return {name: not_private or reason for name, reason in reasons.items()}

    def bounds(self, delta: float) -> tuple[float, float]:
        """Returns (attack, bound): epsilon at ``delta`` is known to lie between the two.

        The attack is an explicit adversary against a run that the event allows, evaluated
        exactly (:mod:`optuna_dp.attacks`). It is 0 where no attainable run is known for
        the event.
        """
        bound = self.epsilon(delta)
        return by_name.attack(self.judged_event, self.neighboring_relation, delta), bound

    def rdp(self, orders: npt.ArrayLike | None = None) -> FloatArray:
        """Returns upper bounds of the Renyi divergence, one for each order; ``inf`` if unknown.

        Args:
            orders: Shape (n,), above 1, ascending. The default is the 171 orders from 1.02 to
                10,495 that accountants here use.

        Returns:
            Shape (n,).
        """
        # Used for few epsilons (epsilon_methods.py says which).
        from optuna_dp.accounting.rdp_curves import DEFAULT_ORDERS
        from optuna_dp.accounting.run_rdp import best_rdp_of

        curve_orders = DEFAULT_ORDERS if orders is None else orders
        return best_rdp_of(self.judged_event, self.neighboring_relation, curve_orders, pair_of)

    def compose(self, *others: Guarantee | dp_event.DpEvent) -> Guarantee:
        """Returns the guarantee of releasing this and other things about the same data.

        In whatever order they were released, each in view of the others' outputs: only
        :func:`optuna_dp.compose` and :meth:`Release.with_training`, which know an order, charge a
        choice of bounded range less for having come first.

        Args:
            others: Guarantees under the same relation, or events.

        Raises:
            InvalidArgumentError: If a guarantee is for another relation, one is no event, or some
                are about records and others about clients (:func:`optuna_dp.per_client`).
            UnsupportedEventError: If no accountant supports an event.
        """
        tree = [self.event]
        for part in others:
            if isinstance(part, Guarantee):
                if part.neighboring_relation != self.neighboring_relation:
                    raise InvalidArgumentError(
                        "other",
                        part.neighboring_relation,
                        problem=f"this guarantee is for {self.neighboring_relation!r}",
                        fix="Guarantees under different neighbouring relations do not compose.",
                    )
                tree.append(part.event)
            else:
                tree.append(part)
        composition = Guarantee(events.compose(*tree), self.neighboring_relation)
        if len(tree) > 1 and first_choice(composition.judged_event) is not None:
            # Nobody has said that the choice came first, so it must not be charged as if it had.
            unordered = events.compose(dp_event.NoOpDpEvent(), *tree)
            return Guarantee(unordered, self.neighboring_relation)
        return composition

    @classmethod
    def refusal(cls, data: object, reason: str, fix: str = "") -> InvalidArgumentError:
        """Returns the error for JSON that is not that of a guarantee."""
        return InvalidArgumentError(
            "data", data, allowed=f"it must be what Guarantee.to_json returned ({reason})", fix=fix
        )

    @functools.cached_property
    def judged_event(self) -> dp_event.DpEvent:
        """The event as accountants see it: without a word on whose data it speaks of."""
        if units.unit_of(self.event) != units.CLIENT:
            return self.event
        # Lazy: only events about clients need it.
        from optuna_dp.accounting.kinds.per_client import without_units

        return without_units(self.event)

    def _epsilons(self, delta: float) -> dict[str, float]:
        target = validation.open_unit("delta", delta)
        return dict(epsilons_of(self.judged_event, self.neighboring_relation, target))

    def _beside(self, delta: float) -> dict[str, tuple[float, str]]:
        target = validation.open_unit("delta", delta)
        return dict(by_name.comparisons(self.judged_event, self.neighboring_relation, target))
