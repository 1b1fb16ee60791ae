"""The clients' noisy votes summed under masks: the server's side of the secure sum.

The stages are described in :mod:`optuna_dp.federated.secure_client`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar, cast

import numpy as np
from flwr.app import ConfigRecord, RecordDict

from optuna_dp.core.arrays import IntArray
from optuna_dp.errors import InvalidArgumentError
from optuna_dp.federated.query import ACTION_SECURE, SECURE_RECORD, VoteQuery
from optuna_dp.federated.secure_keys import (
    LETTER,
    SHARE,
    Words,
    combine_shares,
    is_public_key,
    mask,
    pair_mask,
    view_of,
)
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

_STAGES = ("set_up", "share", "vote", "open")
_MODULUS = 1 << 32

_Read = TypeVar("_Read")


@dataclass(frozen=True)
class SecureSum(Transport):
    """The clients mask their noisy votes: the server learns the sum and nothing else.

    Bonawitz et al., CCS 2017 (the protocol), with X25519 keys and ChaCha20 masks of 256 bits. It
    needs three clients or more.

    Guarantees:
        * A server that follows the protocol, together with at most ``max_colluding`` clients that
          tell what they know, learns the sum of the votes and who took part. What holds if the
          server lies is in ``docs/explanation/voting.md``.
        * The sum equals the plain sum of the votes that arrived, exactly. One that honest votes
          cannot have, or whose masks did not come off, is not released.
        * At least ``clients - max_dropout`` votes are in the sum, or the clients do not open it.
    """

    def threshold(self, plan: VotePlan) -> int:
        """Returns how many shares recover a secret."""
        return max(plan.clients // 2 + 1, plan.clients - plan.max_dropout)

    def check(self, plan: VotePlan) -> None:
        threshold = self.threshold(plan)
        if plan.clients < 3:
            raise InvalidArgumentError(
                "clients",
                plan.clients,
                problem="secure aggregation needs at least 3",
                fix="From the sum of two votes each client learns the other's.",
            )
        if plan.max_dropout > plan.clients - threshold:
            raise InvalidArgumentError(
                "max_dropout",
                plan.max_dropout,
                problem=f"secure aggregation of {plan.clients} clients survives "
                f"{plan.clients - threshold} dropouts at most",
                fix="More than half of the shares must be needed to open a mask.",
            )
        if plan.max_colluding >= threshold:
            raise InvalidArgumentError(
                "max_colluding",
                plan.max_colluding,
                allowed=f"it must be less than {threshold}, the number of shares that open a mask",
                fix="Lower max_dropout.",
            )
        if plan.clients * 2 * entry_bound(plan) >= _MODULUS:
            raise InvalidArgumentError(
                "clients",
                plan.clients,
                problem="the sum of that much noise does not fit into 32 bits",
                fix="Raise epsilon.",
            )

    def facts(self) -> dict[str, str]:
        return {"sum": "secure"}

    def collect(self, server: Server, nodes: Sequence[int], query: VoteQuery) -> Attempt:
        run = _Sum(server, sorted(nodes), query, self.threshold(query.plan))
        try:
            return run.attempt()
        except Exception as error:  # of the grid; what was sent is spent
            _logger.warning("The sum failed.", exc_info=True)
            return run.failed(f"The sum failed ({type(error).__name__}).")


class _Sum:
    """One attempt at a secure sum among some nodes, stage by stage."""

    def __init__(
        self, server: Server, nodes: Sequence[int], query: VoteQuery, threshold: int
    ) -> None:
        self._server, self._nodes, self._threshold = server, nodes, threshold
        self._plan, self._text = query.plan, query.to_json()
        self._asked = False
        self._voted = 0
        self._present: Sequence[int] = nodes

    def failed(self, reason: str) -> Attempt:
        """Returns the attempt as one without a sum."""
        return Attempt(None, self._voted, self._asked, tuple(self._present), reason)

    def attempt(self) -> Attempt:
        """Returns what came of all four stages."""
        nodes, plan = self._nodes, self._plan
        request = {"query": self._text, "clients": len(nodes), "threshold": self._threshold}
        keys = self._ask("set_up", dict.fromkeys(nodes, request), _keys)
        if len(keys) < len(nodes):
            return self._lost(keys)
        introduction = {"names": [*nodes], "keys": [key for node in nodes for key in keys[node]]}
        letters = self._ask("share", dict.fromkeys(nodes, introduction), self._letters)
        if len(letters) < len(nodes):
            return self._lost(letters)
        self._asked = True
        masked = self._ask("vote", self._delivered(letters), self._masked_vote)
        self._voted = len(masked)
        if self._voted < plan.survivors_needed:
            return self.failed(
                f"{self._voted} usable votes came, and {plan.survivors_needed} are needed for the "
                "planned noise."
            )
        voted, lost = sorted(masked), [node for node in nodes if node not in masked]
        question = {"voted": voted, "lost": lost}
        shares = self._ask("open", dict.fromkeys(voted, question), self._shares)
        if len(shares) < self._threshold:
            return self.failed("Too few clients sent the shares that open the sum.")
        try:
            total = self._unmasked(keys, masked, shares, voted, lost)
        except ValueError:
            total = None
        # Every client adds a one under a mask of its own: if their sum comes out as it should, the
        # masks were all taken off.
        if total is None or total[-1] != self._voted:
            return self.failed("The sum does not open: a client sent a wrong share or vote.")
        sums = total[:-1]
        reason = impossible(plan, sums, self._voted)
        if reason:
            return self.failed(f"The sum is not one of votes: {reason}.")
        return Attempt(sums, self._voted, True, tuple(self._present))

    def _ask(
        self,
        stage: str,
        requests: Mapping[int, Mapping[str, object]],
        read: Callable[[RecordDict], _Read | None],
    ) -> dict[int, _Read]:
        """Takes one stage, and says how many nodes it has left."""
        contents = {
            node: RecordDict({SECURE_RECORD: ConfigRecord({"stage": stage, **request})})
            for node, request in requests.items()
        }
        replies = ask(self._server, ACTION_SECURE, contents, read)
        self._present = sorted(replies)
        self._server.progress(
            f"secure sum, stage {_STAGES.index(stage) + 1} of 4 ({stage.replace('_', ' ')}): "
            f"{len(replies)} of {len(requests)} nodes"
        )
        return replies

    def _lost(self, replies: Mapping[int, object]) -> Attempt:
        """Everybody who was introduced has to write letters: the sum is set up anew."""
        return self.failed(f"{len(self._nodes) - len(replies)} nodes were lost before the vote.")

    def _delivered(
        self, letters: Mapping[int, Sequence[bytes]]
    ) -> dict[int, dict[str, list[bytes]]]:
        """The letters to each node, in the order of their senders."""
        inbox: dict[int, list[bytes]] = {node: [] for node in self._nodes}
        for sender in self._nodes:
            others = [node for node in self._nodes if node != sender]
            for recipient, letter in zip(others, letters[sender], strict=True):
                inbox[recipient].append(letter)
        return {node: {"letters": texts} for node, texts in inbox.items()}

    def _unmasked(
        self,
        keys: Mapping[int, Sequence[bytes]],
        masked: Mapping[int, Words],
        shares: Mapping[int, Sequence[bytes]],
        voted: Sequence[int],
        lost: Sequence[int],
    ) -> IntArray:
        """The sum of the masked votes without their masks; raises ValueError for wrong shares."""
        openers = sorted(shares)[: self._threshold]
        points = {node: self._nodes.index(node) + 1 for node in openers}
        secrets = {
            owner: combine_shares({points[node]: shares[node][i] for node in openers})
            for i, owner in enumerate([*voted, *lost])
        }
        size = self._plan.candidates + 1
        total = np.zeros(size, dtype=np.uint32)
        for node in voted:
            total += masked[node] - mask(secrets[node], size)
        # Masks between two clients whose votes are in the sum cancel.
        view = view_of(self._server.context.run_id, self._text, self._threshold, keys)
        for gone in lost:
            for node in voted:
                total -= pair_mask(secrets[gone], keys[node][0], view, node, gone, size)
        return total.astype(np.int32).astype(np.int64)  # from modulo 2^32 to around zero

    def _letters(self, content: RecordDict) -> list[bytes] | None:
        return _texts(content, "letters", len(self._nodes) - 1, LETTER)

    def _masked_vote(self, content: RecordDict) -> Words | None:
        data = only_entry(content, SECURE_RECORD, "masked")
        if not isinstance(data, bytes) or len(data) != 4 * (self._plan.candidates + 1):
            return None
        return np.frombuffer(data, dtype="<u4").astype(np.uint32)

    def _shares(self, content: RecordDict) -> list[bytes] | None:
        return _texts(content, "shares", len(self._nodes), SHARE)


def _keys(content: RecordDict) -> list[bytes] | None:
    keys = only_entry(content, SECURE_RECORD, "keys")
    if not isinstance(keys, list) or len(keys) != 2 or not all(map(is_public_key, keys)):
        return None
    return cast(list[bytes], keys)


def _texts(content: RecordDict, entry: str, count: int, length: int) -> list[bytes] | None:
    """So many texts of one length, if the content is these and nothing else."""
    texts = only_entry(content, SECURE_RECORD, entry)
    if not isinstance(texts, list) or len(texts) != count:
        return None
    if any(not isinstance(text, bytes) or len(text) != length for text in texts):
        return None
    return cast(list[bytes], texts)
