"""The server's part of a vote."""

from __future__ import annotations

import logging
import secrets
from collections.abc import Mapping, Sequence

import numpy as np
from flwr.app import Context
from flwr.serverapp import Grid
from optuna.distributions import BaseDistribution

from optuna_dp.core import validation
from optuna_dp.core.arrays import IntArray
from optuna_dp.core.polling import poll
from optuna_dp.errors import InvalidArgumentError
from optuna_dp.federated.plain_sum import PlainSum
from optuna_dp.federated.query import (
    Params,
    VoteQuery,
    checked_direction,
    choose_candidates,
    search_to_json,
)
from optuna_dp.federated.secure_sum import SecureSum
from optuna_dp.federated.transport import Attempt, Progress, Server
from optuna_dp.priors.space import check_space
from optuna_dp.releasing.release import Release
from optuna_dp.study.plan import Design
from optuna_dp.voting.ballots import argmax
from optuna_dp.voting.plan import VoteFailedError, VotePlan, checked_adjacency

_logger = logging.getLogger("optuna_dp")

# How often a secure sum is set up anew after losing nodes before anyone was asked for a vote.
_SETUPS = 5


class FederatedVote:
    """A search by private voting: clients vote for their k best candidates, the sum is released.

    DP-HYPE (Liebenow, Peinemann & Mohammadi, arXiv 2510.04902), with noise that is exact on whole
    numbers and added on the clients, under secure aggregation. Proofs and differences:
    ``docs/explanation/voting.md``.

    Guarantees:
        * The release satisfies (epsilon, delta)-DP for one client's whole data set, with respect
          to ``adjacency``, for everybody who sees it; with a secure sum also for the server, if it
          follows the protocol and breaks no cryptography. Retries are counted:
          ``release.guarantee`` is for all attempts.
        * It never costs more than ``epsilon`` at ``delta``, by the package's own accountant.
        * Nothing is released from fewer than ``n - max_dropout`` votes.

    Args:
        search_space: Distributions by parameter name; public, fixed before looking at data.
        candidates: ``"grid"`` for all points, a number n for n random ones, or a list of
            candidates. Drawn once, here.
        k: How many candidates each client votes for; from 1 to one less than all candidates.
        epsilon: Bound on the cost of all attempts together, at ``delta``; positive.
        delta: In (0, 1).
        adjacency: ``"replace_one"`` (default): one client's data are replaced by any other.
            ``"null_client"``: they are removed, while the client takes part with noise alone.
        max_dropout: How many clients may be lost; the others' noise makes up for it.
        max_colluding: How many clients may tell the adversary their share of the noise.
        direction: Whether the objective is a loss (``"minimize"``) or a score (``"maximize"``).
        secure_aggregation: ``SecureSum()`` by default; ``PlainSum()`` trusts the server with
            every client's noisy vote.
        retries: How many more times clients may be asked for votes when too few arrive. Every
            attempt that was asked for is charged, so the noise grows with it.
        rounds: How many votes :meth:`start` may hold, with a fresh ballot each. ``epsilon`` covers
            all of them, so the noise grows with it.
        clients: Wait until this many nodes are connected; None takes those that are there.
        timeout: Seconds to wait for nodes, and for the replies to each message; None waits
            without an end.
        progress: Called with a line of text at every stage; by default it is logged.

    Raises:
        InvalidArgumentError: If an argument is not allowed.

    Example:
        >>> vote = FederatedVote(space, candidates=100, k=5, epsilon=1.0)  # doctest: +SKIP
        >>> release = vote.start(grid, context)  # doctest: +SKIP
        >>> release.params, release.guarantee.epsilon(delta=1e-5)  # doctest: +SKIP
    """

    def __init__(
        self,
        search_space: Mapping[str, BaseDistribution],
        *,
        candidates: str | int | Sequence[Params] = "grid",
        k: int = 5,
        epsilon: float,
        delta: float = 1e-5,
        adjacency: str = "replace_one",
        max_dropout: int = 0,
        max_colluding: int = 0,
        direction: str = "minimize",
        secure_aggregation: SecureSum | PlainSum | None = None,
        retries: int = 0,
        rounds: int = 1,
        clients: int | None = None,
        timeout: float | None = 3600.0,
        progress: Progress | None = None,
    ) -> None:
        self._space = dict(check_space(search_space))
        rng = np.random.default_rng(secrets.randbits(256))
        self._candidates = choose_candidates(self._space, candidates, rng)
        self._k = validation.whole("k", k, 1)
        if self._k >= len(self._candidates):
            raise InvalidArgumentError(
                "k",
                k,
                allowed=f"it must be less than the number of candidates, {len(self._candidates)}",
                fix="Each client votes for its k best; a vote for all of them says nothing.",
            )
        self._epsilon = validation.positive("epsilon", epsilon)
        self._delta = validation.open_unit("delta", delta)
        self._adjacency = checked_adjacency(adjacency)
        self._max_dropout = validation.whole("max_dropout", max_dropout)
        self._max_colluding = validation.whole("max_colluding", max_colluding)
        self._direction = checked_direction(direction)
        self._transport = SecureSum() if secure_aggregation is None else secure_aggregation
        if not isinstance(self._transport, SecureSum | PlainSum):
            raise InvalidArgumentError(
                "secure_aggregation",
                secure_aggregation,
                allowed="it must be SecureSum() or PlainSum()",
            )
        self._retries = validation.whole("retries", retries)
        self._rounds = validation.whole("rounds", rounds, 1)
        self._held = 0
        # What has been asked for in all rounds so far, and the plan of all.
        self._asked = 0
        self._planned: VotePlan | None = None
        self._clients = None if clients is None else validation.whole("clients", clients, 1)
        self._timeout = None if timeout is None else validation.positive("timeout", timeout)
        self._progress = progress or _logger.info
        if self._clients is not None:
            self.plan(self._clients)

    @property
    def candidates(self) -> list[Params]:
        """The candidates, in the order of the votes."""
        return [dict(c) for c in self._candidates]

    def plan(self, clients: int) -> VotePlan:
        """Returns what a vote of this many clients looks like; refuses what cannot be done.

        Args:
            clients: How many clients are asked, at least 1.

        Raises:
            InvalidArgumentError: If they are too few for ``max_dropout`` and ``max_colluding``, or
                secure aggregation cannot keep the plan's promise.
        """
        plan = VotePlan.calibrated(
            clients=clients,
            candidates=len(self._candidates),
            votes=self._k,
            epsilon=self._epsilon,
            delta=self._delta,
            adjacency=self._adjacency,
            max_dropout=self._max_dropout,
            max_colluding=self._max_colluding,
            attempts=self._rounds * (1 + self._retries),
        )
        self._transport.check(plan)
        return plan

    def start(self, grid: Grid, context: Context) -> Release:
        """Runs the vote, or with ``rounds`` the next one.

        Args:
            grid: The grid of a server app.
            context: The context of a server app.

        Returns:
            The release: the winner as ``params``, its noisy number of votes as ``value``, all
            noisy votes as ``attributes["noisy_votes"]`` (they are paid for). Its guarantee is for
            everything that this vote has asked for so far, earlier rounds included.

        Raises:
            VoteFailedError: If no sum could be released; says what was spent so far.
            InvalidArgumentError: If the clients that are there are too few for the plan, or other
                in number than in an earlier round, or all rounds have been held.
        """
        if self._held == self._rounds:
            raise InvalidArgumentError(
                "rounds",
                self._rounds,
                problem="all of them have been held",
                fix="Plan more rounds at once, or start another vote and compose their "
                "guarantees.",
            )
        nodes = self._wait_for_nodes(grid)
        plan = self._plan_of_all_rounds(len(nodes))
        self._held += 1
        query = VoteQuery(
            self._space,
            self._candidates,
            self._direction,
            plan,
            secrets.token_hex(16),
        )
        self._progress(
            f"{len(nodes)} nodes, {plan.candidates} candidates, k = {plan.votes}, standard "
            f"deviation of the noise {plan.variance**0.5:.2f}"
        )
        server = Server(grid, context, self._timeout, self._progress)
        requests_before = self._asked
        attempt = self._last_attempt(server, nodes, query)
        requests = self._asked
        if attempt.sums is not None:
            return self._release(plan, attempt.sums, requests)
        if requests == requests_before:
            self._held -= 1  # Nobody was asked for anything.
        raise VoteFailedError(
            attempt.reason, requests, plan.guarantee(requests) if requests else None
        )

    def _last_attempt(self, server: Server, nodes: Sequence[int], query: VoteQuery) -> Attempt:
        """Tries until there is a sum, nobody was asked, or no retry is left; counts requests."""
        for retries_left in range(self._retries, -1, -1):
            attempt = self._attempt(server, nodes, query)
            self._asked += attempt.asked
            if attempt.sums is not None:
                break
            self._progress(f"attempt failed: {attempt.reason}")
            if not (attempt.asked and retries_left):
                break
        return attempt

    def _plan_of_all_rounds(self, clients: int) -> VotePlan:
        """The plan of the first round: the noise of all must be of one plan to be priced by it."""
        if self._planned is None:
            self._planned = self.plan(clients)
        elif self._planned.clients != clients:
            raise InvalidArgumentError(
                "clients",
                clients,
                problem=f"the first round was planned for {self._planned.clients}",
                fix="Hold all rounds with the same clients, or start another vote.",
            )
        return self._planned

    def _attempt(self, server: Server, nodes: Sequence[int], query: VoteQuery) -> Attempt:
        """One attempt that asks for votes, set up anew while nobody has been asked."""
        present = list(nodes)
        for _ in range(_SETUPS):
            attempt = self._transport.collect(server, present, query)
            if attempt.sums is not None or attempt.asked:
                return attempt
            # The noise counts on so many shares: who is lost before voting is a dropout too.
            if len(attempt.remaining) < query.plan.survivors_needed:
                return attempt
            present = sorted(attempt.remaining)
            self._progress(f"set-up again with {len(present)} nodes: {attempt.reason}")
        return attempt

    def _wait_for_nodes(self, grid: Grid) -> list[int]:
        quorum = 1 if self._clients is None else self._clients
        nodes: list[int] = []

        def enough() -> list[int] | None:
            nodes[:] = sorted(grid.get_node_ids())
            return nodes if len(nodes) >= quorum else None

        def give_up(waited: float) -> None:
            if self._timeout is not None and waited >= self._timeout:
                raise VoteFailedError(f"{len(nodes)} nodes are connected, {quorum} are wanted.", 0)

        return poll(enough, give_up)

    def _release(self, plan: VotePlan, sums: IntArray, attempts: int) -> Release:
        winner = argmax(sums)
        votes = [int(v) for v in sums]
        self._progress(f"candidate {winner} wins with {votes[winner]} noisy votes")
        settings = {
            "plan": plan.to_json(),
            "attempts": attempts,
            "objective": self._direction,
            "search": search_to_json(self._space, self._candidates),
            **self._transport.facts(),
        }
        return Release(
            params=dict(self._candidates[winner]),
            value=float(votes[winner]),
            guarantee=plan.guarantee(attempts),
            attributes={"noisy_votes": votes},
            distributions=dict(self._space),
            delta=self._delta,
            design=Design("vote", type(self).__name__, "maximize", False, settings),
        )
