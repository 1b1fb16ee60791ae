"""The clients' noisy votes summed by a server that sees them."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from flwr.app import ConfigRecord, Message, RecordDict

from optuna_dp.arrays import IntArray
from optuna_dp.federated.query import ACTION_PLAIN, QUERY_RECORD, VOTE_RECORD, VoteQuery
from optuna_dp.federated.replies import impossible
from optuna_dp.federated.transport import (
    Attempt,
    Server,
    Transport,
    entry_bound,
    rejected,
    vector_of,
)
from optuna_dp.voting.plan import VotePlan

_logger = logging.getLogger("optuna_dp")


@dataclass(frozen=True)
class PlainSum(Transport):
    """The server sees each client's noisy vote and adds. It must be trusted.

    One client's share of the noise protects little by itself; what is released protects as
    planned.
    """

    def facts(self) -> dict[str, Any]:
        return {"sum": "plain"}

    def collect(self, server: Server, nodes: Sequence[int], query: VoteQuery) -> Attempt:
        content = RecordDict({QUERY_RECORD: ConfigRecord({"query": query.to_json()})})
        messages = [
            Message(content, dst_node_id=node, message_type=ACTION_PLAIN) for node in nodes
        ]
        server.progress(f"asking {len(nodes)} nodes for their votes (plain sum)")
        total = np.zeros(query.plan.candidates, dtype=np.int64)
        silent_nodes = set(nodes)
        try:
            replies = list(server.grid.send_and_receive(messages, timeout=server.timeout))
        except Exception as error:  # of the grid; what was sent is spent
            _logger.warning("The sum failed.", exc_info=True)
            reason = f"The sum failed ({type(error).__name__})."
            return Attempt(None, 0, True, tuple(nodes), reason)
        for reply in replies:
            node = reply.metadata.src_node_id
            vote = None if node not in silent_nodes else _plain_vote(reply, query.plan)
            if vote is not None:
                silent_nodes.discard(node)
                total += vote
        votes = len(nodes) - len(silent_nodes)
        server.progress(f"{votes} of {len(nodes)} nodes voted")
        quorum = query.plan.survivors_needed
        if votes < quorum:
            reason = f"{votes} usable votes came, and {quorum} are needed for the planned noise."
            return Attempt(None, votes, True, tuple(nodes), reason)
        return Attempt(total, votes, True, tuple(nodes))


def _plain_vote(reply: Message, plan: VotePlan) -> IntArray | None:
    """Returns the vote of a reply, None if it is not one and nothing but one."""
    if reply.has_error():
        return None
    records = reply.content
    arrays = records.array_records
    if set(records) != {VOTE_RECORD} or set(arrays.get(VOTE_RECORD, {})) != {"sum"}:
        rejected(reply, "it must hold the vote and nothing else")
        return None
    array = arrays[VOTE_RECORD]["sum"]
    vote = vector_of(array.data, (plan.candidates,)) if array.stype == "numpy.ndarray" else None
    if vote is None:
        rejected(reply, f"the vote must be {plan.candidates} 64-bit whole numbers")
        return None
    bound = entry_bound(plan)
    if np.any(vote > bound) or np.any(vote < -bound):
        rejected(reply, f"an entry lies beyond {bound}")
        return None
    reason = impossible(plan, vote, 1)
    if reason:
        rejected(reply, reason)
        return None
    return vote
