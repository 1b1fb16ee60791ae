"""Parts that all ways to sum the clients' noisy votes share.

There are two: :mod:`optuna_dp.federated.plain_sum` and :mod:`optuna_dp.federated.secagg`. Both
check replies before anything is done with them; a malformed one counts as a client that dropped
out.
"""

from __future__ import annotations

import io
import logging
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
from flwr.app import Context, Message
from flwr.serverapp import Grid

from optuna_dp.arrays import IntArray
from optuna_dp.federated.query import VoteQuery
from optuna_dp.voting.plan import VotePlan

_logger = logging.getLogger("optuna_dp")

MODULUS = 1 << 32
SECAGG_CONFIG = "secaggplus_configs"

# Entries of a vote stay within k plus this many standard deviations, but for one in 10^300.
_DEVIATIONS = 40

_LONGEST_HEADER = 4096
# Far more than any key or share takes.
_LONGEST = 4096

Progress = Callable[[str], None]


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

    def facts(self) -> dict[str, Any]:
        """Returns what a privacy statement must say of it, JSON values."""

    def collect(self, server: Server, nodes: Sequence[int], query: VoteQuery) -> Attempt:
        """Asks the nodes for their votes and returns the sum."""


def entry_bound(plan: VotePlan) -> int:
    """Returns a power of two that no honest entry reaches, but for odds of one in 10^300."""
    return 1 << int(plan.votes + noise_bound(float(plan.share_variance))).bit_length()


def noise_bound(variance: float) -> float:
    """Returns what Skellam noise of a variance exceeds with a probability below 1e-300 only."""
    return float(_DEVIATIONS * variance**0.5 + 2 * _DEVIATIONS**2)


def vector_of(data: Any, shape: tuple[int, ...]) -> IntArray | None:
    """Returns the 64-bit whole numbers in the bytes of a file of numpy, None if there is more.

    The header is read before memory is taken: it may name any size.
    """
    size = 8 * math.prod(shape)
    if not isinstance(data, bytes) or not size <= len(data) <= size + _LONGEST_HEADER:
        return None
    stream = io.BytesIO(data)
    try:
        if np.lib.format.read_magic(stream) != (1, 0):
            return None
        header = np.lib.format.read_array_header_1_0(stream)
    except Exception:  # whatever a stranger's bytes make numpy raise
        return None
    if header != (shape, False, np.dtype(np.int64)) or len(data) != stream.tell() + size:
        return None
    return np.frombuffer(data, dtype=np.int64, offset=stream.tell()).reshape(shape)


def short(value: Any) -> bool:
    """Returns whether a value may be a key, or a share of one."""
    return isinstance(value, bytes) and 0 < len(value) <= _LONGEST


def rejected(reply: Message, reason: str) -> None:
    """Says in the log which reply was not used, and why."""
    _logger.warning("A reply of node %d was rejected: %s.", reply.metadata.src_node_id, reason)
