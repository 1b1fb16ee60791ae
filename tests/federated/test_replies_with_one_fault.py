"""A reply with one known fault is a dropout: the others' votes are counted."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytest.importorskip("flwr", reason='needs Flower: pip install "optuna-dp[federated]"')

from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.common import ndarray_to_bytes

from federated.in_process import Wire, vote, votes
from optuna_dp.federated import (
    PlainSum,
    VoteFailedError,
)

assert votes  # a fixture


def _with(reply: Message, **records: Any) -> Message:
    return Message(RecordDict({**dict(reply.content.items()), **records}), metadata=reply.metadata)  # type: ignore[call-overload]


def _array(reply: Message, array: np.ndarray) -> Message:
    return _with(reply, vote=ArrayRecord({"sum": Array(array)}))


def _unreadable(reply: Message) -> Message:
    broken = Array(dtype="int64", shape=(21,), stype="numpy.ndarray", data=b"nonsense")
    return _with(reply, vote=ArrayRecord({"sum": broken}))


PLAIN = {
    "a float": lambda r: _array(r, np.zeros(21)),
    "short": lambda r: _array(r, np.zeros(20, dtype=np.int64)),
    "two rows": lambda r: _array(r, np.zeros((21, 1), dtype=np.int64)),
    "huge": lambda r: _array(r, np.full(21, 1 << 40)),
    "hugely negative": lambda r: _array(r, np.full(21, np.iinfo(np.int64).min)),
    "unreadable": _unreadable,
    "a loss beside it": lambda r: _with(r, loss=MetricRecord({"loss": 0.5})),
    "another array": lambda r: _with(r, vote=ArrayRecord({"votes": Array(np.zeros(21, int))})),
    "nothing": lambda r: Message(RecordDict(), metadata=r.metadata),  # type: ignore[call-overload]
}


def _config(reply: Message, **values: Any) -> Message:
    old = dict(reply.content["secaggplus_configs"])
    return _with(reply, secaggplus_configs=ConfigRecord({**old, **values}))


def _masked(*arrays: np.ndarray) -> Any:
    return lambda r: _config(r, masked_params=[ndarray_to_bytes(a) for a in arrays])


ONE = np.array([1])
SECURE = {
    "a float": _masked(ONE, np.zeros(21)),
    "short": _masked(ONE, np.zeros(20, dtype=np.int64)),
    "a part missing": _masked(np.zeros(21, dtype=np.int64)),
    "out of range": _masked(ONE, np.full(21, 1 << 33)),
    "unreadable": lambda r: _config(r, masked_params=[b"x", b"y"]),
    "a weight": lambda r: _with(r, **{"fitres.num_examples": MetricRecord({"num_examples": 120})}),
    "a metric": lambda r: _with(r, **{"fitres.metrics": ConfigRecord({"accuracy": 0.9})}),
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
    with pytest.raises(VoteFailedError, match="5 usable votes"):
        vote(secure_aggregation=PlainSum()).start(Wire(6, wire._fault), wire.server_context())


@pytest.mark.parametrize("kind", SECURE)
def test_malformed_masked_votes_are_rejected(kind: str, votes: dict[int, Any]) -> None:
    wire = Wire(6, _fault("collect_masked_vectors", SECURE[kind]))
    release = vote(max_dropout=1).start(wire, wire.server_context())
    others = sum(made[0] for node, made in votes.items() if node != 2)
    assert release.attributes["noisy_votes"] == others.tolist()


@pytest.mark.parametrize(
    ("stage", "values"),
    [
        ("setup", {"pk1": 3}),
        ("share_keys", {"dsts": "all"}),
        ("share_keys", {"ctxts": [b"x"]}),
        ("unmask", {"nids": [1.5]}),
        ("unmask", {"shares": []}),
    ],
)
def test_malformed_protocol_messages_are_rejected(
    stage: str, values: dict[str, Any], votes: dict[int, Any]
) -> None:
    wire = Wire(6, _fault(stage, lambda r: _config(r, **values)))
    release = vote(max_dropout=1).start(wire, wire.server_context())
    assert (
        release.attributes["noisy_votes"]
        == sum(made[0] for node, made in votes.items() if node != 2 or stage == "unmask").tolist()
    )
