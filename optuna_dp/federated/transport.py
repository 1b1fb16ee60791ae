"""Parts that both ways to sum the clients' noisy votes share.

There are two: :mod:`optuna_dp.federated.plain_sum` and :mod:`optuna_dp.federated.secure_sum`. Both
read replies with :func:`ask`: a malformed one counts as a client that dropped out.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol, TypeVar

import numpy as np
from flwr.app import Context, Message, RecordDict
from flwr.serverapp import Grid

from optuna_dp.core.arrays import IntArray
from optuna_dp.federated.query import VoteQuery
from optuna_dp.voting.plan import VotePlan

_logger = logging.getLogger("optuna_dp")

# Entries of a vote stay within k plus this many standard deviations, but for one in 10^300.
_DEVIATIONS = 40

Progress = Callable[[str], None]

_Read = TypeVar("_Read")


class Server(NamedTuple):
    """What a server asks with, how long it waits for replies, and to whom it tells."""

    grid: Grid
    context: Context
    timeout: float | None
    progress: Progress


@dataclass(frozen=True)
class Attempt:
    """What came of one attempt at a sum.

    Attributes:
        sums: The noisy sum, None if there is none.
        voted: How many clients' votes are in it, or were received.
        asked: Whether any client was asked for its vote, which is charged.
        remaining: Nodes worth asking again.
    """

    sums: IntArray | None
    voted: int
    asked: bool
    remaining: tuple[int, ...]
    reason: str = ""


class Transport(Protocol):
    """A way to sum votes."""

    def check(self, plan: VotePlan) -> None:
        """Refuses plans that it cannot carry out; by default none."""

    def facts(self) -> dict[str, str]:
        """Returns what a privacy statement must say of it, JSON values."""

    def collect(self, server: Server, nodes: Sequence[int], query: VoteQuery) -> Attempt:
        """Asks the nodes for their votes and returns the sum."""


def ask(
    server: Server,
    action: str,
    contents: Mapping[int, RecordDict],
    read: Callable[[RecordDict], _Read | None],
) -> dict[int, _Read]:
    """Sends one message to each node, and returns what was read of their replies, by node.

    Args:
        server: What is asked with.
        action: The type of the messages.
        contents: What each node is sent.
        read: Returns what is needed of a reply; None if it is not what an honest client sends.
    """
    messages = [
        Message(content, dst_node_id=node, message_type=action)
        for node, content in contents.items()
    ]
    replies: dict[int, _Read] = {}
    for reply in server.grid.send_and_receive(messages, timeout=server.timeout):
        node = reply.metadata.src_node_id
        if node not in contents or node in replies:
            _reject(reply, "the node was not asked, or has answered already")
            continue
        if reply.has_error():
            continue
        answer = read(reply.content)
        if answer is None:
            _reject(reply, "it is malformed")
            continue
        replies[node] = answer
    return replies


def _reject(reply: Message, reason: str) -> None:
    _logger.warning("A reply of node %d was rejected: %s.", reply.metadata.src_node_id, reason)


def only_entry(content: RecordDict, record: str, entry: str) -> object:
    """Returns an entry of a record, if the content is this and nothing else; otherwise None."""
    values = content.config_records.get(record)
    if values is None or set(content) != {record} or set(values) != {entry}:
        return None
    return values[entry]


def entry_bound(plan: VotePlan) -> int:
    """Returns a power of two that no honest entry reaches, but for odds of one in 10^300."""
    return 1 << int(plan.votes + noise_bound(float(plan.share_variance))).bit_length()


def noise_bound(variance: float) -> float:
    """Returns what Skellam noise of a variance exceeds with a probability below 1e-300 only."""
    return float(_DEVIATIONS * variance**0.5 + 2 * _DEVIATIONS**2)


def impossible(plan: VotePlan, sums: IntArray, votes: int) -> str:
    """Returns why no honest votes, so many, have this sum, shape (candidates,); else "".

    It happens to honest votes with a probability below 1e-300.
    """
    bound = noise_bound(float(plan.share_variance) * votes)
    if bool(np.any(sums < -bound)) or bool(np.any(sums > votes + bound)):
        return "an entry lies beyond what votes and their noise can be"
    total_bound = noise_bound(float(plan.share_variance) * votes * len(sums))
    if abs(int(sums.sum()) - votes * plan.votes) > total_bound:
        return "there are more votes in it, or fewer, than votes and their noise can be"
    return ""
