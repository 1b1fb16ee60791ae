"""Faulty clients cost an attempt at most: no other exception, and no garbage is released."""

from __future__ import annotations

import copy
import random
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
import pytest

pytest.importorskip("flwr", reason='needs Flower: pip install "optuna-dp[federated]"')

from flwr.app import (
    Array,
    ArrayRecord,
    ConfigRecord,
    Error,
    Message,
    MetricRecord,
    RecordDict,
)
from flwr.common import bytes_to_ndarray, ndarray_to_bytes

from federated.in_process import STAGES, Wire, stage_of, vote, votes
from optuna_dp.federated import PlainSum, SecAggPlus, VoteFailedError
from optuna_dp.federated.replies import impossible

assert votes  # a fixture

CLIENTS, ALLOWED = 5, 1


class Replay(Wire):
    """Answers as recorded clients did, but for some replies; the server's side alone is run."""

    def __init__(self, wire: Wire) -> None:
        self._nodes = wire._nodes
        self._recorded: dict[tuple[str, int], Message] = {}
        for stage, reply in wire.transcript:
            self._recorded[stage, reply.metadata.src_node_id] = reply
        self.change: Callable[[str, int, Message], Message | None] = lambda s, n, reply: reply

    def send_and_receive(
        self, messages: Iterable[Message], *, timeout: float | None = None
    ) -> Iterable[Message]:
        found = []
        for message in messages:
            stage, node = stage_of(message), message.metadata.dst_node_id
            if (stage, node) not in self._recorded:
                continue
            reply = self._recorded[stage, node]
            if stage == "unmask":
                reply = of(reply, {"secaggplus_configs": self._shares(message, node)})
            changed = self.change(stage, node, reply)
            found += [] if changed is None else [changed]
        return found

    def _shares(self, message: Message, node: int) -> ConfigRecord:
        """What the client would answer: who is active differs from what was recorded."""
        asked = message.content["secaggplus_configs"]
        state = self._nodes[node][1].state["secaggplus_state"]
        nids, shares = [], []
        for who, which in (("active_nids", "rd_seed"), ("dead_nids", "sk1")):
            name = f"{which}_share_dict"
            held = dict(zip(state[f"{name}:K"], state[f"{name}:V"], strict=True))
            nids += asked[who]
            shares += [held[n] for n in asked[who]]
        return ConfigRecord({"nids": nids, "shares": shares})


def recorded(transport: Any) -> tuple[Any, Replay, list[int]]:
    wire = Wire(CLIENTS)
    chosen = vote(max_dropout=ALLOWED, secure_aggregation=transport)
    release = chosen.start(wire, wire.server_context())
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
            listed[i] = (
                type(listed[i])(junk(rng, listed[i]) or b"")
                if isinstance(listed[i], bytes)
                else rng.choice([0, -1, 1 << 62, listed[rng.randrange(len(listed))]])
            )
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
        records[rng.choice([name, "more", "fitres.metrics"])] = extra
    elif isinstance(records[name], ArrayRecord) and len(records[name]):
        array = records[name]["sum"]
        data = junk(rng, array.data)
        records[name] = ArrayRecord(
            {
                "sum": Array(
                    dtype=rng.choice([array.dtype, "float64", "nonsense"]),
                    shape=rng.choice([array.shape, (1 << 40,), ()]),
                    stype=rng.choice([array.stype, array.stype, "other"]),
                    data=data if isinstance(data, bytes) else b"",
                )
            }
        )
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
    elif isinstance(records[name], MetricRecord):
        records[name] = MetricRecord({"num_examples": rng.choice([0, 2, -1, 0.5, 1 << 62])})
    else:
        del records[name]
    return of(reply, records)


def _try(chosen: Any, grid: Replay) -> list[int] | None:
    """The noisy votes; None if the vote failed as votes should."""
    failed = None
    chosen._held = chosen._asked = 0  # every replay is the first vote
    try:
        release = chosen.start(grid, grid.server_context())
    except VoteFailedError as error:
        failed = error
    if failed is not None:
        assert (failed.guarantee is None) == (failed.attempts == 0)
        return None
    return list(release.attributes["noisy_votes"])


def fuzz(transport: Any, stages: tuple[str, ...], count: int, seed: int) -> dict[str, int]:
    """Plants one or two damaged replies at a time and says what came of it."""
    rng = random.Random(seed)
    chosen, grid, honest = recorded(transport)
    plan = chosen.plan(CLIENTS)
    outcomes = {"as without it": 0, "without that client": 0, "failed": 0}
    planted = 0
    while planted < count:
        faulty = rng.sample(sorted(grid._nodes), rng.choice([1, 1, 1, 2]))
        at = rng.choice(stages)
        planted += len(faulty)

        def change(stage: str, node: int, reply: Message, at: str = at, who: Any = faulty) -> Any:
            return damaged(rng, reply) if stage == at and node in who else reply

        grid.change = change
        found = _try(chosen, grid)
        if found is None:
            outcomes["failed"] += 1
            continue
        outcomes["as without it" if found == honest else "without that client"] += 1
        if found != honest:
            assert at in ("plain", "collect_masked_vectors")
            assert not impossible(plan, np.array(found), CLIENTS)
    return outcomes


QUICK = [("plain", 300), *((stage, 60) for stage in STAGES)]
LONG = [("plain", 6_000), *((stage, 1_000) for stage in STAGES)]


@pytest.mark.parametrize(("stage", "count"), QUICK)
def test_some_malformed_replies(stage: str, count: int) -> None:
    transport = PlainSum() if stage == "plain" else SecAggPlus()
    assert sum(fuzz(transport, (stage,), count, seed=1).values()) > 0


@pytest.mark.slow
@pytest.mark.parametrize(("stage", "count"), LONG)
def test_ten_thousand_malformed_replies_in_all(stage: str, count: int) -> None:
    transport = PlainSum() if stage == "plain" else SecAggPlus()
    outcomes = fuzz(transport, (stage,), count, seed=2)
    assert outcomes["failed"] > 50
    if stage in ("plain", "collect_masked_vectors", "unmask"):  # one client may be lost
        assert sum(outcomes.values()) - outcomes["failed"] > 50


# -- well-formed and wrong ------------------------------------------------------------------------


def _vector(change: Callable[[np.ndarray], np.ndarray], part: int = 1) -> Any:
    def changed(reply: Message) -> Message:
        records = dict(reply.content.items())
        parts = list(records["secaggplus_configs"]["masked_params"])
        new = change(bytes_to_ndarray(parts[part]).copy()) % (1 << 32)
        parts[part] = ndarray_to_bytes(new.astype(np.int64))
        records["secaggplus_configs"] = ConfigRecord({"masked_params": parts})
        return of(reply, records)

    return changed


def _shares(change: Callable[[list[bytes]], list[bytes]]) -> Any:
    def changed(reply: Message) -> Message:
        old = reply.content["secaggplus_configs"]
        config = ConfigRecord({"nids": old["nids"], "shares": change(list(old["shares"]))})
        return of(reply, {"secaggplus_configs": config})

    return changed


# H.7 of the audit: one client of five.
WRONG = {
    "shifted entries": ("collect_masked_vectors", _vector(lambda v: np.roll(v, 1))),
    "a larger entry": (
        "collect_masked_vectors",
        _vector(lambda v: v + (np.arange(21) == 3) * 10**6),
    ),
    "many votes": ("collect_masked_vectors", _vector(lambda v: v + 3000)),
    "another factor": ("collect_masked_vectors", _vector(lambda v: v + 1, part=0)),
    "zeroed shares": (
        "unmask",
        _shares(lambda shares: [s[:4] + bytes(len(s) - 4) for s in shares]),
    ),
    "exchanged shares": ("unmask", _shares(lambda s: [s[0][:4] + s[1][4:], *s[1:]])),
}


@pytest.mark.parametrize("kind", WRONG)
def test_a_sum_that_cannot_be_is_not_released(kind: str) -> None:
    chosen, grid, _ = recorded(SecAggPlus())
    stage, wrong = WRONG[kind]
    grid.change = lambda at, node, reply: wrong(reply) if (at, node) == (stage, 1003) else reply
    chosen._held = chosen._asked = 0
    with pytest.raises(VoteFailedError, match=r"does not open|not one of votes|secure sum failed"):
        chosen.start(grid, grid.server_context())


@pytest.mark.parametrize("kind", ["a larger entry", "many votes"])
def test_without_the_check_it_is_released(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from optuna_dp.federated import secagg

    monkeypatch.setattr(secagg, "impossible", lambda *a: "")
    chosen, grid, honest = recorded(SecAggPlus())
    stage, wrong = WRONG[kind]
    grid.change = lambda at, node, reply: wrong(reply) if (at, node) == (stage, 1003) else reply
    assert _try(chosen, grid) not in (None, honest)


@pytest.mark.parametrize("copied", ["pk", "shares"])
def test_what_another_client_has_sent_is_not_accepted_again(copied: str) -> None:
    chosen, grid, honest = recorded(SecAggPlus())
    stage = "setup" if copied == "pk" else "unmask"

    def change(at: str, node: int, reply: Message) -> Message:
        other = grid._recorded[stage, 1001]
        return of(reply, dict(other.content.items())) if (at, node) == (stage, 1003) else reply

    grid.change = change
    assert _try(chosen, grid) == (honest if stage == "unmask" else None)


@pytest.mark.parametrize("transport", [PlainSum(), SecAggPlus()])
@pytest.mark.parametrize("after", range(4))
def test_a_grid_that_fails_is_a_failed_vote(transport: Any, after: int) -> None:
    class Broken(Wire):
        def send_and_receive(self, messages: Any, *, timeout: float | None = None) -> Any:
            if self.left == 0:
                raise ConnectionError("gone")
            self.left -= 1
            return super().send_and_receive(messages, timeout=timeout)

    wire = Broken(4)
    wire.left = after
    chosen = vote(secure_aggregation=transport)
    if isinstance(transport, PlainSum) and after > 0:
        chosen.start(wire, wire.server_context())
        return
    with pytest.raises(VoteFailedError, match="ConnectionError") as caught:
        chosen.start(wire, wire.server_context())
    voted = isinstance(transport, PlainSum) or after >= 2
    assert caught.value.attempts == int(voted)
    assert (caught.value.guarantee is not None) is voted


def test_the_next_attempt_releases_what_one_faulty_client_has_cost(votes: dict[int, Any]) -> None:
    stage, wrong = WRONG["zeroed shares"]

    def once(asked: str, node: int, before: int, reply: Message) -> Message:
        return wrong(reply) if (asked, node, before) == (stage, 2, 0) else reply

    wire = Wire(5, once)
    release = vote(retries=1).start(wire, wire.server_context())
    assert release.design.settings["attempts"] == 2
    assert release.attributes["noisy_votes"] == sum(v[1] for v in votes.values()).tolist()


@pytest.fixture(autouse=True)
def quiet(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    with caplog.at_level("CRITICAL"):
        yield
