"""The limits of a client, in a file on its node, whatever a server asks for.

The client computes what a vote would cost it from the noise, the votes and the clients of the
set-up that it is in, at its own delta and adjacency; of the server's plan it believes no epsilon,
and no client that the set-up does not have. How much of the others' noise it counts on depends on
what it thinks of the server (:meth:`VotePolicy.honest`):

``"malicious"``    The server may lie. Only a secure sum is answered, and other clients count as
                   far as :func:`honest_shares` says.
``"semi-honest"``  The server follows the protocol and looks at what it gets. Only a secure sum is
                   answered; as many others count as it takes to open a mask.
``"trusted"``      The server may see each noisy vote: plain sums are answered too. A plain sum has
                   no set-up, so how many clients vote is what the server says.
"""

from __future__ import annotations

import functools
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from fractions import Fraction
from pathlib import Path

import numpy as np
import tomllib

from optuna_dp.accounting.events import compose
from optuna_dp.accounting.guarantee import Guarantee
from optuna_dp.accounting.kinds.skellam import SkellamDpEvent
from optuna_dp.accounting.skellam import rdp_bound
from optuna_dp.core import validation
from optuna_dp.core.value_types import JsonObject
from optuna_dp.errors import InvalidArgumentError
from optuna_dp.federated.ledger import Answer
from optuna_dp.federated.query import VoteQuery, VoteRefusedError
from optuna_dp.voting.plan import VotePlan, checked_adjacency, repeated, rounded_down

SERVERS = ("malicious", "semi-honest", "trusted")
# What is drawn in seconds, for as many candidates as a query has.
_LARGEST_SHARE = 1 << 24
# The ledger of a client that keeps it for one run only.
RUN_LEDGER = "run"
# What node configurations name the file with.
NODE_CONFIG_KEY = "vote-policy"


@dataclass(frozen=True)
class View:
    """What a client has seen of a vote before it answers.

    Attributes:
        secure: Whether the sum is a secure one.
        clients: Clients of the sum, itself included. Those of a secure sum have written it letters
            before it votes; of a plain sum they are as many as the server says.
        threshold: How many clients it takes to open a mask; 0 for a plain sum, which has none.
    """

    secure: bool
    clients: int
    threshold: int


@dataclass(frozen=True)
class VotePolicy:
    """The limits of one client.

    Guarantees:
        * What a client answers costs at most ``max_epsilon`` per name of a vote, all its attempts
          together, and ``total_epsilon`` over all votes of the ledger, at ``delta`` under
          ``adjacency``, if the server is no worse than ``server`` says and of the clients that it
          sees at most ``max_colluding`` are invented, are shown with keys that are not theirs,
          tell their share of the noise, or add none.
          The theorem, with what it needs, is in ``docs/explanation/voting.md``.
        * It is computed from the set-up that the client is in. A plan for clients that the set-up
          does not have is refused, whatever is thought of the server. Only in a plain sum, which
          has no set-up, and with ``server="trusted"``, the number of clients is believed.

    Args:
        max_epsilon: Of one vote; positive. A server may invent names of votes: ``total_epsilon``
            is the limit for it.
        delta: In (0, 1).
        adjacency: ``"replace_one"`` or ``"null_client"``.
        total_epsilon: Of all votes together; by default ``max_epsilon``. From a second plan on it
            is counted by a filter (:meth:`spent`), about a tenth higher than for plans fixed
            beforehand.
        min_clients: Fewest clients that it must see, itself included; at least 1.
        max_colluding: How many of the clients that it sees may be against it.
        server: ``"malicious"``, ``"semi-honest"`` or ``"trusted"``.
        max_attempts: Most attempts that a vote may be planned for.
        max_votes: Most answers in all, over the ledger, whatever they cost: how long an
            evaluation takes may say something about the data, and is not counted in epsilon.
        max_candidates: Most candidates, each of which is evaluated here.
        max_clients: Most clients that it shares secrets with, itself included. The work is a tenth
            of a second for 200 clients, one second for 1,000.
        search_space: What candidates may be, by parameter: ``{"low": ..., "high": ...}`` or
            ``{"choices": [...]}``; None allows any.
        ledger: File in which what was answered is kept, over votes, apps and restarts. ``"run"``
            keeps it for one run, in the run's state, where two messages at once do not see each
            other: then all limits are for one run, and whoever starts runs may start more. None
            leaves it to another policy of this client; without any, nothing is answered.

    Raises:
        InvalidArgumentError: If a limit is not allowed.

    Example:
        >>> from optuna_dp.federated import VotePolicy  # doctest: +SKIP
        >>> VotePolicy(1.0, total_epsilon=3.0, min_clients=10, ledger="run")  # doctest: +SKIP
    """

    max_epsilon: float
    delta: float = 1e-5
    adjacency: str = "replace_one"
    total_epsilon: float | None = None
    min_clients: int = 3
    max_colluding: int = 0
    server: str = "malicious"
    max_attempts: int = 5
    max_votes: int = 100
    max_candidates: int = 10_000
    max_clients: int = 1_000
    search_space: Mapping[str, JsonObject] | None = field(default=None, hash=False)
    ledger: str | None = None

    def __post_init__(self) -> None:
        validation.positive("max_epsilon", self.max_epsilon)
        validation.open_unit("delta", self.delta)
        checked_adjacency(self.adjacency)
        if self.total_epsilon is not None:
            validation.positive("total_epsilon", self.total_epsilon)
        counts = ("min_clients", "max_attempts", "max_votes", "max_candidates", "max_clients")
        for name in counts:
            validation.whole(name, getattr(self, name), 1)
        validation.whole("max_colluding", self.max_colluding)
        if self.server not in SERVERS:
            raise InvalidArgumentError(
                "server", self.server, allowed=f"it must be one of {', '.join(SERVERS)}"
            )
        for name, range_limits in (self.search_space or {}).items():
            if set(range_limits) not in ({"low", "high"}, {"choices"}):
                raise InvalidArgumentError(
                    f"search_space[{name!r}]",
                    range_limits,
                    allowed="it must have low and high, or choices",
                )

    @classmethod
    def from_file(cls, path: str | Path) -> VotePolicy:
        """Reads a policy from a TOML file; every key is an argument of this class.

        Args:
            path: The file. It must name a ledger; a relative one lies beside the file.

        Raises:
            InvalidArgumentError: If the file cannot be read, a key is unknown or a limit is not
                allowed.
        """
        file = Path(path)
        try:
            data = tomllib.loads(file.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise InvalidArgumentError(
                "policy", str(path), problem=f"it cannot be read: {error}"
            ) from None
        unknown = set(data) - {field.name for field in fields(cls)}
        if unknown or not {"max_epsilon", "ledger"} <= set(data):
            raise InvalidArgumentError(
                "policy",
                sorted(data),
                allowed="it must give max_epsilon and ledger, and else only arguments of "
                "VotePolicy",
            )
        if data["ledger"] == RUN_LEDGER:
            raise InvalidArgumentError(
                "ledger",
                RUN_LEDGER,
                allowed="a node's policy must name a file",
                fix="Name it votes.ledger.",
            )
        data["ledger"] = str(file.parent / str(data["ledger"]))
        try:
            return cls(**data)
        except TypeError as error:
            raise InvalidArgumentError(
                "policy", str(path), problem=f"it is malformed: {error}"
            ) from None

    @property
    def total(self) -> float:
        """Most epsilon of all votes together."""
        return self.max_epsilon if self.total_epsilon is None else self.total_epsilon

    def charge(self, query: VoteQuery, view: View) -> SkellamDpEvent:
        """Returns what one answer costs this client; refuses what is not within the limits.

        Args:
            query: What the server asks.
            view: What was seen of the vote.

        Raises:
            VoteRefusedError: With the reason, a clause; it is for the client's own log.
        """
        plan = query.plan
        self._check_search(query)
        if plan.attempts > self.max_attempts:
            raise VoteRefusedError(
                f"the plan has {plan.attempts} attempts; max_attempts is {self.max_attempts}"
            )
        if not view.secure and self.server != "trusted":
            raise VoteRefusedError(
                "the server asks for a plain sum; this client needs a secure one, or "
                "server='trusted'"
            )
        if view.clients < self.min_clients:
            raise VoteRefusedError(
                f"{view.clients} clients are seen; min_clients is {self.min_clients}"
            )
        if view.secure and view.clients > self.max_clients:
            raise VoteRefusedError(
                f"{view.clients} clients share secrets; max_clients is {self.max_clients}"
            )
        if plan.share_variance > _LARGEST_SHARE:
            raise VoteRefusedError(
                f"a share of the noise has variance {float(plan.share_variance):.4g}; "
                f"at most {_LARGEST_SHARE} is drawn here"
            )
        event = event_of(query, self.honest(plan, view))
        cost = total_epsilon(((event, plan.attempts),), self.adjacency, self.delta)
        limit = min(self.max_epsilon, self.total)
        if cost > limit:
            raise VoteRefusedError(
                f"the vote costs epsilon={cost:.4g} at delta={self.delta:g} ({self.adjacency}); "
                f"max_epsilon and total_epsilon allow {limit:g}"
            )
        return event

    def honest(self, plan: VotePlan, view: View) -> int:
        """Returns how many shares of noise, its own among them, this client counts on.

        Theorems and proofs: ``docs/explanation/voting.md``, "A server that keeps to the protocol"
        and "A server that lies".

        Args:
            plan: What the server plans.
            view: What was seen of the vote.

        Raises:
            VoteRefusedError: If the set-up has fewer clients than the plan counts on.
        """
        if view.clients < plan.survivors_needed:
            raise VoteRefusedError(
                f"the set-up has {view.clients} clients, and the plan counts on the noise of "
                f"{plan.survivors_needed} ({plan.clients} less {plan.max_dropout} dropouts)"
            )
        colluding = max(plan.max_colluding, self.max_colluding)
        planned_shares = plan.survivors_needed - colluding
        if not view.secure:
            honest = planned_shares
        elif self.server == "malicious":
            honest = honest_shares(view.clients, view.threshold, colluding)
        else:  # this client opens no sum with fewer votes than the threshold
            honest = view.threshold - colluding
        # A client's own share is always there.
        return max(min(planned_shares, honest), 1)

    def check_answers(self, answers: Sequence[Answer]) -> None:
        """Refuses to answer too often, a name more often than planned, or beyond the total.

        Args:
            answers: Every vote that was sent, and the one that is about to be.

        Raises:
            VoteRefusedError: If it is more.
        """
        newest = answers[-1]
        same_vote = [answer for answer in answers if answer.vote == newest.vote]
        if any(answer.query != newest.query for answer in same_vote):
            raise VoteRefusedError(f"vote {newest.vote} was another query before")
        if len(same_vote) > newest.attempts:
            raise VoteRefusedError(
                f"vote {newest.vote} was answered {len(same_vote) - 1} times, and its plan has "
                f"{newest.attempts} attempts"
            )
        if len(answers) > self.max_votes:
            raise VoteRefusedError(
                f"{len(answers) - 1} votes were sent; max_votes is {self.max_votes}"
            )
        cost = self.spent(answers)
        if cost > self.total:
            raise VoteRefusedError(
                f"all votes together would cost epsilon={cost:.4g} at delta={self.delta:g}; "
                f"total_epsilon is {self.total:g}"
            )

    def spent(self, answers: Sequence[Answer]) -> float:
        """Returns an epsilon that these answers cost, whatever made the server ask for each.

        While all are of the first one's plan: exactly what that plan costs, all attempts counted.
        Beyond, a server may choose the next plan by the results so far, and what exact composition
        says is no bound. Then by a Rényi filter (Feldman & Zrnic, arXiv 2008.11193): divergences
        add up at one order, which the limits alone fix, and the first plan is counted in full.

        Args:
            answers: Votes that were sent, at least one, in order.
        """
        first_answer, attempts, unplanned = answers[0], 0, []
        for answer in answers:
            is_planned = (
                answer.plan == first_answer.plan
                and answer.event.variance >= first_answer.event.variance
            )
            if is_planned and attempts < first_answer.attempts:
                attempts += 1
            else:
                unplanned.append(answer.event)
        if not unplanned:
            return total_epsilon(
                ((first_answer.event, first_answer.attempts),), self.adjacency, self.delta
            )
        orders = np.arange(2.0, 1001.0)
        # Canonne, Kamath & Steinke, arXiv 2004.00010, Proposition 12.
        conversion = np.log1p(-1.0 / orders) - np.log(self.delta * orders) / (orders - 1.0)
        best = int(np.argmax((self.total - conversion) / orders))  # for a curve that is a line
        counts = Counter([*unplanned, *[first_answer.event] * first_answer.attempts])
        divergence = sum(
            count * rdp_bound(event.variance, event.changes(self.adjacency), orders[[best]])[0]
            for event, count in counts.items()
        )
        return float(divergence + conversion[best])

    def _check_search(self, query: VoteQuery) -> None:
        if len(query.candidates) > self.max_candidates:
            raise VoteRefusedError(
                f"the query has {len(query.candidates)} candidates; max_candidates is "
                f"{self.max_candidates}"
            )
        if self.search_space is None:
            return
        for params in query.candidates:
            for name, value in params.items():
                if not _within(self.search_space.get(name), value):
                    raise VoteRefusedError(
                        f"a candidate has {name}={value!r}; search_space does not allow that"
                    )


def honest_shares(clients: int, threshold: int, colluding: int) -> int:
    """Returns how many honest shares of noise are in any sum that a lying server can open.

    The secure sum is among ``clients`` that share with each other and were shown the same. The
    server may tell each of them another story of who has dropped out. An honest client counts
    those it is told are active, so it gives away at most n - t clients, and whose masks fall needs
    t - c honest clients to do so; of the n' = n - c honest ones, at most
    n' (n - t) / (t - c) fall (docs/explanation/voting.md).

    Args:
        clients: n, itself included.
        threshold: t, how many clients it takes to open a mask.
        colluding: c, how many of the n are against it.

    Returns:
        At most ``clients - colluding``; 0 or less where nothing can be counted on.
    """
    honest, quorum = clients - colluding, threshold - colluding
    if quorum < 1:
        return 0
    return honest - math.floor(Fraction(honest * max(clients - threshold, 0), quorum))


def event_of(query: VoteQuery, honest: int) -> SkellamDpEvent:
    """Returns what one attempt costs if so many shares of noise are in the sum."""
    variance = rounded_down(query.plan.share_variance * honest)
    return SkellamDpEvent(variance, query.plan.votes, query.plan.candidates)


@functools.lru_cache(maxsize=256)
def total_epsilon(
    counts: tuple[tuple[SkellamDpEvent, int], ...], adjacency: str, delta: float
) -> float:
    """Returns what so many of each event cost; cached, as every attempt and client asks again."""
    if not counts:
        return 0.0
    together = compose(*[repeated(event, n) for event, n in counts])
    return Guarantee(together, adjacency).epsilon(delta)


def _within(range_limits: JsonObject | None, value: object) -> bool:
    if range_limits is None:
        return False
    if "choices" in range_limits:
        return any(type(value) is type(c) and value == c for c in range_limits["choices"])
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return number and bool(range_limits["low"] <= value <= range_limits["high"])
