"""A server that sends two clients different things: every field of every message.

Each is refused by those who would have to rely on each other, or harmless for the reason given.
"""

from __future__ import annotations

import copy
import json
import logging
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
import pytest

pytest.importorskip("flwr", reason='needs Flower: pip install "optuna-dp[federated]"')

from flwr.app import Message
from flwr.supercore.primitives.asymmetric import generate_key_pairs, public_key_to_bytes

from federated.in_process import STAGES, Wire, stage_of, vote, votes
from optuna_dp.federated import VoteFailedError, VotePolicy, masks
from optuna_dp.federated.transport import entry_bound
from optuna_dp.voting import VotePlan

assert votes  # a fixture

CLIENTS = 4
CONFIG, QUERY = "secaggplus_configs", "vote_query"
# Generous: nothing is refused because of what it costs.
POLICY = VotePolicy(max_epsilon=1e3, total_epsilon=1e6, min_clients=2, max_attempts=100)
CANNOT_READ = "a client's share cannot be read: it was shown another query or other clients"

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
    return dict(json.loads(wire.sent[0].content[QUERY]["query"]))


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
    """The query with another value, and a set-up that fits it."""

    def change(stage: str, message: Message) -> None:
        if stage != "setup":
            return
        data = json.loads(str(message.content[QUERY]["query"]))
        place = data
        for key in path[:-1]:
            place = place[key]
        place[path[-1]] = value
        message.content[QUERY]["query"] = json.dumps(data)
        if path[0] == "plan" and path[1] in ("votes", "share_units"):
            clip = entry_bound(VotePlan.from_json(data["plan"]))
            message.content[CONFIG]["clipping_range"] = float(clip)
            message.content[CONFIG]["target_range"] = 2 * clip

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
    real = masks.digest_of
    monkeypatch.setattr(
        masks,
        "digest_of",
        lambda run, query, numbers, keys: real(
            run, "", {**numbers, "clipping_range": 0, "target_range": 0}, keys
        ),
    )
    for path in ANSWERED_BY_ALL:
        votes.clear()
        held(chosen, other_query(path, another(VALUES[path])), range(1, CLIENTS))
        assert set(votes) == set(range(CLIENTS)), path


def test_masks_of_different_queries_do_not_cancel_either(
    chosen: Any, votes: dict[int, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A second line: with shares that everybody can read, the sum of two queries does not open."""
    real = masks.pair_key

    def readable(own: Any, other: Any) -> bytes:
        if sys._getframe(1).f_code.co_name == "_share_keys":
            before = masks.view.set(b"")
            try:
                return real(own, other)
            finally:
                masks.view.reset(before)
        return real(own, other)

    monkeypatch.setattr(masks.client_module(), "generate_shared_key", readable)
    assert held(chosen, nothing, ()) is not None
    votes.clear()
    assert held(chosen, other_query(("vote",), "another"), range(1, CLIENTS)) is None
    assert set(votes) == set(range(CLIENTS))


# -- everything else -----------------------------------------------------------------------------


def with_entry(stage: str, key: str, value: Callable[[Any], Any], record: str = CONFIG) -> Change:
    def change(at: str, message: Message) -> None:
        if at == stage:
            message.content[record][key] = value(message.content[record][key])

    return change


def with_keys(alter: Callable[[dict[str, Any]], None]) -> Change:
    """Other keys of other clients than the one that is told so."""

    def change(stage: str, message: Message) -> None:
        if stage == "share_keys":
            config = message.content[CONFIG]
            found = {k: v for k, v in config.items() if k != "stage"}
            own = found.pop(str(message.metadata.dst_node_id))
            alter(found)
            for key in [k for k in config if k != "stage"]:
                del config[key]
            for key, pair in {str(message.metadata.dst_node_id): own, **found}.items():
                config[key] = pair

    return change


def fresh_key(which: int) -> Callable[[dict[str, Any]], None]:
    def alter(keys: dict[str, Any]) -> None:
        pair = list(keys[min(keys)])
        pair[which] = public_key_to_bytes(generate_key_pairs()[1])
        keys[min(keys)] = pair

    return alter


def renamed(keys: dict[str, Any]) -> None:
    keys["5"] = keys.pop(min(keys))


def not_its_own(stage: str, message: Message) -> None:
    if stage == "share_keys":
        own = str(message.metadata.dst_node_id)
        key = public_key_to_bytes(generate_key_pairs()[1])
        message.content[CONFIG][own] = [message.content[CONFIG][own][0], key]


def exchanged(keys: dict[str, Any]) -> None:
    keys[min(keys)], keys[max(keys)] = keys[max(keys)], keys[min(keys)]


def rewritten(keys: dict[str, Any]) -> None:
    keys[min(keys)] = [keys[min(keys)][0] + b"\n", keys[min(keys)][1]]


def reordered(stage: str, *names: str) -> Change:
    def change(at: str, message: Message) -> None:
        if at == stage:
            for name in names:
                message.content[CONFIG][name] = message.content[CONFIG][name][::-1]

    return change


def less(values: list[Any]) -> list[Any]:
    return values[1:]


REFUSED: dict[str, tuple[Change, str]] = {
    "setup sample_num": (with_entry("setup", "sample_num", lambda n: n - 1), "were planned"),
    "setup share_num": (with_entry("setup", "share_num", lambda n: n - 1), "were planned"),
    "setup threshold": (
        with_entry("setup", "threshold", lambda n: n - 1),
        "the plan needs at least",
    ),
    "setup clipping_range": (with_entry("setup", "clipping_range", lambda x: 8.0), "clipping"),
    "setup target_range": (with_entry("setup", "target_range", lambda n: n * 2), "target"),
    "setup mod_range": (with_entry("setup", "mod_range", lambda n: n // 2), "mod_range"),
    "setup max_weight": (with_entry("setup", "max_weight", lambda x: 1000.0), "max_weight"),
    "setup query": (with_entry("setup", "query", lambda text: text + " ", QUERY), CANNOT_READ),
    "share_keys a client left out": (with_keys(lambda keys: keys.pop(min(keys))), "are needed"),
    "share_keys another first key": (with_keys(fresh_key(0)), CANNOT_READ),
    "share_keys another second key": (with_keys(fresh_key(1)), CANNOT_READ),
    "share_keys a key written otherwise": (with_keys(rewritten), "keys that no client makes"),
    # Here it is the server that uses no such reply; a client would have no share of that name.
    "share_keys another name": (with_keys(renamed), ""),
    "share_keys a key of its own": (not_its_own, "does not show this client its own keys"),
    "share_keys names exchanged": (with_keys(exchanged), CANNOT_READ),
    "collect_masked_vectors srcs": (
        with_entry("collect_masked_vectors", "srcs", less),
        "has sent no share",
    ),
    "collect_masked_vectors srcs in another order": (
        reordered("collect_masked_vectors", "srcs"),
        CANNOT_READ,
    ),
    "collect_masked_vectors ctxts": (
        with_entry("collect_masked_vectors", "ctxts", less),
        "one share of each",
    ),
    "unmask active_nids": (with_entry("unmask", "active_nids", less), "are needed"),
    "unmask dead_nids": (
        with_entry("unmask", "dead_nids", lambda nids: [1001]),
        "called active and dead",
    ),
}

HARMLESS: dict[str, tuple[Change, str]] = {
    "share_keys in another order": (
        with_keys(lambda keys: [keys.update({k: keys.pop(k)}) for k in sorted(keys)]),  # type: ignore[arg-type, func-returns-value]
        "which share of a secret goes to whom says nothing",
    ),
    "collect_masked_vectors in another order": (
        reordered("collect_masked_vectors", "srcs", "ctxts"),
        "masks are added, in whatever order",
    ),
}
# Read by nobody: Flower's record of a training round, which is empty.
UNREAD = {"fitins.parameters", "fitins.config"}


@pytest.mark.parametrize("name", REFUSED)
@pytest.mark.parametrize("to", [(0,), (1, 2, 3)], ids=["the victim", "the others"])
def test_what_two_clients_are_told_differently_is_refused(
    name: str, to: tuple[int, ...], chosen: Any, votes: Any, caplog: pytest.LogCaptureFixture
) -> None:
    change, reason = REFUSED[name]
    with caplog.at_level(logging.WARNING, logger="optuna_dp"):
        assert held(chosen, change, to) is None
    assert reason in refusals(caplog)
    if name.startswith(("setup", "share_keys")):
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
        for name, record in message.content.items():
            if name in UNREAD:
                assert set(record) <= {"_empty"}
                continue
            assert name in (CONFIG, QUERY)
            for key in set(record) - {"stage"}:
                field = f"{stage} {'another name' if key.isdecimal() else key}"
                assert field in tried, field


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
