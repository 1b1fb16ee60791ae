"""The clients' noisy votes summed by a server that sees them."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from flwr.app import ConfigRecord, RecordDict

from optuna_dp.core.arrays import IntArray
from optuna_dp.federated.query import ACTION_PLAIN, PLAIN_RECORD, VoteQuery
from optuna_dp.federated.transport import (
    Attempt,
    Server,
    Transport,
    ask,
    entry_bound,
    impossible,
    only_entry,
)
from optuna_dp.voting.plan import VotePlan

_logger = logging.getLogger("optuna_dp")


@dataclass(frozen=True)
class PlainSum(Transport):
    """The server sees each client's noisy vote and adds. It must be trusted.

    One client's share of the noise protects little by itself; what is released protects as
    planned.
    """

    def facts(self) -> dict[str, str]:
        return {"sum": "plain"}

    def collect(self, server: Server, nodes: Sequence[int], query: VoteQuery) -> Attempt:
        plan = query.plan
        content = RecordDict({PLAIN_RECORD: ConfigRecord({"query": query.to_json()})})
        server.progress(f"asking {len(nodes)} nodes for their votes (plain sum)")
        try:
            votes = ask(
                server,
                ACTION_PLAIN,
                dict.fromkeys(nodes, content),
                lambda reply: _vote(reply, plan),
            )
        except Exception as error:  # of the grid; what was sent is spent
            _logger.warning("The sum failed.", exc_info=True)
            reason = f"The sum failed ({type(error).__name__})."
            return Attempt(None, 0, True, tuple(nodes), reason)
        server.progress(f"{len(votes)} of {len(nodes)} nodes voted")
        quorum = plan.survivors_needed
        if len(votes) < quorum:
            reason = (
                f"{len(votes)} usable votes came, and {quorum} are needed for the planned noise."
            )
            return Attempt(None, len(votes), True, tuple(nodes), reason)
        total = np.sum([*votes.values()], axis=0)
        return Attempt(total, len(votes), True, tuple(nodes))


def _vote(content: RecordDict, plan: VotePlan) -> IntArray | None:
    """The vote of a reply, None if it is not one and nothing but one."""
    data = only_entry(content, PLAIN_RECORD, "vote")
    if not isinstance(data, bytes) or len(data) != 8 * plan.candidates:
        return None
    vote = np.frombuffer(data, dtype="<i8").astype(np.int64)
    bound = entry_bound(plan)
    if np.any(vote > bound) or np.any(vote < -bound) or impossible(plan, vote, 1):
        return None
    return vote
