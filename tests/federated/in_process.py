"""Votes in this process, with clients that misbehave as told."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import pytest

pytest.importorskip("flwr", reason='needs Flower: pip install "optuna-dp[federated]"')

from flwr.app import Context, Error, Message
from flwr.clientapp import ClientApp
from optuna.distributions import FloatDistribution

from optuna_dp.federated import FederatedVote, InProcessGrid, VotePolicy, voter

SPACE = {"x": FloatDistribution(0.0, 10.0, step=0.5)}
STAGES = ("set_up", "share", "vote", "open")


def objective(params: dict[str, Any], context: Context) -> float:
    return abs(params["x"] - context.node_config["optimum"])


# Clients that agree to much: for tests of what the server does.
WILLING = VotePolicy(
    max_epsilon=1e3,
    total_epsilon=1e4,
    server="trusted",
    min_clients=1,
    max_attempts=100,
    ledger="run",
)


def app(objective: Callable[..., float] = objective, **options: Any) -> ClientApp:
    made = ClientApp()
    if not {"max_epsilon", "policy"} & set(options):
        options = {"policy": WILLING, **options}
    if "max_epsilon" in options:
        options = {"ledger": "run", **options}
    elif options["policy"].ledger is None:
        options["policy"] = dataclasses.replace(options["policy"], ledger="run")
    voter(made, **options)(objective)
    return made


def stage_of(message: Message) -> str:
    """What a message asks for: a stage of the secure sum, or "plain"."""
    record = message.content.config_records.get("secure_vote")
    return "plain" if record is None else str(record["stage"])


# (stage, node's index, how often it has been asked this before, the honest reply) -> a reply
Fault = Callable[[str, int, int, Message], Message]


def failing(*nodes: int, stage: str, times: int = 1_000) -> Fault:
    """These nodes are lost when asked for this stage."""

    def fault(asked: str, node: int, before: int, reply: Message) -> Message:
        if asked != stage or node not in nodes or before >= times:
            return reply
        return Message(Error(code=0, reason="lost"), metadata=reply.metadata)  # type: ignore[call-overload]

    return fault


class Wire(InProcessGrid):
    """Keeps what the server gets to see; lets a fault change replies."""

    def __init__(self, clients: int, fault: Fault | None = None, **options: Any) -> None:
        super().__init__(app(**options), [{"optimum": 3.0} for _ in range(clients)])
        self.transcript: list[tuple[str, Message]] = []
        self._fault = fault
        self._before: dict[tuple[str, int], int] = {}

    def send_and_receive(
        self, messages: Iterable[Message], *, timeout: float | None = None
    ) -> Iterable[Message]:
        replies = []
        for message in messages:
            stage, node = stage_of(message), message.metadata.dst_node_id - 1001
            before = self._before.get((stage, node), 0)
            self._before[stage, node] = before + 1
            reply = self._deliver(message)
            if self._fault is not None:
                reply = self._fault(stage, node, before, reply)
            self.transcript.append((stage, reply))
            replies.append(reply)
        return replies


@pytest.fixture
def votes(monkeypatch: pytest.MonkeyPatch) -> dict[int, list[np.ndarray]]:
    """The noisy votes that clients made, by node, in order."""
    from optuna_dp.federated.client import Voter

    made: dict[int, list[np.ndarray]] = {}
    real = Voter.vote

    def noted(self: Voter, text: str, view: Any, once: str, context: Context) -> np.ndarray:
        vote = real(self, text, view, once, context)
        made.setdefault(context.node_id - 1001, []).append(vote.copy())
        return vote

    monkeypatch.setattr(Voter, "vote", noted)
    return made


def vote(**changes: Any) -> FederatedVote:
    arguments: dict[str, Any] = {"candidates": "grid", "k": 3, "epsilon": 2.0}
    return FederatedVote(SPACE, **{**arguments, "progress": lambda text: None, **changes})
