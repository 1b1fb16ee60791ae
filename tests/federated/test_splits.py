"""A server that sends two clients different things: every field of every message.

Each is refused by those who would have to rely on each other, or harmless for the reason given.
"""

from __future__ import annotations

import copy
import json
import logging
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
import pytest

pytest.importorskip("flwr", reason='needs Flower: pip install "optuna-dp[federated]"')

from flwr.app import Message

from federated.in_process import STAGES, Wire, stage_of, vote, votes
from optuna_dp.federated import VotePolicy, secure_client, secure_keys
from optuna_dp.federated.secure_keys import private_key, public_key
from optuna_dp.voting import VoteFailedError

assert votes  # a fixture

CLIENTS = 4
RECORD = "secure_vote"
# Generous: nothing is refused because of what it costs.
POLICY = VotePolicy(max_epsilon=1e3, total_epsilon=1e6, min_clients=2, max_attempts=100)
CANNOT_READ = "cannot be read"

# Changes a message of a stage that some clients get.
Change = Callable[[str, Message], None]


class Split(Wire):
    """A server that sends some clients, by their index, something else; it keeps what it sent."""

    def __init__(self, change: Change, to: Iterable[int]) -> None:
        super().__init__(CLIENTS, policy=POLICY)
        self.sent: list[Message] = []
        self._change, self._to = change, {1001 + i for i in to}

    def send_and_receive(
        self, messages: Iterable[Message], *, timeout: float | None = None
    ) -> Iterable[Message]:
        changed = []
        for message in messages:
            self.sent.append(message)
            if message.metadata.dst_node_id in self._to:
                message = Message(
                    copy.deepcopy(message.content),
                    message.metadata.dst_node_id,
                    message.metadata.message_type,
                )
                self._change(stage_of(message), message)
            changed.append(message)
        return super().send_and_receive(changed, timeout=timeout)


def nothing(stage: str, message: Message) -> None:
    """An honest server."""


@pytest.fixture(scope="module")
def chosen() -> Any:
    made = vote(epsilon=2.0)
    plan = made.plan(CLIENTS)
    made.plan = lambda clients: plan
    return made


def held(chosen: Any, change: Change, to: Iterable[int]) -> list[int] | None:
    """The noisy votes, None if none came out."""
    chosen = copy.copy(chosen)  # each is a first vote
    wire = Split(change, to)
    try:
        return list(chosen.start(wire, wire.server_context()).attributes["noisy_votes"])
    except VoteFailedError:
        return None


def refusals(caplog: pytest.LogCaptureFixture) -> str:
    return "\n".join(r.getMessage() for r in caplog.records if "refused" in r.getMessage())


# -- the query: each value in it -----------------------------------------------------------------

OTHERS = {"minimize": "maximize", "replace_one": "null_client"}


def leaves(data: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[tuple[Any, ...], Any]]:
    """The values of JSON and where they are; of a list the first and the last."""
    if isinstance(data, dict | list):
        keys = data if isinstance(data, dict) else (0, len(data) - 1)
        for key in keys:
            yield from leaves(data[key], (*path, key))
    else:
        yield path, data


def another(value: Any) -> Any:
    if isinstance(value, str):
        return OTHERS.get(value, value + "x")
    if isinstance(value, bool):
        return not value
    return value + (1 if isinstance(value, int) else 0.5)


def honest_query() -> dict[str, Any]:
    wire, made = Split(nothing, ()), vote(epsilon=2.0)
    made.start(wire, wire.server_context())
    return dict(json.loads(wire.sent[0].content[RECORD]["query"]))


VALUES = dict(leaves(honest_query()))
# With another value there the query is one that clients answer, if all get the same.
ANSWERED_BY_ALL = {
    ("direction",),
    ("vote",),
    ("search", "internal", "x", 0),
    ("search", "space", "x", "attributes", "high"),
    *(("plan", each) for each in ("votes", "adjacency", "share_units")),
    ("plan", "max_colluding"),
    *(("plan", each) for each in ("epsilon", "delta", "attempts", "max_dropout")),
}


def other_query(path: tuple[Any, ...], value: Any) -> Change:
    """The query with another value."""

    def change(stage: str, message: Message) -> None:
        if stage != "set_up":
            return
        data = json.loads(str(message.content[RECORD]["query"]))
        place = data
        for key in path[:-1]:
            place = place[key]
        place[path[-1]] = value
        message.content[RECORD]["query"] = json.dumps(data)

    return change


@pytest.mark.parametrize("path", VALUES, ids=str)
def test_a_value_of_the_query_given_differently_to_two_clients(
    path: tuple[Any, ...], chosen: Any, votes: dict[int, Any], caplog: pytest.LogCaptureFixture
) -> None:
    change = other_query(path, another(VALUES[path]))
    held(chosen, change, range(CLIENTS))
    assert bool(votes) is (path in ANSWERED_BY_ALL)
    votes.clear()
    caplog.clear()
    with caplog.at_level(logging.WARNING, logger="optuna_dp"):
        assert held(chosen, change, range(1, CLIENTS)) is None
    assert votes == {}  # nobody has made a vote, let alone sent it
    assert (CANNOT_READ in refusals(caplog)) is (path in ANSWERED_BY_ALL)


def test_every_value_is_refused_by_its_binding_alone(
    chosen: Any, votes: dict[int, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without it, each query that all would answer is answered beside another one."""
    real = secure_keys.view_of
    monkeypatch.setattr(
        secure_client,
        "view_of",
        lambda run, query, threshold, keys: real(run, "", threshold, keys),
    )
    for path in ANSWERED_BY_ALL:
        votes.clear()
        held(chosen, other_query(path, another(VALUES[path])), range(1, CLIENTS))
        assert set(votes) == set(range(CLIENTS)), path


def test_masks_of_different_queries_do_not_cancel_either(
    chosen: Any, votes: dict[int, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A second line: with letters that everybody can read, the sum of two does not open."""
    for name in ("write_letter", "read_letter"):
        real = getattr(secure_keys, name)
        monkeypatch.setattr(
            secure_client,
            name,
            lambda private, public, view, *more, real=real: real(private, public, b"", *more),
        )
    assert held(chosen, nothing, ()) is not None
    votes.clear()
    assert held(chosen, other_query(("vote",), "another"), range(1, CLIENTS)) is None
    assert set(votes) == set(range(CLIENTS))


# -- everything else -----------------------------------------------------------------------------


def with_entry(stage: str, key: str, value: Callable[[Any], Any]) -> Change:
    def change(at: str, message: Message) -> None:
        if at == stage:
            message.content[RECORD][key] = value(message.content[RECORD][key])

    return change


def with_keys(alter: Callable[[list[list[bytes]]], None]) -> Change:
    """Other keys of clients than the one that is told so."""

    def change(stage: str, message: Message) -> None:
        if stage == "share":
            record = message.content[RECORD]
            names, keys = list(record["names"]), list(record["keys"])
            own = names.index(message.metadata.dst_node_id)
            pairs = [keys[2 * i : 2 * i + 2] for i in range(len(names))]
            others = pairs[:own] + pairs[own + 1 :]
            alter(others)
            pairs = [*others[:own], pairs[own], *others[own:]]
            record["keys"] = [key for pair in pairs for key in pair]

    return change


def fresh_key(which: int) -> Callable[[list[list[bytes]]], None]:
    def alter(pairs: list[list[bytes]]) -> None:
        pairs[0][which] = public_key(private_key())

    return alter


def known_secret(pairs: list[list[bytes]]) -> None:
    """A point of small order: with any private key the shared secret is zero."""
    pairs[0][0] = bytes(32)


def written_otherwise(pairs: list[list[bytes]]) -> None:
    """X25519 leaves the highest bit out."""
    pairs[0][0] = pairs[0][0][:-1] + bytes([pairs[0][0][-1] ^ 0x80])


def not_its_own(stage: str, message: Message) -> None:
    if stage == "share":
        record = message.content[RECORD]
        keys = list(record["keys"])
        keys[2 * list(record["names"]).index(message.metadata.dst_node_id)] = keys[-1][::-1]
        record["keys"] = keys


def renamed(stage: str, message: Message) -> None:
    if stage == "share":
        record = message.content[RECORD]
        own = message.metadata.dst_node_id
        other = next(name for name in record["names"] if name != own)
        record["names"] = [5 if name == other else name for name in record["names"]]


def a_client_less(stage: str, message: Message) -> None:
    """Of those that it is introduced to, the message leaves out another than the client."""
    if stage == "share":
        record = message.content[RECORD]
        i = 0 if record["names"][0] != message.metadata.dst_node_id else 1
        record["names"] = [*record["names"][:i], *record["names"][i + 1 :]]
        record["keys"] = [*record["keys"][: 2 * i], *record["keys"][2 * i + 2 :]]


def reordered(stage: str, *names: str) -> Change:
    def change(at: str, message: Message) -> None:
        if at == stage:
            for name in names:
                message.content[RECORD][name] = message.content[RECORD][name][::-1]

    return change


def reordered_clients(stage: str, message: Message) -> None:
    if stage == "share":
        record = message.content[RECORD]
        pairs = [record["keys"][i : i + 2] for i in range(0, 2 * CLIENTS, 2)]
        record["names"] = record["names"][::-1]
        record["keys"] = [key for pair in pairs[::-1] for key in pair]


def less(values: list[Any]) -> list[Any]:
    return values[1:]


REFUSED: dict[str, tuple[Change, str]] = {
    "set_up query": (with_entry("set_up", "query", lambda text: text + " "), CANNOT_READ),
    "set_up clients": (with_entry("set_up", "clients", lambda n: n - 1), "threshold 4"),
    "set_up threshold": (
        with_entry("set_up", "threshold", lambda n: n - 1),
        "threshold 3",
    ),
    "share names": (a_client_less, "shows 3 clients"),
    "share another name": (renamed, CANNOT_READ),
    "share names exchanged": (with_keys(lambda pairs: pairs.reverse()), CANNOT_READ),
    "share keys": (with_entry("share", "keys", less), "two keys"),
    "share another mask key": (with_keys(fresh_key(0)), CANNOT_READ),
    "share another letter key": (with_keys(fresh_key(1)), CANNOT_READ),
    "share a mask key written otherwise": (with_keys(written_otherwise), CANNOT_READ),
    "share a key of a known secret": (with_keys(known_secret), "no client"),
    "share a key of its own": (not_its_own, "own keys"),
    "vote letters": (with_entry("vote", "letters", less), "one letter"),
    "vote letters in another order": (reordered("vote", "letters"), CANNOT_READ),
    "open voted": (with_entry("open", "voted", less), "3 clients voted"),
    "open lost": (with_entry("open", "lost", lambda names: [1001]), "voted and lost"),
    "open lost clients that are not there": (
        with_entry("open", "lost", lambda names: [7]),
        "never",
    ),
}

HARMLESS: dict[str, tuple[Change, str]] = {
    "share clients in another order": (reordered_clients, "a client puts them in order"),
}


@pytest.mark.parametrize("name", REFUSED)
@pytest.mark.parametrize("to", [(0,), (1, 2, 3)], ids=["the victim", "the others"])
def test_what_two_clients_are_told_differently_is_refused(
    name: str, to: tuple[int, ...], chosen: Any, votes: Any, caplog: pytest.LogCaptureFixture
) -> None:
    change, reason = REFUSED[name]
    with caplog.at_level(logging.WARNING, logger="optuna_dp"):
        assert held(chosen, change, to) is None
    assert reason in refusals(caplog)
    if name.startswith(("set_up", "share")):
        assert votes == {}


@pytest.mark.parametrize("name", HARMLESS)
def test_what_is_harmless_changes_nothing(name: str, chosen: Any, votes: dict[int, Any]) -> None:
    change, why = HARMLESS[name]
    assert why
    assert held(chosen, change, (1, 2)) == sum(np.array(v[0]) for v in votes.values()).tolist()


def test_no_field_is_left_out(chosen: Any) -> None:
    """What an honest server sends, field by field, is what is split above."""
    wire = Split(nothing, ())
    copy.copy(chosen).start(wire, wire.server_context())
    tried = set(REFUSED) | set(HARMLESS)
    for message in wire.sent:
        stage = stage_of(message)
        assert stage in STAGES
        assert set(message.content) == {RECORD}
        for key in set(message.content[RECORD]) - {"stage"}:
            assert f"{stage} {key}" in tried


def test_another_run_is_another_vote(
    chosen: Any, votes: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """One client in two runs at once is no two clients of one sum."""
    wire = Split(nothing, ())
    wire.nodes[1001][1].run_id = 2
    with caplog.at_level(logging.WARNING, logger="optuna_dp"), pytest.raises(VoteFailedError):
        copy.copy(chosen).start(wire, wire.server_context())
    assert votes == {}
    assert CANNOT_READ in refusals(caplog)


def test_other_settings_of_the_run_are_harmless(chosen: Any, votes: Any) -> None:
    """They may change what an objective does: a ballot has k ones whatever it does."""
    wire = Split(nothing, ())
    wire.nodes[1001][1].run_config = {"other": 1}
    assert copy.copy(chosen).start(wire, wire.server_context()).params
    assert set(votes) == set(range(CLIENTS))
