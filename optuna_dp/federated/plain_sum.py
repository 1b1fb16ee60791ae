"""The clients' noisy votes summed by a server that sees them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.serverapp import Grid

from optuna_dp.arrays import IntArray
from optuna_dp.federated.query import ACTION_PLAIN, QUERY_RECORD, VOTE_RECORD, VoteQuery
from optuna_dp.federated.transport import Attempt, Progress, entry_bound, rejected
from optuna_dp.voting.plan import VotePlan


@dataclass(frozen=True)
class PlainSum:
    """The server sees each client's noisy vote and adds. It must be trusted.

    One client's share of the noise protects little by itself; what is released protects as
    planned.
    """

    def check(self, plan: VotePlan) -> None:
        """See :class:`.Transport`."""

    def facts(self) -> dict[str, Any]:
        """See :class:`.Transport`."""
        return {"sum": "plain"}

    def masks_for(self) -> str:
        """See :class:`.Transport`."""
        return ""

    def collect(
        self,
        grid: Grid,
        context: Context,
        nodes: Sequence[int],
        query: VoteQuery,
        timeout: float | None,
        progress: Progress,
    ) -> Attempt:
        """See :class:`.Transport`."""
        content = RecordDict({QUERY_RECORD: ConfigRecord({"query": query.to_json()})})
        messages = [
            Message(content, dst_node_id=node, message_type=ACTION_PLAIN) for node in nodes
        ]
        progress(f"asking {len(nodes)} nodes for their votes (plain sum)")
        p, bound = query.plan.candidates, entry_bound(query.plan)
        total = np.zeros(p, dtype=np.int64)
        waiting = set(nodes)
        for reply in grid.send_and_receive(messages, timeout=timeout):
            node = reply.metadata.src_node_id
            vote = None if node not in waiting else _plain_vote(reply, p, bound)
            if vote is not None:
                waiting.discard(node)
                total += vote
        voted = len(nodes) - len(waiting)
        progress(f"{voted} of {len(nodes)} nodes voted")
        needed = query.plan.survivors_needed
        if voted < needed:
            reason = f"{voted} usable votes came, and {needed} are needed for the planned noise."
            return Attempt(None, voted, True, tuple(nodes), reason)
        return Attempt(total, voted, True, tuple(nodes))


def _plain_vote(reply: Message, p: int, bound: int) -> IntArray | None:
    """Returns the vote of a reply, None if it is not one and nothing but one."""
    if reply.has_error():
        return None
    records = reply.content
    arrays = records.array_records
    if set(records) != {VOTE_RECORD} or set(arrays.get(VOTE_RECORD, {})) != {"sum"}:
        rejected(reply, "it must hold the vote and nothing else")
        return None
    try:
        vote = arrays[VOTE_RECORD]["sum"].numpy()
    except (ValueError, TypeError, EOFError, OSError):
        rejected(reply, "its array cannot be read")
        return None
    if vote.dtype != np.int64 or vote.shape != (p,):
        rejected(reply, f"the vote must be {p} 64-bit whole numbers")
        return None
    if np.any(vote > bound) or np.any(vote < -bound):
        rejected(reply, f"an entry lies beyond {bound}")
        return None
    return cast(IntArray, vote)
