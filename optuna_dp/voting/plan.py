"""Computes the noise that a vote needs, and its cost."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass, replace
from fractions import Fraction

from dp_accounting import dp_event
from scipy.optimize import brentq

from optuna_dp.accounting.guarantee import Guarantee
from optuna_dp.accounting.kinds.skellam import SkellamDpEvent
from optuna_dp.accounting.skellam import LARGEST_VARIANCE, vote_epsilon
from optuna_dp.core import validation
from optuna_dp.core.json_entries import Entry
from optuna_dp.errors import InvalidArgumentError, OptunaDPError
from optuna_dp.voting.utility import chance_of_gap, visible_gap

ADJACENCIES = ("replace_one", "null_client")

# More than anybody needs, and few enough that plans of strangers are judged in no time.
MOST_ATTEMPTS = 100
# A share of the variance is a whole multiple of 2^-24, so that the sum of the shares is exact.
UNITS = 1 << 24
# How near the logarithm of a variance comes to the least one.
_NEAR = 2e-6
_WHY_NOT_ADD_OR_REMOVE = (
    "A client that leaves takes its share of the noise with it, so the variance of the noise "
    "reveals whether it took part. Use 'replace_one', or 'null_client' (the client takes part "
    "and votes for nothing)."
)


class VoteFailedError(OptunaDPError):
    """No sum of votes could be released.

    Attributes:
        reason: Why, in words.
        attempts: How many times clients were asked for their votes: each is spent.
        guarantee: What those attempts cost, a :class:`~optuna_dp.Guarantee`; None if no client
            was asked.
    """

    def __init__(self, reason: str, attempts: int, guarantee: Guarantee | None = None) -> None:
        self.reason = reason
        self.attempts = attempts
        self.guarantee = guarantee
        spent = (
            "No client was asked for its vote, so nothing is spent."
            if attempts == 0
            else f"Clients were asked for votes {attempts} time(s), and that cost is spent. Add "
            "VoteFailedError.guarantee to the cost of what follows."
        )
        super().__init__(f"The vote failed: {reason} {spent}")


@dataclass(frozen=True)
class VotePlan(Entry):
    """Everything about a vote that is fixed before any client looks at its data. Public.

    Made by :meth:`calibrated` or :meth:`from_json`.

    Guarantees:
        * If at least ``clients - max_dropout`` clients add their share, and at most
          ``max_colluding`` of those tell theirs, one attempt has the privacy of :meth:`event`.
        * ``calibrated`` never overshoots: ``attempts`` attempts together are
          (epsilon, delta)-DP by the package's own accountant.

    Attributes:
        clients: Number of clients asked, n.
        candidates: Number of candidates, p, at least 2.
        votes: Ones in a ballot, k, less than p.
        adjacency: ``"replace_one"``: one client's data are others; ``"null_client"``: they are
            taken away, while the client takes part with noise alone.
        max_dropout: How many clients may fail to send their vote.
        max_colluding: How many clients may tell the adversary their share of the noise.
        share_units: Variance of one client's share, in units of 2^-24.
        epsilon: What the plan was calibrated for (all attempts together).
        delta: The delta of that.
        attempts: How many attempts at the sum the budget covers, at most 100.

    Raises:
        InvalidArgumentError: If a field is not allowed.
    """

    clients: int
    candidates: int
    votes: int
    adjacency: str
    max_dropout: int
    max_colluding: int
    share_units: int
    epsilon: float
    delta: float
    attempts: int = 1

    def __post_init__(self) -> None:
        for name in ("clients", "candidates", "votes", "share_units", "attempts"):
            object.__setattr__(self, name, validation.whole(name, getattr(self, name), 1))
        for name in ("max_dropout", "max_colluding"):
            object.__setattr__(self, name, validation.whole(name, getattr(self, name), 0))
        if self.attempts > MOST_ATTEMPTS:
            raise InvalidArgumentError(
                "attempts",
                self.attempts,
                allowed=f"it must be at most {MOST_ATTEMPTS}",
                fix="Each attempt costs as much as a vote; plan several votes instead.",
            )
        checked_adjacency(self.adjacency)
        object.__setattr__(self, "epsilon", validation.positive("epsilon", self.epsilon))
        object.__setattr__(self, "delta", validation.open_unit("delta", self.delta))
        if self.candidates < 2:
            raise InvalidArgumentError(
                "candidates",
                self.candidates,
                allowed="there must be at least 2",
                fix="One candidate needs no vote.",
            )
        if self.votes >= self.candidates:
            raise InvalidArgumentError(
                "votes",
                self.votes,
                allowed=f"it must be less than the number of candidates, {self.candidates}",
                fix="A client votes for its k best candidates. A vote for all of them changes "
                "nothing: the noise alone would choose.",
            )
        if self.honest < 1:
            raise InvalidArgumentError(
                "max_dropout + max_colluding",
                self.max_dropout + self.max_colluding,
                allowed=f"it must be less than the number of clients, {self.clients}",
                fix="The noise of the other clients is the protection.",
            )

    @classmethod
    def calibrated(
        cls,
        *,
        clients: int,
        candidates: int,
        votes: int,
        epsilon: float,
        delta: float,
        adjacency: str = "replace_one",
        max_dropout: int = 0,
        max_colluding: int = 0,
        attempts: int = 1,
    ) -> VotePlan:
        """Returns the plan with the least noise for a target, never overshooting it.

        Raises:
            InvalidArgumentError: If an argument is not allowed, ``adjacency="add_or_remove_one"``
                among them.
        """
        least = cls(
            clients=clients,
            candidates=candidates,
            votes=votes,
            adjacency=adjacency,
            max_dropout=max_dropout,
            max_colluding=max_colluding,
            share_units=1,
            epsilon=epsilon,
            delta=delta,
            attempts=attempts,
        )
        changes = least.event.changes(adjacency) * least.attempts
        variance = smallest_variance(changes, least.epsilon, least.delta)
        share = max(math.ceil(Fraction(variance) * UNITS / least.honest), 1)
        plan = replace(least, share_units=share)
        # The guarantee reads the profile from another grid: what it says is what counts.
        while plan.guarantee(plan.attempts).epsilon(plan.delta) > plan.epsilon:
            share += max(share // 100_000, 1)
            plan = replace(least, share_units=share)
        return plan

    @property
    def honest(self) -> int:
        """How many shares the analysis counts on, h."""
        return self.clients - self.max_dropout - self.max_colluding

    @property
    def survivors_needed(self) -> int:
        """How many clients must have sent their vote before the sum may be released."""
        return self.clients - self.max_dropout

    @property
    def share_variance(self) -> Fraction:
        """Variance of one client's share of the noise, exactly."""
        return Fraction(self.share_units, UNITS)

    @property
    def variance(self) -> float:
        """Variance of the noise that the analysis counts on, rounded down."""
        return rounded_down(self.share_variance * self.honest)

    @property
    def variance_of_sum(self) -> float:
        """Variance of the noise of one entry of a sum in which every client's vote is."""
        return float(self.share_variance * self.clients)

    def chance(self, gap: int, *, good: int = 1) -> float:
        """Returns the probability, at least, that the winner is good, given a gap in the votes.

        From arXiv 2510.04902, Theorem V.1, made exact for the votes that are worst
        (:func:`~optuna_dp.voting.chance_of_gap`). It costs nothing: no data are looked at.

        Args:
            gap: Least votes of a good candidate less most votes of another one. At most
                ``clients``, if all clients agree.
            good: How many candidates are good, from 1 to ``candidates``.

        Raises:
            InvalidArgumentError: If ``good`` is not allowed.

        Example:
            >>> plan = VotePlan.calibrated(
            ...     clients=50, candidates=100, votes=5, epsilon=1.0, delta=1e-5
            ... )
            >>> print(f"{plan.chance(40):.2f}, {plan.chance(40, good=4):.2f}")
            0.78, 0.99
        """
        return chance_of_gap(gap, good=good, bad=self._others(good), variance=self.variance_of_sum)

    def visible_gap(self, chance: float = 0.9, *, good: int = 1) -> int:
        """Returns the smallest gap in votes at which the winner is good with this probability.

        Args:
            chance: In (0, 1).
            good: How many candidates are good, from 1 to ``candidates``.

        Returns:
            Votes. More than ``clients`` means that this many clients cannot see it, even if all
            of them agree: take more clients, fewer candidates or votes, or a larger epsilon.

        Raises:
            InvalidArgumentError: If an argument is not allowed.

        Example:
            >>> plan = VotePlan.calibrated(
            ...     clients=50, candidates=100, votes=5, epsilon=1.0, delta=1e-5
            ... )
            >>> plan.visible_gap(0.9), plan.visible_gap(0.9, good=4)
            (47, 31)
        """
        return visible_gap(
            chance, good=good, bad=self._others(good), variance=self.variance_of_sum
        )

    def _others(self, good: int) -> int:
        if validation.whole("good", good, 1) > self.candidates:
            raise InvalidArgumentError(
                "good",
                good,
                allowed=f"it must be at most the number of candidates, {self.candidates}",
            )
        return self.candidates - good

    @property
    def event(self) -> SkellamDpEvent:
        """What one attempt at the sum costs."""
        return SkellamDpEvent(self.variance, self.votes, self.candidates)

    def guarantee(self, attempts: int = 1) -> Guarantee:
        """Returns the guarantee of releasing the sums of this many attempts.

        Args:
            attempts: How many times clients were asked for their votes, at least 1.

        Raises:
            InvalidArgumentError: If it is not a whole number of at least 1.
        """
        count = validation.whole("attempts", attempts, 1)
        return Guarantee(repeated(self.event, count), self.adjacency)

    @classmethod
    def refusal(cls, data: object, reason: str, fix: str = "") -> InvalidArgumentError:
        """Returns the error for a record that is not one of a plan."""
        return InvalidArgumentError(
            "data", data, allowed=f"it must be what VotePlan.to_json returned ({reason})", fix=fix
        )


def rounded_down(exact: Fraction) -> float:
    """Returns the float nearest to a positive number, or the one below, but none above it."""
    value = float(exact)
    return value if Fraction(value) <= exact else math.nextafter(value, 0.0)


def repeated(event: dp_event.DpEvent, count: int) -> dp_event.DpEvent:
    """Returns the event of so many equal votes, at least one."""
    return event if count == 1 else dp_event.SelfComposedDpEvent(event, count)


def checked_adjacency(value: object) -> str:
    """Returns the adjacency; refuses adding and removing, with the reason."""
    if value not in ADJACENCIES:
        advice = _WHY_NOT_ADD_OR_REMOVE if value == "add_or_remove_one" else ""
        requirement = f"it must be one of {', '.join(ADJACENCIES)}"
        raise InvalidArgumentError("adjacency", value, allowed=requirement, fix=advice)
    return str(value)


@functools.lru_cache(maxsize=256)
def smallest_variance(changes: int, epsilon: float, delta: float) -> float:
    """Returns about the least variance at which ``changes`` entries cost at most ``epsilon``.

    Returns:
        A variance at which the cost is at most ``epsilon``, within 1e-5 of the least one.
    """
    floor, ceiling = math.log(1.0 / UNITS), math.log(LARGEST_VARIANCE)

    @functools.cache
    def excess(log_variance: float) -> float:
        cost = vote_epsilon(math.exp(log_variance), changes, delta)
        return math.log(max(min(cost, 1e6), 1e-12) / epsilon)

    # The Gaussian's size is a start: changes / (2 rho), epsilon = rho + 2 sqrt(rho log(1/delta)).
    # Epsilon falls about as the standard deviation grows, so one step from there comes near.
    rho = (math.sqrt(-math.log(delta) + epsilon) - math.sqrt(-math.log(delta))) ** 2
    start = min(max(math.log(changes / (2.0 * rho)), floor), ceiling)
    start = min(max(start + 2.0 * excess(start), floor), ceiling)
    for width in (0.01, 0.1, 1.0, ceiling - floor):
        low, high = max(start - width, floor), min(start + width, ceiling)
        if excess(high) <= 0.0 < excess(low):
            break
    if excess(high) > 0.0:
        raise InvalidArgumentError(
            "epsilon",
            epsilon,
            problem="the noise it takes is beyond what can be accounted",
            fix="Raise epsilon or delta.",
        )
    if excess(low) <= 0.0:
        return math.exp(low)
    root = float(brentq(excess, low, high, xtol=_NEAR))
    return math.exp(min(root + _NEAR, high))  # the side on which the cost is not above epsilon
