"""What the server gets to see."""

from __future__ import annotations

import importlib
import subprocess
import sys
from typing import Any

import numpy as np
import pytest

pytest.importorskip("flwr", reason='needs Flower: pip install "optuna-dp[federated]"')

from flwr.app import Array, Context, Message
from flwr.clientapp import ClientApp
from flwr.common import bytes_to_ndarray
from flwr.common.secure_aggregation import secaggplus_utils
from scipy import stats

from federated.in_process import WILLING, Wire, app, failing, vote, votes
from optuna_dp.errors import InvalidArgumentError
from optuna_dp.federated import (
    InProcessGrid,
    PlainSum,
    SecAggPlus,
    VoteFailedError,
    VotePolicy,
    masks,
    voter,
)
from optuna_dp.federated.transport import entry_bound

assert votes  # a fixture


def masked_vectors(wire: Wire) -> list[np.ndarray]:
    return [
        bytes_to_ndarray(reply.content["secaggplus_configs"]["masked_params"][1])
        for stage, reply in wire.transcript
        if stage == "collect_masked_vectors" and not reply.has_error()
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
    wire = Wire(12, failing(3, stage="unmask"))
    chosen = vote(max_dropout=2)
    chosen.start(wire, wire.server_context())
    clip = entry_bound(chosen.plan(12))
    seen = everything(wire)
    found = masked_vectors(wire)
    assert len(found) == len(votes) == 12
    for made in votes.values():
        for kind in (np.int64, np.float64, np.int32, np.uint32):
            for shown in (made[0], made[0] + clip):  # the protocol shifts by the clipping range
                assert shown.astype(kind).tobytes() not in seen
        for masked in found:
            assert (masked != (made[0] + clip)).sum() > 15
    # Nothing else about a client is said: every weight is one, and there are no metrics.
    for stage, reply in wire.transcript:
        if stage == "collect_masked_vectors":
            assert dict(reply.content["fitres.num_examples"]) == {"num_examples": 1}
            assert dict(reply.content["fitres.metrics"]) == {}
            assert dict(reply.content["fitres.parameters"]) == {}
        elif not reply.has_error():
            assert set(reply.content) == {"secaggplus_configs"}


def test_the_transcript_test_would_notice_an_unmasked_vote(
    votes: dict[int, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def none(seed: bytes, num_range: int, shapes: Any) -> list[np.ndarray]:
        return [np.zeros(shape, dtype=np.int64) for shape in shapes]

    monkeypatch.setattr(masks.client_module(), "pseudo_rand_gen", none)
    monkeypatch.setattr(masks.server_module(), "pseudo_rand_gen", none)
    wire = Wire(5)
    chosen = vote()
    chosen.start(wire, wire.server_context())
    clip = entry_bound(chosen.plan(5))
    assert (votes[0][0] + clip).astype(np.int64).tobytes() in everything(wire)


def test_masked_vectors_look_uniform() -> None:
    found = []
    for _ in range(3):
        wire = Wire(12)
        vote().start(wire, wire.server_context())
        found += masked_vectors(wire)
    values = np.concatenate(found).astype(np.float64) / 2.0**32
    assert stats.kstest(values, "uniform").pvalue > 1e-9


def test_strong_masks_are_in_use_on_both_sides(monkeypatch: pytest.MonkeyPatch) -> None:
    assert masks.client_module().pseudo_rand_gen is masks.chacha20_masks
    assert masks.server_module().pseudo_rand_gen is masks.chacha20_masks
    used: list[str] = []
    for side, module in (
        ("client", masks.client_module()),
        ("server", masks.server_module()),
    ):

        def counted(*args: Any, side: str = side) -> Any:
            used.append(side)
            return masks.chacha20_masks(*args)

        monkeypatch.setattr(module, "pseudo_rand_gen", counted)

    class Weak(np.random.RandomState):
        def __init__(self, *args: Any) -> None:
            raise AssertionError("Flower's masks were used")

    monkeypatch.setattr(np.random, "RandomState", Weak)
    with pytest.raises(AssertionError, match="masks"):
        secaggplus_utils.pseudo_rand_gen(b"s" * 32, 1 << 32, [(1,)])
    wire = Wire(6)
    vote().start(wire, wire.server_context())
    assert used.count("client") == 6 * 6  # one private mask and five pairwise ones each
    assert used.count("server") == 6


def test_flowers_own_modules_are_left_alone() -> None:
    masks.client_module(), masks.server_module()
    for name in (masks.CLIENT, masks.SERVER):
        module: Any = importlib.import_module(name)
        assert module.pseudo_rand_gen is secaggplus_utils.pseudo_rand_gen
        assert module.MessageType.TRAIN == "train"


def test_masks_use_every_bit_of_the_seed_where_flowers_do_not() -> None:
    seed = bytes(range(32))
    twin = bytes([seed[4], *seed[1:4], seed[0], *seed[5:]])  # the same 32 bits when folded

    def both(generator: Any) -> tuple[np.ndarray, np.ndarray]:
        return generator(seed, 1 << 32, [(64,)])[0], generator(twin, 1 << 32, [(64,)])[0]

    first, second = both(secaggplus_utils.pseudo_rand_gen)
    assert (first == second).all()  # should this fail, Flower has mended its masks
    first, second = both(masks.chacha20_masks)
    assert (first != second).sum() > 60


def test_masks_are_uniform_and_repeatable() -> None:
    one, many = masks.chacha20_masks(b"s" * 32, 1 << 32, [(1,), (50_000,)])
    assert one.shape == (1,)
    assert many.dtype == np.int64
    assert (many == masks.chacha20_masks(b"s" * 32, 1 << 32, [(1,), (50_000,)])[1]).all()
    assert stats.kstest(many / 2.0**32, "uniform").pvalue > 1e-4
    assert masks.chacha20_masks(b"s" * 32, 1 << 8, [(999,)])[0].max() == 255
    for wrong in (0, 1, 3, 1 << 33):
        with pytest.raises(InvalidArgumentError, match="num_range"):
            masks.chacha20_masks(b"s" * 32, wrong, [(1,)])


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
    from optuna_dp.federated import client

    def broken(*args: Any) -> None:
        raise RuntimeError("patient 17 has the flu")

    monkeypatch.setattr(client, "answer_to", broken)
    for transport in (PlainSum(), SecAggPlus()):
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
        assert set(reply.content["vote"]) == {"sum"}


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
    with pytest.raises(InvalidArgumentError, match="max_epsilon"):
        app(max_epsilon=-1.0)


def test_a_server_that_lies_about_the_noise_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    import dataclasses

    chosen = vote(epsilon=2.0, secure_aggregation=PlainSum())
    honest = chosen.plan(4)
    lie = dataclasses.replace(honest, share_units=honest.share_units // 4)
    monkeypatch.setattr(chosen, "plan", lambda clients: lie)
    wire = Wire(4, policy=VotePolicy(max_epsilon=2.0, server="trusted"))
    with pytest.raises(VoteFailedError, match="0 usable votes"):
        chosen.start(wire, wire.server_context())


def test_a_node_votes_once(votes: dict[int, Any]) -> None:
    class Echo(Wire):
        def send_and_receive(self, messages: Any, *, timeout: float | None = None) -> Any:
            replies = list(super().send_and_receive(messages, timeout=timeout))
            return [*replies, replies[0]]

    for transport in (PlainSum(), SecAggPlus()):
        votes.clear()
        wire = Echo(5)
        release = vote(secure_aggregation=transport).start(wire, wire.server_context())
        assert release.attributes["noisy_votes"] == sum(m[0] for m in votes.values()).tolist()


def test_a_node_called_dead_and_alive_keeps_its_shares() -> None:
    wire = Wire(5)
    sent: list[Message] = []
    real = wire.send_and_receive

    def noted(messages: Any, *, timeout: float | None = None) -> Any:
        sent[:] = list(messages)
        if sent[0].content["secaggplus_configs"]["stage"] == "unmask":
            for message in sent:
                record = message.content["secaggplus_configs"]
                record["dead_nids"] = record["active_nids"][:1]
        return real(sent, timeout=timeout)

    wire.send_and_receive = noted  # type: ignore[method-assign]
    with pytest.raises(VoteFailedError):
        vote().start(wire, wire.server_context())
    assert all(r.has_error() for stage, r in wire.transcript if stage == "unmask")


def test_flower_is_needed_only_when_it_is_used() -> None:
    code = """
import sys
sys.modules["flwr"] = None
import optuna_dp, optuna_dp.voting, optuna_dp.federated
from optuna_dp.errors import MissingExtraError
for name in ("FederatedVote", "voter", "InProcessGrid", "SecAggPlus"):
    try:
        getattr(optuna_dp.federated, name)
    except MissingExtraError as error:
        assert 'optuna-dp[federated]' in str(error), error
    else:
        raise AssertionError(name)
"""
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("clipping_range", 8.0),  # Flower's defaults would cut the noise off
        ("target_range", 1 << 22),
        ("max_weight", 1000.0),
        ("mod_range", 1 << 24),
        ("threshold", 3),
    ],
)
def test_a_set_up_other_than_planned_gets_no_vote(
    name: str, value: Any, votes: dict[int, Any]
) -> None:
    wire = Wire(6)
    real = wire.send_and_receive

    def tampered(messages: Any, *, timeout: float | None = None) -> Any:
        sent = list(messages)
        if sent[0].content["secaggplus_configs"]["stage"] == "setup":
            for message in sent:
                message.content["secaggplus_configs"][name] = value
        return real(sent, timeout=timeout)

    wire.send_and_receive = tampered  # type: ignore[method-assign]
    with pytest.raises(VoteFailedError):
        vote().start(wire, wire.server_context())
    assert votes == {}
