"""A server that lies finds nothing to ask; without the defence it does."""

from __future__ import annotations

import copy
import dataclasses
import json
import logging
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("flwr", reason='needs Flower: pip install "optuna-dp[federated]"')

from federated.hostile_server import ATTEMPTS, REASONS, HostileServer, found_nothing
from federated.in_process import SPACE, app, votes
from optuna_dp.federated import InProcessGrid, VotePolicy, masks, secure_messages
from optuna_dp.federated import query as queries
from optuna_dp.federated.ledger import StateLedger
from optuna_dp.federated.policy import event_of, honest_shares

assert votes  # a fixture


def hostile(clients: int = 5, *, epsilon: float = 1.0, **options: Any) -> HostileServer:
    made = app(**(options or {"max_epsilon": 1.0}))
    grid = InProcessGrid(made, [{"optimum": 3.0} for _ in range(clients)])
    return HostileServer(grid, SPACE, epsilon)


@pytest.fixture(autouse=True)
def unread() -> Iterator[None]:
    """A query that was read while a defence was gone is read again."""
    queries._parsed.cache_clear()
    yield
    queries._parsed.cache_clear()


def test_what_an_honest_server_asks_is_answered() -> None:
    server = hostile()
    assert server.introduced(server.query())
    assert all(server.collect(n) for n in server.nodes)
    for node in server.nodes:
        assert server.unmask(node, server.nodes, []) is not None


@pytest.mark.parametrize("attempt", ATTEMPTS)
def test_the_attempt_finds_nothing(attempt: str, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, logger="optuna_dp"):
        server = hostile()
        assert found_nothing(ATTEMPTS[attempt](server))
    # One clear line for every refusal, and no traceback: nothing went wrong here.
    lines = [r for r in caplog.records if r.name == "optuna_dp"]
    assert len(lines) == server.refusals > 0
    for line in lines:
        assert re.fullmatch("Vote refused: " + REASONS[attempt], line.getMessage())
        assert line.exc_info is None


def believe(patch: pytest.MonkeyPatch) -> None:
    """A client that believes the server's plan."""
    charged = lambda self, query, view: event_of(query, max(query.plan.honest, 1))  # noqa: E731
    patch.setattr(VotePolicy, "charge", charged)
    patch.setattr(VotePolicy, "check_paid", lambda self, query, paid: None)


def count_entries(patch: pytest.MonkeyPatch) -> None:
    """A client that leaves lists to Flower's own code, which counts entries."""
    patch.setattr(secure_messages, "check", lambda message, context: None)


def unbound(*parts: str) -> Callable[[pytest.MonkeyPatch], None]:
    """Keys that are not bound to these parts of what clients are shown."""

    def remove(patch: pytest.MonkeyPatch) -> None:
        real = masks.digest_of

        def without(run: int, query: str, numbers: Any, keys: Any) -> bytes:
            if "clients" in parts:
                numbers, keys = dict.fromkeys(masks.NUMBERS, 0), {}
            if "query" in parts:  # the range of votes follows from the plan
                query = ""
                numbers = {**numbers, "clipping_range": 0.0, "target_range": 0}
            return real(run, query, numbers, keys)

        patch.setattr(masks, "digest_of", without)

    return remove


REMOVED: dict[str, Callable[[pytest.MonkeyPatch], Any]] = {
    **dict.fromkeys(ATTEMPTS, believe),
    "one name many times": count_entries,
    "active and dead": count_entries,
    "a source many times": count_entries,
    "a source left out": count_entries,
    "another list for everyone": unbound("clients"),
    "another plan for the others": unbound("query"),
    "a client with another's key": lambda patch: patch.setattr(
        secure_messages, "_is_key", lambda text: True
    ),
    "over and over": lambda patch: patch.setattr(StateLedger, "append", lambda *a, **k: None),
    "candidates of its own": lambda patch: patch.setattr(
        queries, "_external", lambda name, distribution, i, number: number
    ),
}


@pytest.mark.parametrize("attempt", ATTEMPTS)
def test_without_the_defence_the_attempt_succeeds(
    attempt: str, monkeypatch: pytest.MonkeyPatch, votes: dict[int, list[np.ndarray]]
) -> None:
    REMOVED[attempt](monkeypatch)
    found = ATTEMPTS[attempt](hostile())
    if attempt in ("one name many times", "another plan for the others"):
        assert found.tolist() == votes[0][0].tolist()  # the victim's noisy vote, bit for bit
    elif attempt == "a client with another's key":  # the sum without the first one's
        assert found.tolist() == sum(votes[i][0] for i in range(1, 5)).tolist()
    else:
        assert found


def test_shares_that_cannot_be_read_cost_a_client_nothing() -> None:
    server = hostile()
    query, victim = server.query(), server.nodes[0]
    assert server.introduced(query)
    server.inbox[victim][0] = (server.inbox[victim][0][0], b"damaged")
    assert not server.collect(victim)
    (line,) = server.grid._nodes[victim][1].state.config_records["optuna_dp_ledger"]["lines"]
    assert json.loads(line)["event"] is None  # that it has made shares, and no vote


@pytest.mark.parametrize("kept", [False, True], ids=["in the run", "in a file"])
def test_two_answers_at_once_for_one_set_up(kept: bool, tmp_path: Path) -> None:
    """A node that handles two messages at once starts both from the same state."""
    policy = VotePolicy(
        max_epsilon=9.0, total_epsilon=99.0, ledger=str(tmp_path / "ledger") if kept else None
    )
    server = hostile(policy=policy)
    query, node = server.query(), server.nodes[0]
    assert server.introduced(query)
    _, context = server.grid._nodes[node]
    state = copy.deepcopy(context.state)
    assert server.collect(node)
    opened = copy.deepcopy(context.state)
    context.state = state
    # The same masks twice: the difference of the two is that of two noisy votes.
    assert server.collect(node) is not kept
    context.state = copy.deepcopy(opened)
    assert server.unmask(node, server.nodes, []) is not None
    context.state = copy.deepcopy(opened)
    assert (server.unmask(node, server.nodes, []) is None) is kept


def test_stories_of_dropouts_that_differ_are_counted() -> None:
    """Six clients, two may be lost: told different stories, they open a sum of three."""
    asked = {"max_dropout": 2}
    server = hostile(6, policy=VotePolicy(max_epsilon=1.0))
    assert not server.introduced(server.query(**asked), threshold=4)
    server = hostile(6, policy=VotePolicy(max_epsilon=1.0, server="semi-honest"))
    assert server.introduced(server.query(**asked), threshold=4)
    assert server.collect(server.nodes[0])


def test_invented_clients_are_counted_as_far_as_the_policy_says() -> None:
    """Who is an invention only the network's authentication can tell; see the threat table."""
    for colluding, answered in ((0, True), (2, False)):
        server = hostile(policy=VotePolicy(max_epsilon=1.0, max_colluding=colluding))
        assert server.introduced(server.query()) is answered
    careful = hostile(policy=VotePolicy(max_epsilon=2.0, max_colluding=2))
    query = careful.query()
    assert careful.introduced(query)
    assert careful.collect(careful.nodes[0])


def test_a_name_that_a_server_has_chosen_stays_on_one_line(
    caplog: pytest.LogCaptureFixture,
) -> None:
    name = "x\nVote answered: all is well " + 1000 * "."
    policy = VotePolicy(max_epsilon=1.0, search_space={"x": {"low": 0.0, "high": 10.0}})
    server = hostile(policy=policy)
    server.space = {name: SPACE["x"]}
    server.candidates = queries.choose_candidates(server.space, "grid", np.random.default_rng(0))
    with caplog.at_level(logging.WARNING, logger="optuna_dp"):
        assert not server.set_up(server.nodes[0], server.query(), 5, 5)
    (line,) = [r.getMessage() for r in caplog.records if r.name == "optuna_dp"]
    assert line.startswith("Vote refused: a candidate has x Vote answered: all is well")
    assert "\n" not in line
    assert len(line) < 600


def _killed(honest: int, each: int, needed: int) -> int:
    """Most clients that fall, by trying: everyone names ``each`` others dead, ``needed`` kill."""
    best = 0
    for dead in range(honest + 1):
        # The first `dead` clients are to fall; whoever speaks names those that lack most.
        lack = [needed] * dead
        for _ in range(honest):
            for i in sorted(range(dead), key=lambda i: -lack[i])[:each]:
                lack[i] -= 1
        if all(x <= 0 for x in lack):
            best = dead
    return best


def test_honest_shares_is_what_trying_finds() -> None:
    for clients in range(3, 13):
        for colluding in range(clients):
            for threshold in range(clients // 2 + 1, clients + 1):
                found = honest_shares(clients, threshold, colluding)
                if threshold <= colluding:
                    assert found <= 0
                    continue
                honest = clients - colluding
                fallen = _killed(honest, clients - threshold, threshold - colluding)
                assert found <= honest - fallen
                assert found >= honest - fallen - 1 or found <= 0
    assert honest_shares(50, 45, 0) == 45
    assert honest_shares(6, 4, 0) == 3


def test_absurd_plans_are_refused_at_once() -> None:
    server = hostile(max_epsilon=1.0)
    honest = server.query()
    for field, value in (
        ("attempts", 10**9),
        ("share_units", 10**30),
        ("max_colluding", 10**12),
        ("votes", 10**6),
    ):
        record = honest.plan.to_json()
        record[field] = value
        query = dataclasses.replace(honest)
        text = honest.to_json().replace(json.dumps(honest.plan.to_json()), json.dumps(record))
        assert text != honest.to_json()
        object.__setattr__(query, "to_json", lambda text=text: text)
        assert not server.collect(server.nodes[0])
