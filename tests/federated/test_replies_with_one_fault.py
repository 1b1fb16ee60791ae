"""A reply with one known fault is a dropout: the others' votes are counted."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytest.importorskip("flwr", reason='needs Flower: pip install "optuna-dp[federated]"')

from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict

from federated.in_process import Wire, vote, votes
from optuna_dp.federated import PlainSum
from optuna_dp.voting import VoteFailedError

assert votes  # a fixture


def _with(reply: Message, **records: Any) -> Message:
    return Message(RecordDict({**dict(reply.content.items()), **records}), metadata=reply.metadata)  # type: ignore[call-overload]


def _entry(record: str, entry: str, value: Any) -> Any:
    return lambda reply: _with(reply, **{record: ConfigRecord({entry: value})})


def _vote(array: np.ndarray) -> Any:
    return _entry("vote", "vote", array.tobytes())


PLAIN = {
    "a text": _entry("vote", "vote", "21 votes"),
    "short": _vote(np.zeros(20, dtype=np.int64)),
    "long": _vote(np.zeros(22, dtype=np.int64)),
    "huge": _vote(np.full(21, 1 << 40)),
    "hugely negative": _vote(np.full(21, np.iinfo(np.int64).min)),
    "a loss beside it": lambda r: _with(r, loss=MetricRecord({"loss": 0.5})),
    "another entry": _entry("vote", "votes", bytes(8 * 21)),
    "an array": lambda r: _with(r, vote=ArrayRecord({"vote": Array(np.zeros(21, int))})),
    "nothing": lambda r: Message(RecordDict(), metadata=r.metadata),  # type: ignore[call-overload]
}


def _secure(entry: str, value: Any) -> Any:
    return _entry("secure_vote", entry, value)


SECURE = {
    "a text": _secure("masked", "22 numbers"),
    "short": _secure("masked", bytes(4 * 21)),
    "long": _secure("masked", bytes(4 * 23)),
    "another entry": _secure("vote", bytes(4 * 22)),
    "a number of records": lambda r: _with(r, more=MetricRecord({"num_examples": 120})),
    "no record": lambda r: Message(RecordDict(), metadata=r.metadata),  # type: ignore[call-overload]
}


def _fault(stage: str, change: Any) -> Any:
    return lambda asked, node, before, reply: (
        change(reply) if asked == stage and node == 2 else reply
    )


@pytest.mark.parametrize("kind", PLAIN)
def test_malformed_plain_votes_are_rejected(kind: str, votes: dict[int, Any]) -> None:
    wire = Wire(6, _fault("plain", PLAIN[kind]))
    chosen = vote(max_dropout=1, secure_aggregation=PlainSum())
    release = chosen.start(wire, wire.server_context())
    others = sum(made[0] for node, made in votes.items() if node != 2)
    assert release.attributes["noisy_votes"] == others.tolist()
    with pytest.raises(VoteFailedError, match=r"\b5\b"):
        vote(secure_aggregation=PlainSum()).start(Wire(6, wire._fault), wire.server_context())


@pytest.mark.parametrize("kind", SECURE)
def test_malformed_masked_votes_are_rejected(kind: str, votes: dict[int, Any]) -> None:
    wire = Wire(6, _fault("vote", SECURE[kind]))
    release = vote(max_dropout=1).start(wire, wire.server_context())
    others = sum(made[0] for node, made in votes.items() if node != 2)
    assert release.attributes["noisy_votes"] == others.tolist()


@pytest.mark.parametrize(
    ("stage", "entry", "value"),
    [
        ("set_up", "keys", 3),
        ("set_up", "keys", [bytes(range(32))]),
        ("set_up", "keys", [bytes(range(32)), bytes(range(31))]),
        ("set_up", "keys", [bytes(range(32)), bytes(32)]),  # its shared secrets are all zero
        ("share", "letters", "all"),
        ("share", "letters", [b"x"]),
        ("share", "letters", [b"x"] * 5),
        ("open", "shares", [1.5]),
        ("open", "shares", []),
    ],
)
def test_malformed_protocol_messages_are_rejected(
    stage: str, entry: str, value: Any, votes: dict[int, Any]
) -> None:
    wire = Wire(6, _fault(stage, _secure(entry, value)))
    release = vote(max_dropout=1).start(wire, wire.server_context())
    counted = [made[0] for node, made in votes.items() if node != 2 or stage == "open"]
    assert release.attributes["noisy_votes"] == sum(counted).tolist()
