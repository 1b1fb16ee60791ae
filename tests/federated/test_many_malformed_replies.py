"""Thousands of malformed replies at every stage: VoteFailedError at most, and no garbage released.

Of the plain sum each is planted in a vote of its own. Of the secure sum each passes through the
server's checks; what they reject is a lost node from there on, whatever it was, so votes are held
with those only that passed, and with a part of the others.
"""

from __future__ import annotations

import contextlib
import os
import random
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

pytest.importorskip("flwr", reason='needs Flower: pip install "optuna-dp[federated]"')

from flwr.app import Message, RecordDict

from federated.in_process import SPACE, STAGES
from federated.malformed import (
    CLIENTS,
    damaged,
    held_with_damaged,
    possible,
    recorded,
    tried,
)
from optuna_dp.federated import PlainSum, SecAggPlus, masks
from optuna_dp.federated.query import VoteQuery
from optuna_dp.federated.secagg import SecAggGrid, StopError
from optuna_dp.federated.transport import Server, entry_bound

# At every stage; before a release, MALFORMED_REPLIES=10000.
MANY = int(os.environ.get("MALFORMED_REPLIES", "4000"))

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def quiet(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    with caplog.at_level("CRITICAL"):
        yield


def shape_of(content: RecordDict) -> Any:
    """Names, types and numbers of entries, in which a reply that only lies is like any other."""

    def of(value: Any) -> Any:
        return [of(each) for each in value] if isinstance(value, list) else type(value)

    return {
        name: (type(record), {key: of(value) for key, value in record.items()})
        for name, record in content.items()
    }


def test_in_votes_by_a_plain_sum() -> None:
    outcomes = held_with_damaged(PlainSum(), "plain", MANY, seed=2)
    assert outcomes["failed"] > MANY / 10
    assert outcomes["without that client"] > MANY / 10


@pytest.mark.parametrize("stage", STAGES)
def test_at_every_stage_of_the_secure_sum(stage: str) -> None:
    rng = random.Random(3)
    chosen, grid, honest = recorded(SecAggPlus())
    plan = chosen.plan(CLIENTS)
    assert tried(chosen, grid) == honest  # and the server's messages are kept
    asked = [grid.asked[stage, node] for node in sorted(grid.nodes)]
    module = masks.server_module()
    query = VoteQuery(SPACE, tuple(chosen.candidates), "minimize", plan, "recorded")
    set_up = grid.asked["setup", min(grid.nodes)].content["secaggplus_configs"]
    outcomes = {"rejected": 0, "silent": 0, "released": 0, "failed": 0}

    class Network:
        """The node that is asked last answers with something damaged."""

        def send_and_receive(self, messages: Any, *, timeout: float | None = None) -> Any:
            return [grid.honest(m) for m in asked[1:]] + [self.last] * (self.last is not None)

    network = Network()

    def passed() -> Message | None:
        """What is left of it after the server's checks."""
        server = Server(network, grid.server_context(), None, lambda text: None)  # type: ignore[arg-type]
        checked = SecAggGrid(server, query, module)
        checked.numbers = dict(set_up)
        kept: list[Message] = []
        check = checked.checked
        checked.checked = lambda *a: kept.extend(check(*a)) or list(kept)  # type: ignore[method-assign]
        with contextlib.suppress(StopError):  # a node is lost
            checked.send_and_receive(asked)
        assert len(kept) == CLIENTS - (network.last is None)
        return kept[-1]

    for i in range(MANY):
        reply = network.last = damaged(rng, grid.honest(asked[0]))
        if reply is None or reply.has_error():
            outcomes["silent"] += 1
            continue
        through = passed()
        rejected = through.has_error()
        if rejected:
            assert through.error.reason == "malformed reply"  # nothing of it is left
            outcomes["rejected"] += 1
        else:
            assert shape_of(reply.content) == shape_of(grid.honest(asked[0]).content)
        if rejected and i % 100:
            continue
        grid.change = lambda at, node, own, r=reply: (
            r if (at, node) == (stage, r.metadata.src_node_id) else own
        )
        found = tried(chosen, grid)
        outcomes["failed" if found is None else "released"] += 1
        assert found is None or possible(found, plan)
    assert outcomes["rejected"] > MANY / 3
    assert outcomes["failed"] + outcomes["released"] >= outcomes["rejected"] // 100


def test_after_unmasking(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever sums come out of the protocol, of any weight."""
    rng = np.random.default_rng(4)
    chosen, grid, honest = recorded(SecAggPlus())
    plan = chosen.plan(CLIENTS)
    clip = entry_bound(plan)

    class Opens:
        """In place of the protocol; Flower's own opens sums modulo 2^32."""

        def __init__(self, **settings: Any) -> None:
            pass

        def __call__(self, checked: Any, legacy: Any) -> None:
            checked.asked, checked.voted = True, CLIENTS
            masks.opened.set((factor, vector))

    module = masks.server_module()
    monkeypatch.setattr(module, "SecAggPlusWorkflow", Opens)
    right = np.array(honest) + CLIENTS * clip
    outcomes = {"released": 0, "failed": 0}
    for _ in range(MANY):
        factor = CLIENTS * 2 * clip
        if rng.random() < 0.2:
            factor = int(rng.choice([0, factor - 1, factor + 1, rng.integers(1 << 32)]))
        vector, kind = right.copy(), rng.integers(4)
        if kind == 0:
            vector = rng.integers(1 << 32, size=len(right))
        elif kind == 1:
            vector[rng.integers(len(right))] += rng.integers(-1 << 32, 1 << 32)
        elif kind == 2:
            vector = vector + rng.integers(-clip, clip)
        else:
            vector[rng.integers(len(right))] += rng.integers(-5000, 5000)
        found = tried(chosen, grid)
        outcomes["failed" if found is None else "released"] += 1
        if found is not None:
            assert factor == CLIENTS * 2 * clip
            assert found == (vector - CLIENTS * clip).tolist()
            assert possible(found, plan)
    assert min(outcomes.values()) > MANY / 10
