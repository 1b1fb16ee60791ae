"""Sums of votes with Skellam noise."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

import attr
from dp_accounting import dp_event

from optuna_dp.accounting import units
from optuna_dp.accounting.dominating_pairs import DominatingPair
from optuna_dp.accounting.kinds.base import OwnEvent, Part, checked
from optuna_dp.accounting.skellam import rdp_bound, shift_pair
from optuna_dp.core import validation
from optuna_dp.core.arrays import FloatArray
from optuna_dp.errors import InvalidArgumentError


@attr.s(frozen=True, slots=True, auto_attribs=True)
class SkellamDpEvent(OwnEvent):
    """A sum of 0/1 vectors with ``votes`` ones each, plus Skellam noise in every entry.

    The parties are the clients of a vote: a relation speaks of one client's whole data. It has no
    meaning under "add_or_remove_one", because a client that leaves takes its share of the noise
    along (``docs/explanation/voting.md``).

    Attributes:
        variance: Variance of the noise of one entry of the sum; positive.
        votes: Number of ones in each client's vector, k.
        candidates: Length of the vectors, p; at least k.
    """

    unit: ClassVar[str] = units.CLIENT

    variance: float = checked(validation.positive, "variance")
    votes: int = checked(validation.whole, "votes", 1)
    candidates: int = checked(validation.whole, "candidates", 1)

    def __attrs_post_init__(self) -> None:
        if self.votes > self.candidates:
            raise InvalidArgumentError(
                "votes",
                self.votes,
                allowed=f"it must be at most the number of candidates, {self.candidates}",
            )

    def changes(self, relation: str) -> int:
        """Returns how many entries of the sum neighbours may change, by one each.

        Replacing a client's data moves ones to entries that had none: 2 min(k, p - k). Against a
        null vote the k ones appear.
        """
        if relation == "null_client":
            return self.votes
        return 2 * min(self.votes, self.candidates - self.votes)

    def words(self, of: Callable[[dp_event.DpEvent], str]) -> str:
        """See :class:`OwnEvent`."""
        return (
            f"a sum of votes for {self.votes} of {self.candidates} candidates with Skellam "
            f"noise of variance {self.variance:.6g}"
        )

    def refusal(self, relation: str) -> str | None:
        """See :class:`OwnEvent`."""
        if relation != "add_or_remove_one":
            return None
        return (
            "a client that leaves takes its share of the noise with it, so the two worlds differ "
            "in their variance, which this event does not cover. Use the relation 'replace_one', "
            "or 'null_client' (the client stays and votes for nothing)."
        )

    def part(self, count: int, relation: str) -> Part:
        """See :class:`OwnEvent`; one application is one entry that may change."""
        return Part(self, count * self.changes(relation))

    def pair(
        self, relation: str, pair_of: Callable[[dp_event.DpEvent, str], DominatingPair]
    ) -> DominatingPair:
        """See :class:`OwnEvent`."""
        return shift_pair(self.variance)

    def curve(
        self, orders: FloatArray, relation: str, curve_of: Callable[[dp_event.DpEvent], FloatArray]
    ) -> FloatArray:
        """See :class:`OwnEvent`."""
        return rdp_bound(self.variance, self.changes(relation), orders)
