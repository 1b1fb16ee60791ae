"""What the server gets to see."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from refusals import refuses

pytest.importorskip("flwr", reason='needs Flower: pip install "optuna-dp[federated]"')

from flwr.app import Array, Context
from flwr.clientapp import ClientApp
from scipy import stats

from federated.in_process import WILLING, Wire, app, failing, vote, votes
from optuna_dp.federated import (
    InProcessGrid,
    PlainSum,
    SecureSum,
    VotePolicy,
    secure_client,
    secure_sum,
    voter,
)
from optuna_dp.federated.client import Voter
from optuna_dp.voting import VoteFailedError

assert votes  # a fixture


def masked_vectors(wire: Wire) -> list[np.ndarray]:
    return [
        np.frombuffer(reply.content["secure_vote"]["masked"], dtype="<u4")
        for stage, reply in wire.transcript
        if stage == "vote" and not reply.has_error()
    ]


def everything(wire: Wire) -> bytes:
    """All bytes of all records of all replies, and their numbers as text."""
    seen = []
    for _, reply in wire.transcript:
        if reply.has_error():
            seen.append(repr(reply.error).encode())
            continue
        for name, record in reply.content.items():
            for key, value in record.items():
                seen += [name.encode(), key.encode()]
                items = value if isinstance(value, list) else [value]
                for item in items:
                    content = item.data if isinstance(item, Array) else item
                    seen.append(content if isinstance(content, bytes) else repr(content).encode())
    return b"\x00".join(seen)


def test_a_transcript_of_the_secure_sum_contains_no_unmasked_vote(votes: dict[int, Any]) -> None:
    wire = Wire(12, failing(3, stage="open"))
    chosen = vote(max_dropout=2)
    chosen.start(wire, wire.server_context())
    seen = everything(wire)
    found = masked_vectors(wire)
    assert len(found) == len(votes) == 12
    for made in votes.values():
        for kind in (np.int64, np.float64, np.int32, np.uint32):
            assert made[0].astype(kind).tobytes() not in seen
        for masked in found:
            assert (masked[:-1] != made[0].astype(np.uint32)).sum() > 15
    # Nothing else about a client is said.
    entries = {"set_up": "keys", "share": "letters", "vote": "masked", "open": "shares"}
    for stage, reply in wire.transcript:
        if not reply.has_error():
            assert set(reply.content) == {"secure_vote"}
            assert set(reply.content["secure_vote"]) == {entries[stage]}


def test_the_transcript_test_would_notice_an_unmasked_vote(
    votes: dict[int, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def none(*arguments: Any) -> np.ndarray:
        return np.zeros(arguments[-1], dtype=np.uint32)

    for side in (secure_client, secure_sum):
        monkeypatch.setattr(side, "mask", none)
        monkeypatch.setattr(side, "pair_mask", none)
    wire = Wire(5)
    vote().start(wire, wire.server_context())
    assert votes[0][0].astype(np.uint32).tobytes() in everything(wire)


@pytest.mark.parametrize("kind", ["mask", "pair_mask"])
def test_masks_of_one_kind_alone_hide_a_vote(
    kind: str, votes: dict[int, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those between two clients, when the seeds are opened; a client's own until then."""
    for side in (secure_client, secure_sum):
        monkeypatch.setattr(side, kind, lambda *a: np.zeros(a[-1], dtype=np.uint32))
    wire = Wire(5)
    vote().start(wire, wire.server_context())
    seen = everything(wire)
    assert not any(made[0].astype(np.uint32).tobytes() in seen for made in votes.values())


def test_masked_vectors_look_uniform() -> None:
    found = []
    for _ in range(3):
        wire = Wire(12)
        vote().start(wire, wire.server_context())
        found += masked_vectors(wire)
    values = np.concatenate(found).astype(np.float64) / 2.0**32
    assert stats.kstest(values, "uniform").pvalue > 1e-9


def test_nothing_of_an_exception_leaves_the_client() -> None:
    made = ClientApp()

    @voter(made, policy=WILLING)
    def objective(params: dict[str, Any], context: Context) -> float:
        raise ValueError("patient 17 has the flu")

    wire = Wire(4)
    wire.nodes = InProcessGrid(made, [{}] * 4).nodes
    release = vote(secure_aggregation=PlainSum()).start(wire, wire.server_context())
    assert release.params is not None  # all candidates are equally bad
    assert b"patient" not in everything(wire)


def test_a_failing_vote_is_reported_without_its_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*args: Any) -> None:
        raise RuntimeError("patient 17 has the flu")

    monkeypatch.setattr(Voter, "vote", broken)
    for transport in (PlainSum(), SecureSum()):
        wire = Wire(4)
        with pytest.raises(VoteFailedError):
            vote(secure_aggregation=transport).start(wire, wire.server_context())
        assert b"refused" in everything(wire)
        assert b"patient" not in everything(wire)


def test_a_plain_reply_holds_the_vote_and_nothing_else(votes: dict[int, Any]) -> None:
    wire = Wire(4)
    vote(secure_aggregation=PlainSum()).start(wire, wire.server_context())
    for _, reply in wire.transcript:
        assert set(reply.content) == {"vote"}
        assert set(reply.content["vote"]) == {"vote"}


def test_clients_evaluate_once_for_all_attempts() -> None:
    calls: list[int] = []
    made = ClientApp()

    @voter(made, policy=WILLING)
    def objective(params: dict[str, Any], context: Context) -> float:
        calls.append(context.node_id)
        return 0.0

    wire = Wire(4, failing(1, stage="plain", times=1))
    wire.nodes = InProcessGrid(made, [{}] * 4).nodes
    release = vote(secure_aggregation=PlainSum(), retries=1).start(wire, wire.server_context())
    assert release.design.settings["attempts"] == 2
    assert len(calls) == 4 * 21


def test_a_client_may_set_a_limit() -> None:
    assert app(max_epsilon=5.0) is not None
    wire = Wire(4, max_epsilon=2.0)
    vote(epsilon=2.0).start(wire, wire.server_context())
    wire = Wire(4, max_epsilon=1.9)
    with pytest.raises(VoteFailedError):
        vote(epsilon=2.0).start(wire, wire.server_context())
    with refuses("max_epsilon"):
        app(max_epsilon=-1.0)


def test_a_server_that_lies_about_the_noise_is_refused(
    votes: dict[int, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    import dataclasses

    chosen = vote(epsilon=2.0, secure_aggregation=PlainSum())
    honest = chosen.plan(4)
    lie = dataclasses.replace(honest, share_units=honest.share_units // 4)
    monkeypatch.setattr(chosen, "plan", lambda clients: lie)
    wire = Wire(4, policy=VotePolicy(max_epsilon=2.0, server="trusted"))
    with pytest.raises(VoteFailedError):
        chosen.start(wire, wire.server_context())
    assert votes == {}


def test_a_node_votes_once(votes: dict[int, Any]) -> None:
    class Echo(Wire):
        def send_and_receive(self, messages: Any, *, timeout: float | None = None) -> Any:
            replies = list(super().send_and_receive(messages, timeout=timeout))
            return [*replies, replies[0]]

    for transport in (PlainSum(), SecureSum()):
        votes.clear()
        wire = Echo(5)
        release = vote(secure_aggregation=transport).start(wire, wire.server_context())
        assert release.attributes["noisy_votes"] == sum(m[0] for m in votes.values()).tolist()


def test_flower_is_needed_only_when_it_is_used() -> None:
    code = """
import sys
sys.modules["flwr"] = None
import optuna_dp, optuna_dp.voting, optuna_dp.federated
from optuna_dp.errors import MissingExtraError
for name in ("FederatedVote", "voter", "InProcessGrid", "SecureSum"):
    try:
        getattr(optuna_dp.federated, name)
    except MissingExtraError as error:
        assert 'optuna-dp[federated]' in str(error), error
    else:
        raise AssertionError(name)
"""
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize(
    ("clients", "threshold"), [(6, 3), (6, 5), (6, 7), (5, 6), (7, 7), (1, 1), (6, 6.0), (True, 6)]
)
def test_a_set_up_other_than_planned_gets_no_vote(
    clients: Any, threshold: Any, votes: dict[int, Any]
) -> None:
    wire = Wire(6)
    real = wire.send_and_receive

    def tampered(messages: Any, *, timeout: float | None = None) -> Any:
        sent = list(messages)
        for message in sent:
            record = message.content["secure_vote"]
            if record["stage"] == "set_up":
                record["clients"], record["threshold"] = clients, threshold
        return real(sent, timeout=timeout)

    wire.send_and_receive = tampered  # type: ignore[method-assign]
    with pytest.raises(VoteFailedError):
        vote().start(wire, wire.server_context())
    assert votes == {}
