"""Replies that are wrong in some way, and votes that are held with them."""

from __future__ import annotations

import copy
import random
import secrets
from collections.abc import Callable, Iterable
from types import SimpleNamespace
from typing import Any
from unittest import mock

import numpy as np
from flwr.app import (
    Array,
    ArrayRecord,
    ConfigRecord,
    Error,
    Message,
    MetricRecord,
    RecordDict,
)

from federated.in_process import Wire, stage_of, vote
from optuna_dp.federated import server as server_side
from optuna_dp.federated.secure_client import Session
from optuna_dp.voting import VoteFailedError, VotePlan

CLIENTS, ALLOWED = 5, 1


class Replay(Wire):
    """Answers as recorded clients did, but for some replies; the server's side alone is run."""

    def __init__(self, wire: Wire) -> None:
        self.nodes = wire.nodes
        self._recorded: dict[tuple[str, int], Message] = {}
        for stage, reply in wire.transcript:
            self._recorded[stage, reply.metadata.src_node_id] = reply
        self.asked: dict[tuple[str, int], Message] = {}
        self.change: Callable[[str, int, Message], Message | None] = lambda s, n, reply: reply

    def send_and_receive(
        self, messages: Iterable[Message], *, timeout: float | None = None
    ) -> Iterable[Message]:
        found = []
        for message in messages:
            stage, node = stage_of(message), message.metadata.dst_node_id
            if (stage, node) not in self._recorded:
                continue
            self.asked[stage, node] = message
            changed = self.change(stage, node, self.honest(message))
            found += [] if changed is None else [changed]
        return found

    def honest(self, message: Message) -> Message:
        """What an honest client answers."""
        stage, node = stage_of(message), message.metadata.dst_node_id
        reply = self._recorded[stage, node]
        if stage == "open":
            reply = of(reply, {"secure_vote": self._shares(message, node)})
        return reply

    def _shares(self, message: Message, node: int) -> ConfigRecord:
        """What the client would answer: who is active differs from what was recorded."""
        session = Session.kept(self.nodes[node][1])
        return ConfigRecord({"shares": session.opened(message.content["secure_vote"])})


def one_name() -> Any:
    """Votes of one name: the keys of recorded clients are bound to it."""
    fixed = SimpleNamespace(token_hex=lambda size: "recorded", randbits=secrets.randbits)
    return mock.patch.object(server_side, "secrets", fixed)


def recorded(transport: Any) -> tuple[Any, Replay, list[int]]:
    wire = Wire(CLIENTS)
    chosen = vote(max_dropout=ALLOWED, secure_aggregation=transport)
    # A client forgets its secrets once a sum is opened; here each is opened again, changed.
    with one_name(), mock.patch.object(Session, "forget"):
        release = copy.copy(chosen).start(wire, wire.server_context())
    plan = chosen.plan(CLIENTS)
    chosen.plan = lambda clients: plan  # the same for every replay
    return chosen, Replay(wire), release.attributes["noisy_votes"]


def of(reply: Message, records: dict[str, Any]) -> Message:
    return Message(RecordDict(records), metadata=reply.metadata)  # type: ignore[call-overload]


def junk(rng: random.Random, value: Any) -> Any:
    """Another value that a record may hold; often one that looks much like this one."""
    if isinstance(value, bytes) and rng.random() < 0.7 and value:
        found = bytearray(value)
        kind = rng.randrange(5)
        if kind == 0:
            found[rng.randrange(len(found))] ^= 1 << rng.randrange(8)
        elif kind == 1:
            del found[rng.randrange(len(found)) :]
        elif kind == 2:
            found += rng.randbytes(rng.randrange(1, 40))
        elif kind == 3:
            found = bytearray(len(found))
        else:
            found = bytearray(rng.randbytes(len(found)))
        return bytes(found)
    if isinstance(value, list) and value and rng.random() < 0.8:
        listed, i = list(value), rng.randrange(len(value))
        kind = rng.randrange(5)
        if kind == 0:
            other = junk(rng, listed[i])
            if not isinstance(listed[i], bytes):
                other = rng.choice([0, -1, 1 << 62, listed[rng.randrange(len(listed))]])
            listed[i] = other if isinstance(other, type(listed[i])) else b""
        elif kind == 1:
            del listed[i]
        elif kind == 2:
            listed.append(listed[i])
        elif kind == 3:
            rng.shuffle(listed)
        else:
            listed = [listed[i]] * len(listed)
        return listed
    return rng.choice(
        [0, -1, 1 << 62, 0.5, float("nan"), True, "", "x", b"", b"\x00" * 9, [], [1]]
    )


def damaged(rng: random.Random, reply: Message) -> Message | None:
    """Returns a reply that is wrong in some way, or None for a node that is silent."""
    kind = rng.randrange(12)
    if kind == 0:
        return None
    if kind == 1:
        return Message(Error(code=rng.randrange(5), reason="x"), metadata=reply.metadata)  # type: ignore[call-overload]
    records = {name: copy.deepcopy(record) for name, record in reply.content.items()}
    name = rng.choice(list(records))
    if kind == 2:
        del records[name]
    elif kind == 3:
        extra: Any = rng.choice(
            [
                ConfigRecord({"a": 1}),
                MetricRecord({"loss": 0.5}),
                ArrayRecord({"sum": Array(np.zeros(21))}),
            ]
        )
        records[rng.choice([name, "more"])] = extra
    elif isinstance(records[name], ConfigRecord) and len(records[name]):
        values = dict(records[name])
        key = rng.choice(list(values))
        if kind == 4:
            del values[key]
        elif kind == 5:
            values["more"] = values[key]
        else:
            values[key] = junk(rng, values[key])
        records[name] = ConfigRecord(values)
    else:
        del records[name]
    return of(reply, records)


def tried(chosen: Any, grid: Replay) -> list[int] | None:
    """The noisy votes; None if the vote failed as votes should."""
    failed = None
    chosen = copy.copy(chosen)  # every replay is the first vote
    try:
        with one_name():
            release = chosen.start(grid, grid.server_context())
    except VoteFailedError as error:
        failed = error
    if failed is not None:
        assert (failed.guarantee is None) == (failed.attempts == 0)
        return None
    return list(release.attributes["noisy_votes"])


def possible(noisy_votes: list[int], plan: VotePlan) -> bool:
    """Whether honest votes may have this sum, by far wider bounds than the server's own."""
    found, spread = np.array(noisy_votes), float(plan.share_variance) * plan.clients
    entry, total = (60 * (spread * n) ** 0.5 + 10_000 for n in (1, plan.candidates))
    most = plan.clients * plan.votes
    near = -entry <= found.min() and found.max() <= plan.clients + entry
    return bool(near and -total <= found.sum() <= most + total)


def held_with_damaged(transport: Any, stage: str, count: int, seed: int) -> dict[str, int]:
    """Holds votes with one or two damaged replies each, and says what came of them."""
    rng = random.Random(seed)
    chosen, grid, honest = recorded(transport)
    plan = chosen.plan(CLIENTS)
    outcomes = {"as without it": 0, "without that client": 0, "failed": 0}
    planted = 0
    while planted < count:
        faulty = rng.sample(sorted(grid.nodes), rng.choice([1, 1, 1, 2]))
        planted += len(faulty)

        def change(at: str, node: int, reply: Message, who: Any = faulty) -> Any:
            return damaged(rng, reply) if at == stage and node in who else reply

        grid.change = change
        found = tried(chosen, grid)
        if found is None:
            outcomes["failed"] += 1
            continue
        outcomes["as without it" if found == honest else "without that client"] += 1
        if found != honest:
            assert stage in ("plain", "vote")
            assert possible(found, plan)
    return outcomes
