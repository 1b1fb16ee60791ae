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

from optuna.distributions import CategoricalDistribution

from federated.hostile_server import (
    ATTEMPTS,
    REASONS,
    HostileServer,
    a_client_with_anothers_key,
    another_plan_for_the_others,
    found_nothing,
    keys_of_its_own_under_real_names,
)
from federated.in_process import SPACE, app, votes
from optuna_dp.federated import InProcessGrid, VotePolicy, secure_client, secure_keys
from optuna_dp.federated import query as queries
from optuna_dp.federated.client import Voter
from optuna_dp.federated.ledger import StateLedger
from optuna_dp.federated.policy import View, event_of, honest_shares
from optuna_dp.federated.secure_client import Session
from optuna_dp.federated.secure_keys import private_key, public_key

assert votes  # a fixture


def hostile(clients: int = 5, *, epsilon: float = 1.0, **options: Any) -> HostileServer:
    made = app(**(options or {"max_epsilon": 1.0}))
    grid = InProcessGrid(made, [{"optimum": 3.0} for _ in range(clients)])
    return HostileServer(grid, SPACE, epsilon)


@pytest.fixture(autouse=True)
def unread() -> Iterator[None]:
    """A query that was read while a defence was gone is read again."""
    queries.parsed.cache_clear()
    yield
    queries.parsed.cache_clear()


def test_what_an_honest_server_asks_is_answered() -> None:
    server = hostile()
    assert server.introduced(server.query())
    assert all(server.collect(n) for n in server.nodes)
    for node in server.nodes:
        assert server.open(node, server.nodes, []) is not None


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
    patch.setattr(VotePolicy, "check_answers", lambda self, answers: None)


def opens_anything(patch: pytest.MonkeyPatch) -> None:
    """A client that counts entries, and gives away whatever it is asked for."""

    def opened(self: Session, config: Any) -> list[bytes]:
        shares = dict(zip(self.names, self.shares, strict=True))
        return [
            *(shares[name][: secure_keys.SHARE] for name in config["voted"]),
            *(shares[name][secure_keys.SHARE :] for name in config["lost"]),
        ]

    patch.setattr(Session, "opened", opened)


def reads_any_letters(patch: pytest.MonkeyPatch) -> None:
    """A client that votes without the letters of all others."""

    def with_shares_of(self: Session, config: Any) -> Session:
        return dataclasses.replace(self, shares=[self.shares[0]] * self.clients)

    patch.setattr(Session, "with_shares_of", with_shares_of)


def unbound(*parts: str) -> Callable[[pytest.MonkeyPatch], None]:
    """Keys that are not bound to these parts of what clients are shown."""

    def remove(patch: pytest.MonkeyPatch) -> None:
        real = secure_keys.view_of

        def without(run: int, query: str, threshold: int, keys: Any) -> bytes:
            if "clients" in parts:
                keys = {}
            if "query" in parts:
                query = ""
            return real(run, query, threshold, keys)

        patch.setattr(secure_client, "view_of", without)

    return remove


REMOVED: dict[str, Callable[[pytest.MonkeyPatch], Any]] = {
    **dict.fromkeys(ATTEMPTS, believe),
    "one name many times": opens_anything,
    "voted and lost": opens_anything,
    "a letter many times": reads_any_letters,
    "a letter left out": reads_any_letters,
    "another list for everyone": unbound("clients"),
    "another plan for the others": unbound("query"),
    "over and over": lambda patch: patch.setattr(StateLedger, "append", lambda *a, **k: None),
    "candidates of its own": lambda patch: patch.setattr(
        queries, "external_value", lambda name, distribution, i, number: number
    ),
}


@pytest.mark.parametrize("attempt", ATTEMPTS)
def test_without_the_defence_the_attempt_succeeds(
    attempt: str, monkeypatch: pytest.MonkeyPatch, votes: dict[int, list[np.ndarray]]
) -> None:
    REMOVED[attempt](monkeypatch)
    found = ATTEMPTS[attempt](hostile())
    if attempt == "one name many times":
        assert found.tolist() == votes[0][0].tolist()  # the victim's noisy vote, bit for bit
    elif attempt == "another plan for the others":
        assert found.tolist() == sum(votes[i][0] for i in range(5)).tolist()
    else:
        assert found


def test_keys_are_not_signed_and_only_max_colluding_covers_that(
    votes: dict[int, list[np.ndarray]],
) -> None:
    """As the pages say: a lie that succeeds, unless the client counts on nobody else's noise."""
    found = keys_of_its_own_under_real_names(hostile())
    assert found.tolist() == votes[0][0].tolist()  # the victim's noisy vote, bit for bit
    suspicious = VotePolicy(max_epsilon=1.0, max_colluding=4, ledger="run")
    assert keys_of_its_own_under_real_names(hostile(policy=suspicious)) is None


@pytest.mark.parametrize(("clients", "colluding"), [(5, 0), (12, 2)])
def test_a_plan_for_the_victim_and_another_for_all_others(
    clients: int, colluding: int, monkeypatch: pytest.MonkeyPatch, votes: dict[int, Any]
) -> None:
    """With one plan for all, a default client answers; with two, nobody does."""
    policy = VotePolicy(max_epsilon=1.0, max_colluding=colluding)
    epsilon = 0.9 if colluding else 1.0
    server = hostile(clients, epsilon=epsilon, policy=policy)
    assert another_plan_for_the_others(server) is None
    assert server.refusals == clients
    assert votes == {}
    unbound("query")(monkeypatch)
    found = another_plan_for_the_others(hostile(clients, epsilon=epsilon, policy=policy))
    assert found.tolist() == sum(votes[i][0] for i in range(clients)).tolist()


def test_a_key_under_two_names_makes_two_masks(
    monkeypatch: pytest.MonkeyPatch, votes: dict[int, Any]
) -> None:
    """Nobody can see that a made-up client has another's key: its masks are its own."""
    server = hostile()
    assert a_client_with_anothers_key(server) is None
    assert server.refusals == 0
    real = secure_keys.pair_mask

    def without_names(private: bytes, public: bytes, view: bytes, *ends: int) -> Any:
        own, other, size = ends
        words = real(private, public, view, 0, 1, size)
        return words if own < other else np.negative(words)

    monkeypatch.setattr(secure_client, "pair_mask", without_names)
    votes.clear()
    found = a_client_with_anothers_key(hostile())
    assert found.tolist() == sum(votes[i][0] for i in range(1, 5)).tolist()


def paid(server: HostileServer, node: int) -> int:
    """How many votes a client without a file has written down."""
    record = server.grid.nodes[node][1].state.config_records.get("optuna_dp_ledger")
    return 0 if record is None else len(record["lines"])


@pytest.mark.parametrize("which", ["damaged", "its own", "another's", "none", "too long"])
def test_letters_that_cannot_be_read_cost_a_client_nothing(which: str) -> None:
    server = hostile()
    query, victim = server.query(), server.nodes[0]
    assert server.introduced(query)
    source, another = server.nodes[1:3]
    text = server.inbox[victim][source]
    given = {
        "damaged": text[:-9] + b"damaged!!",
        "its own": server.inbox[source][victim],
        "another's": server.inbox[victim][another],
        "none": b"",
        "too long": text * 100,
    }
    server.inbox[victim][source] = given[which]
    assert not server.collect(victim)
    assert paid(server, victim) == 0
    server.inbox[victim][source] = text
    assert server.collect(victim)
    assert paid(server, victim) == 1


def one_node(kept: bool, folder: Path) -> HostileServer:
    """Its first client keeps what it has answered in a file, or in the run."""
    limits = {"max_epsilon": 9.0, "total_epsilon": 99.0}
    ledger = str(folder / "ledger") if kept else None
    apps = [app(policy=VotePolicy(ledger=ledger, **limits))]
    apps += [app(policy=VotePolicy(**limits)) for _ in range(4)]
    return HostileServer(InProcessGrid(apps, [{"optimum": 3.0}] * 5), SPACE, 1.0)


# A node that handles two messages at once starts both from the same state.
KEPT = pytest.mark.parametrize("kept", [False, True], ids=["in the run", "in a file"])


@KEPT
def test_shares_for_two_lists_of_clients_at_once(kept: bool, tmp_path: Path) -> None:
    """All shares of its secret key, for clients that are made up, would give its masks away."""
    server = one_node(kept, tmp_path)
    node = server.nodes[0]
    assert server.set_up_all(server.nodes, server.query(), 5, 5)
    _, context = server.grid.nodes[node]
    state = copy.deepcopy(context.state)
    assert server.share(node, server.nodes)
    context.state = state
    invented = {n: [public_key(private_key()) for _ in "12"] for n in range(4)}
    server.keys = {node: server.keys[node], **invented}
    assert server.share(node, list(server.keys)) is not kept


@KEPT
def test_two_answers_at_once_for_one_set_up(kept: bool, tmp_path: Path) -> None:
    server = one_node(kept, tmp_path)
    node = server.nodes[0]
    assert server.introduced(server.query())
    _, context = server.grid.nodes[node]
    state = copy.deepcopy(context.state)
    assert server.collect(node)
    opened = copy.deepcopy(context.state)
    context.state = state
    # The same masks twice: the difference of the two is that of two noisy votes.
    assert server.collect(node) is not kept
    context.state = copy.deepcopy(opened)
    assert server.open(node, server.nodes, []) is not None
    context.state = copy.deepcopy(opened)
    assert (server.open(node, server.nodes, []) is None) is kept


def test_a_client_is_in_a_sum_once_whatever_it_is_called(tmp_path: Path) -> None:
    """Two nodes with one ledger: twice in one sum its ballot would have the noise of one."""
    limits = {"max_epsilon": 1.0, "total_epsilon": 99.0}
    one = app(policy=VotePolicy(ledger=str(tmp_path / "ledger"), **limits))
    others = [app(policy=VotePolicy(**limits)) for _ in range(3)]
    grid = InProcessGrid([one, one, *others], [{"optimum": 3.0}] * 5)
    server = HostileServer(grid, SPACE, 1.0)
    query = server.query(attempts=2)  # as far as the plan goes, it may answer twice
    assert server.introduced(query)
    assert [server.collect(node) for node in server.nodes] == [True, False, True, True, True]
    server.inbox.clear()
    assert server.introduced(query)  # in another sum it does
    assert [server.collect(node) for node in server.nodes[1:]] == [True] * 4


def test_a_set_up_that_fails_leaves_the_one_before(monkeypatch: pytest.MonkeyPatch) -> None:
    server = hostile(policy=VotePolicy(max_epsilon=9.0, total_epsilon=99.0))
    assert server.introduced(server.query())
    node = server.nodes[0]
    _, context = server.grid.nodes[node]
    before = Session.kept(context)

    def fails() -> bytes:
        raise ValueError

    monkeypatch.setattr(secure_client, "private_key", fails)
    assert not server.set_up(node, server.query("another"), 5, 5)
    monkeypatch.undo()
    assert Session.kept(context) == before
    assert server.collect(node)


def test_stages_out_of_order_are_refused(caplog: pytest.LogCaptureFixture) -> None:
    server = hostile()
    node, query = server.nodes[0], server.query()
    server.keys = {n: [public_key(private_key()) for _ in "12"] for n in server.nodes}
    assert not server.share(node, server.nodes)
    assert server.set_up_all(server.nodes, query, 5, 5)
    assert not server.collect(node)
    assert not server.open(node, server.nodes, [])
    assert server.share_all(dict.fromkeys(server.nodes, server.nodes))
    assert not server.open(node, server.nodes, [])
    assert not server.share(node, server.nodes)
    assert server.collect_all(server.nodes) == 5
    assert not server.collect(node)
    assert server.open(node, server.nodes, [])
    assert not server.open(node, server.nodes, [])
    assert server.stage_all("another", {node: {}}) == {node: None}
    before, once, again = "never", "once", "before"
    not_voted, stage = "not voted", "stage"
    expected = [before, once, not_voted, not_voted, again, once, before, stage]
    for line, reason in zip(reasons(caplog), expected, strict=True):
        assert reason in line


# -- sizes ---------------------------------------------------------------------------------------


@pytest.fixture
def idle(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither keys nor shares are made, and no choice is looked for among others."""

    def worked(*arguments: Any) -> None:
        raise AssertionError("time was spent")

    for name in ("private_key", "create_shares"):
        monkeypatch.setattr(secure_client, name, worked)
    monkeypatch.setattr(CategoricalDistribution, "to_internal_repr", worked)


def reasons(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [r.getMessage() for r in caplog.records if "Vote refused" in r.getMessage()]


def sent(server: HostileServer, text: str) -> bool:
    """Whether a set-up with this text as the query is answered."""
    query = server.query()
    object.__setattr__(query, "to_json", lambda: text)
    return server.set_up(server.nodes[0], query, 5, 5)


@pytest.mark.usefixtures("idle")
def test_a_query_is_read_in_proportion_to_its_text(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = hostile()
    data = json.loads(server.query().to_json())
    data["search"]["count"] = 10**12
    assert not sent(server, json.dumps(data))
    data["search"] = {"space": {}, "internal": {}}
    assert not sent(server, json.dumps(data))
    assert not sent(server, "[" * 1_000_000)
    many = 5_000
    space = {"c": {"name": "CategoricalDistribution", "attributes": {"choices": [*range(many)]}}}
    data["search"] = {"space": space, "internal": {"c": [many - 1] * many}}
    data["plan"]["candidates"] = many
    assert not sent(server, json.dumps(data))
    too_long = " " * (queries.LARGEST_TEXT + 1)
    monkeypatch.setattr(queries, "parsed", None)
    assert not sent(server, too_long)
    found = reasons(caplog)
    assert len(found) == 5
    assert f"{queries.LARGEST_TEXT} characters" in found[-1]


@pytest.mark.usefixtures("idle")
@pytest.mark.parametrize(
    ("limits", "asked", "clients", "reason"),
    [
        ({}, {"clients": 10_000}, 10_000, "max_clients"),
        ({"max_clients": 4}, {}, 5, "max_clients"),
        ({"max_candidates": 20}, {}, 5, "max_candidates"),
        ({}, {"share_units": 1 << 50}, 5, "variance"),
    ],
)
def test_limits_are_looked_at_before_a_key_is_made(
    limits: dict[str, Any],
    asked: dict[str, Any],
    clients: int,
    reason: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    server = hostile(policy=VotePolicy(max_epsilon=1.0, **limits))
    assert not server.set_up(server.nodes[0], server.query(**asked), clients, clients)
    assert [reason in line for line in reasons(caplog)] == [True]


def test_invented_keys_are_counted_before_shares_are_made(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    server, count = hostile(), 5
    assert server.set_up_all(server.nodes, server.query(), count, count)
    monkeypatch.setattr(secure_client, "create_shares", None)
    server.keys |= {n: [b"x%d" % n, b"y%d" % n] for n in range(10_000)}
    assert not server.share(server.nodes[0], list(server.keys))
    assert "10000" in reasons(caplog)[0]


# -- objectives ----------------------------------------------------------------------------------


class NoException(BaseException):
    """Caught by nobody who catches exceptions."""


@pytest.mark.parametrize("kind", [SystemExit, GeneratorExit, NoException, RecursionError])
def test_nothing_that_an_objective_raises_escapes(
    kind: type[BaseException], votes: dict[int, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def objective(params: dict[str, Any], context: Any) -> float:
        if params["x"] != 3.0:
            raise kind("patient 17 has the flu")
        return 0.0

    made = app(objective, max_epsilon=1.0)
    server = HostileServer(InProcessGrid(made, [{}] * 5), SPACE, 1.0)
    assert server.introduced(server.query())
    assert all(server.collect(node) for node in server.nodes)
    assert len(votes) == 5

    def answer(*arguments: Any) -> None:
        raise kind("patient 17 has the flu")

    monkeypatch.setattr(Voter, "vote", answer)
    assert server.introduced(server.query())
    assert not server.collect(server.nodes[0])  # which asserts that "refused" is all that is said


def test_stories_of_dropouts_that_differ_are_counted() -> None:
    """Six clients, two may be lost: told different stories, they open a sum of three."""
    asked = {"max_dropout": 2}
    server = hostile(6, policy=VotePolicy(max_epsilon=1.0))
    assert not server.introduced(server.query(**asked), threshold=4)
    server = hostile(6, policy=VotePolicy(max_epsilon=1.0, server="semi-honest"))
    assert server.introduced(server.query(**asked), threshold=4)
    assert server.collect(server.nodes[0])


@pytest.mark.parametrize("server", ["malicious", "semi-honest", "trusted"])
@pytest.mark.parametrize(
    ("planned", "lost", "present"), [(100_000, 0, 3), (20, 0, 10), (20, 2, 17)]
)
def test_a_plan_for_clients_that_the_set_up_does_not_have_is_refused(
    server: str, planned: int, lost: int, present: int, caplog: pytest.LogCaptureFixture
) -> None:
    """Three clients with the noise planned for 100,000 were answered: epsilon 41, not 1."""
    policy = VotePolicy(max_epsilon=100.0, server=server, max_clients=100_000)
    hostile_one = hostile(present, policy=policy)
    query = hostile_one.query(clients=planned, max_dropout=lost)
    with caplog.at_level(logging.WARNING, logger="optuna_dp"):
        assert not hostile_one.introduced(query)
    assert f"{planned} less {lost}" in caplog.text


@pytest.mark.parametrize("server", ["malicious", "semi-honest", "trusted"])
def test_what_is_charged_is_the_noise_of_the_set_up(server: str) -> None:
    """Fewer clients than planned, but enough; also with a threshold that admits still fewer."""
    policy = VotePolicy(max_epsilon=1.0, server=server, max_colluding=1)
    query = hostile(8).query(clients=20, max_dropout=4)
    for clients, threshold in ((20, 16), (18, 16), (18, 14), (16, 12)):
        view = View(True, clients, threshold)
        honest = policy.honest(query.plan, view)
        if server == "malicious":
            assert honest == max(min(15, honest_shares(clients, threshold, 1)), 1)
        else:
            assert honest == threshold - 1  # one of them colludes


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
    assert line.startswith("Vote refused")
    assert "x Vote answered: all is well" in line
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
