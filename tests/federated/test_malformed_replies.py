"""Faulty clients cost an attempt at most: no other exception, and no garbage is released."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

pytest.importorskip("flwr", reason='needs Flower: pip install "optuna-dp[federated]"')

from flwr.app import ConfigRecord, Message

from federated.in_process import STAGES, Wire, vote, votes
from federated.malformed import held_with_damaged, of, recorded, tried
from optuna_dp.federated import PlainSum, SecureSum, secure_sum
from optuna_dp.voting import VoteFailedError

assert votes  # a fixture


@pytest.mark.parametrize(("stage", "count"), [("plain", 300), *((s, 60) for s in STAGES)])
def test_some_malformed_replies(stage: str, count: int) -> None:
    """Thousands at every stage: test_many_malformed_replies.py."""
    transport = PlainSum() if stage == "plain" else SecureSum()
    assert sum(held_with_damaged(transport, stage, count, seed=1).values()) > 0


# -- well-formed and wrong ------------------------------------------------------------------------


def _vector(change: Callable[[np.ndarray], np.ndarray], *, count: int = 0) -> Any:
    """Changes the masked vote, or the one beside it."""

    def changed(reply: Message) -> Message:
        words = np.frombuffer(reply.content["secure_vote"]["masked"], dtype="<u4").copy()
        words[:-1] = change(words[:-1].astype(np.int64))
        words[-1] += np.uint32(count)
        return of(reply, {"secure_vote": ConfigRecord({"masked": words.tobytes()})})

    return changed


def _shares(change: Callable[[list[bytes]], list[bytes]]) -> Any:
    def changed(reply: Message) -> Message:
        shares = change(list(reply.content["secure_vote"]["shares"]))
        return of(reply, {"secure_vote": ConfigRecord({"shares": shares})})

    return changed


# H.7 of the audit: one client of five.
WRONG = {
    "shifted entries": ("vote", _vector(lambda v: np.roll(v, 1))),
    "a larger entry": ("vote", _vector(lambda v: v + (np.arange(21) == 3) * 10**6)),
    "many votes": ("vote", _vector(lambda v: v + 3000)),
    "two votes": ("vote", _vector(lambda v: v, count=1)),
    "zeroed shares": ("open", _shares(lambda shares: [bytes(len(s)) for s in shares])),
    "exchanged shares": ("open", _shares(lambda s: [s[1], s[0], *s[2:]])),
}


@pytest.mark.parametrize("kind", WRONG)
def test_a_sum_that_cannot_be_is_not_released(kind: str) -> None:
    chosen, grid, _ = recorded(SecureSum())
    stage, wrong = WRONG[kind]
    grid.change = lambda at, node, reply: wrong(reply) if (at, node) == (stage, 1003) else reply
    with pytest.raises(VoteFailedError, match="sum") as caught:
        chosen.start(grid, grid.server_context())
    assert caught.value.attempts == 1


@pytest.mark.parametrize("kind", ["a larger entry", "many votes"])
def test_without_the_check_it_is_released(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(secure_sum, "impossible", lambda *a: "")
    chosen, grid, honest = recorded(SecureSum())
    stage, wrong = WRONG[kind]
    grid.change = lambda at, node, reply: wrong(reply) if (at, node) == (stage, 1003) else reply
    assert tried(chosen, grid) not in (None, honest)


@pytest.mark.parametrize("transport", [PlainSum(), SecureSum()])
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
