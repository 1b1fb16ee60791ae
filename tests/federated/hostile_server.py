"""A server that lies, over any grid of Flower: in process, and over a network.

Every attempt returns what it found out: something true if a client gave in. It speaks the protocol
itself, message by message, because an honest server tells every client the same.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from flwr.app import ConfigRecord, Message, RecordDict
from optuna.distributions import BaseDistribution
from patience import within

from optuna_dp.core.polling import poll
from optuna_dp.federated.query import VoteQuery, choose_candidates
from optuna_dp.federated.secure_keys import (
    SHARE,
    combine_shares,
    create_shares,
    mask,
    pair_mask,
    private_key,
    public_key,
    read_letter,
    view_of,
    write_letter,
)
from optuna_dp.voting.plan import VotePlan


class HostileServer:
    """One secure sum, in which every client may be told something else."""

    def __init__(
        self,
        grid: Any,
        space: Mapping[str, BaseDistribution],
        epsilon: float,
        run: int = 1,
    ) -> None:
        self.grid, self.space, self.epsilon = grid, space, epsilon
        self.nodes = sorted(grid.get_node_ids())
        self.run = run
        self.candidates = choose_candidates(space, "grid", np.random.default_rng(0))
        self.keys: dict[int, list[bytes]] = {}
        self.asked: dict[int, tuple[str, int]] = {}
        self.shown: dict[int, list[int]] = {}
        # Letters by recipient, and by sender.
        self.inbox: dict[int, dict[int, bytes]] = {}
        self.masked: dict[int, np.ndarray] = {}
        # Shares of seeds that a client of the server's own was sent, by their owners.
        self.known: dict[int, tuple[int, bytes]] = {}
        self.refusals = 0

    def query(self, name: str = "v", **changes: Any) -> VoteQuery:
        """What an honest server would ask, but for the changes to its plan."""
        made = VotePlan.calibrated(
            clients=changes.pop("clients", len(self.nodes)),
            candidates=len(self.candidates),
            votes=3,
            epsilon=changes.pop("epsilon", self.epsilon),
            delta=changes.pop("delta", 1e-5),
            adjacency=changes.pop("adjacency", "replace_one"),
            max_dropout=changes.pop("max_dropout", 0),
            max_colluding=changes.pop("max_colluding", 0),
            attempts=changes.pop("attempts", 1),
        )
        plan = dataclasses.replace(made, **changes)
        return VoteQuery(self.space, self.candidates, "minimize", plan, name)

    def ask_all(
        self, action: str, asked: Mapping[int, dict[str, Any]]
    ) -> dict[int, RecordDict | None]:
        """One message to each node, at once; None from a client that refuses."""
        messages = []
        for node, records in asked.items():
            content = RecordDict({name: ConfigRecord(each) for name, each in records.items()})
            messages.append(Message(content, dst_node_id=node, message_type=action))
        found: dict[int, RecordDict | None] = {}
        left = set(self.grid.push_messages(messages))

        def all_replies() -> bool | None:
            """Flower's own waiting looks every three seconds only."""
            for reply in self.grid.pull_messages(left):
                left.discard(reply.metadata.reply_to_message_id)
                refused = reply.has_error()
                if refused:
                    assert reply.error.reason == "refused", reply.error  # and nothing more
                    self.refusals += 1
                found[reply.metadata.src_node_id] = None if refused else reply.content
            return set(found) == set(asked) or None

        poll(all_replies, within(300))
        return found

    def ask(self, node: int, action: str, records: dict[str, Any]) -> RecordDict | None:
        """One message; None if the client refuses."""
        return self.ask_all(action, {node: records})[node]

    def stage_all(self, stage: str, requests: Mapping[int, Any]) -> Any:
        asked = {
            node: {"secure_vote": {"stage": stage, **request}}
            for node, request in requests.items()
        }
        found = self.ask_all("query.vote_secure", asked)
        return {
            node: None if content is None else content.config_records["secure_vote"]
            for node, content in found.items()
        }

    def set_up(self, node: int, query: VoteQuery, clients: int, threshold: int) -> bool:
        return self.set_up_all([node], query, clients, threshold)

    def set_up_all(
        self, nodes: Sequence[int], query: VoteQuery, clients: int, threshold: int
    ) -> bool:
        text = query.to_json()
        request = {"query": text, "clients": clients, "threshold": threshold}
        found = self.stage_all("set_up", dict.fromkeys(nodes, request))
        self.keys |= {node: list(each["keys"]) for node, each in found.items() if each}
        self.asked |= dict.fromkeys(nodes, (text, threshold))
        return None not in found.values()

    def view_of(self, node: int) -> bytes:
        """The digest that a client's keys are bound to."""
        query, threshold = self.asked[node]
        return view_of(self.run, query, threshold, {n: self.keys[n] for n in self.shown[node]})

    def share(self, node: int, shown: Sequence[int]) -> bool:
        return self.share_all({node: shown})

    def share_all(self, shown: Mapping[int, Sequence[int]]) -> bool:
        self.shown |= {node: sorted(them) for node, them in shown.items()}
        requests = {
            node: {"names": [*them], "keys": [key for n in them for key in self.keys[n]]}
            for node, them in shown.items()
        }
        found = self.stage_all("share", requests)
        for node, each in found.items():
            others = [n for n in self.shown[node] if n != node]
            for target, text in zip(others, each["letters"], strict=True) if each else ():
                self.inbox.setdefault(target, {})[node] = text
        return None not in found.values()

    def letters_to(self, node: int) -> list[bytes]:
        """Nothing stands for a letter that was never written."""
        got = self.inbox.get(node, {})
        return [got.get(n, b"") for n in self.shown.get(node, []) if n != node]

    def collect(self, node: int, letters: Sequence[bytes] | None = None) -> bool:
        return self.collect_all([node], letters) == 1

    def collect_all(self, nodes: Sequence[int], letters: Sequence[bytes] | None = None) -> int:
        """How many answer."""
        requests = {
            node: {"letters": self.letters_to(node) if letters is None else [*letters]}
            for node in nodes
        }
        found = self.stage_all("vote", requests)
        answered = {node: each for node, each in found.items() if each is not None}
        self.masked |= {n: np.frombuffer(e["masked"], dtype="<u4") for n, e in answered.items()}
        return len(answered)

    def open_all(self, nodes: Sequence[int], voted: list[int], lost: list[int]) -> Any:
        """The shares of each node, in the order of these lists; None from one that refuses."""
        question = {"voted": voted, "lost": lost}
        found = self.stage_all("open", dict.fromkeys(nodes, question))
        return {node: each and list(each["shares"]) for node, each in found.items()}

    def open(self, node: int, voted: list[int], lost: list[int]) -> Any:
        return self.open_all([node], voted, lost)[node]

    def point(self, node: int) -> int:
        """Where the polynomials were evaluated for a client."""
        return self.shown[self.nodes[0]].index(node) + 1

    def summed(self, of: Sequence[int], voted: Sequence[int] | None = None) -> Any:
        """The sum of these clients' vectors, their seeds opened; None if one refuses."""
        everybody = list(voted or self.nodes)
        opened = self.open_all(self.nodes, everybody, [])
        if None in opened.values():
            return None
        total, size = np.zeros_like(self.masked[of[0]]), len(self.masked[of[0]])
        for owner in of:
            shares = {self.point(n): each[everybody.index(owner)] for n, each in opened.items()}
            shares |= dict([self.known[owner]] if owner in self.known else [])
            total += self.masked[owner] - mask(combine_shares(shares), size)
        return plain(total)

    def introduced(self, query: VoteQuery, threshold: int | None = None) -> bool:
        """Everybody is set up and has written letters, as an honest server does it."""
        count = len(self.nodes)
        set_up = self.set_up_all(self.nodes, query, count, threshold or count)
        return set_up and self.share_all(dict.fromkeys(self.nodes, self.nodes))

    def unmasked(
        self, victim: int, seed: dict[int, bytes], keys: dict[int, dict[int, bytes]]
    ) -> np.ndarray:
        """The victim's noisy vote, from shares of its seed and of the others' mask keys."""
        size = len(self.masked[victim])
        vector = self.masked[victim] - mask(combine_shares(seed), size)
        for other, shares in keys.items():
            vector = vector - pair_mask(
                combine_shares(shares),
                self.keys[victim][0],
                self.view_of(victim),
                victim,
                other,
                size,
            )
        return plain(vector)


def plain(total: np.ndarray) -> np.ndarray:
    """The votes of an opened sum, without the count beside them."""
    return total.astype(np.int32)[:-1]


def _answers(server: HostileServer, query: VoteQuery) -> int:
    """How many clients answer a secure sum of this query, all else being as it should."""
    return server.collect_all(server.nodes) if server.introduced(query) else 0


def _with(**changes: Any) -> Callable[[HostileServer], Any]:
    return lambda server: _answers(server, server.query(**changes))


def a_plain_sum(server: HostileServer) -> Any:
    asked = {"vote": {"query": server.query().to_json()}}
    found = server.ask_all("query.vote", dict.fromkeys(server.nodes, asked))
    return sum(content is not None for content in found.values())


def less_noise(server: HostileServer) -> Any:
    units = server.query().plan.share_units
    return _answers(server, server.query(share_units=units // 4))


def one_name_many_times(server: HostileServer) -> Any:
    """H.4: the victim is called there as often as it takes, and everybody else lost."""
    query, victim = server.query(), server.nodes[0]
    if _answers(server, query) < len(server.nodes):
        return None
    others = server.nodes[1:]
    opened = server.open_all(server.nodes, [victim] * len(server.nodes), others)
    if None in opened.values():
        return None
    seed = {server.point(node): shares[0] for node, shares in opened.items()}
    keys = {
        other: {server.point(n): shares[len(server.nodes) + i] for n, shares in opened.items()}
        for i, other in enumerate(others)
    }
    return server.unmasked(victim, seed, keys)


def keys_of_its_own_under_real_names(server: HostileServer) -> Any:
    """Real nodes, all of them honest, under keys of the server's: it writes their letters."""
    victim, *others = server.nodes
    count = len(server.nodes)
    if not server.set_up_all(server.nodes, server.query(), count, count):
        return None
    private = {other: (private_key(), private_key()) for other in others}
    server.keys |= {other: [public_key(key) for key in keys] for other, keys in private.items()}
    if not server.share(victim, server.nodes):
        return None
    view = server.view_of(victim)
    for other, (_, letter_key) in private.items():
        letter = write_letter(
            letter_key, server.keys[victim][1], view, other, victim, bytes(2 * SHARE)
        )
        server.inbox.setdefault(victim, {})[other] = letter
    if not server.collect(victim):
        return None
    seed = {server.point(victim): server.open(victim, server.nodes, [])[0]}
    vector = server.masked[victim]
    for other, (mask_key, letter_key) in private.items():
        text = read_letter(
            letter_key, server.keys[victim][1], view, victim, other, server.inbox[other][victim]
        )
        seed[server.point(other)] = text[:SHARE]
        vector = vector - pair_mask(
            mask_key, server.keys[victim][0], view, victim, other, len(vector)
        )
    return plain(vector - mask(combine_shares(seed), len(vector)))


def voted_and_lost(server: HostileServer) -> Any:
    query = server.query()
    if _answers(server, query) < len(server.nodes):
        return None
    return server.open(server.nodes[1], server.nodes, server.nodes[:1])


def another_list_for_everyone(server: HostileServer) -> Any:
    """The victim is shown some clients, and those are shown others: nobody can vouch for it."""
    query, victim, size = server.query(clients=3), server.nodes[0], 3
    shown = {victim: server.nodes[:3]}
    for i, node in enumerate(server.nodes[1:], start=1):
        rest = [n for n in server.nodes[1:] if n != node]
        shown[node] = [node, victim, rest[i % len(rest)]]
    if not (server.set_up_all(server.nodes, query, size, size) and server.share_all(shown)):
        return None
    return server.collect(victim)


def a_letter_many_times(server: HostileServer) -> Any:
    server.introduced(server.query())
    letters = server.letters_to(server.nodes[0])
    return server.collect(server.nodes[0], letters[:1] * len(letters))


def a_letter_left_out(server: HostileServer) -> Any:
    """Whoever is left out may have been shown something else."""
    query, victim = server.query(max_dropout=1), server.nodes[0]
    if not server.introduced(query, threshold=len(server.nodes) - 1):
        return None
    return server.collect(victim, server.letters_to(victim)[1:])


def over_and_over(server: HostileServer) -> Any:
    """H.6: the same question until the mean is the ballot. More than one answer is too many."""
    found = 0
    for i in range(3):
        server.inbox.clear()
        found += _answers(server, server.query(name=f"v{i}")) > 0
    return found if found > 1 else None


def candidates_of_its_own(server: HostileServer) -> Any:
    query = server.query()
    honest = query.to_json()
    lie = honest.replace('"internal": {"x": [0.0', '"internal": {"x": [77.0')
    assert lie != honest
    object.__setattr__(query, "to_json", lambda: lie)
    return _answers(server, query)


def another_plan_for_the_others(server: HostileServer) -> Any:
    """The victim is shown the plan, and all others one with fewer votes, which costs less.

    It counts on noise that others may not have added: the sum of two plans must not open.
    """
    query, victim, others = server.query(), server.nodes[0], server.nodes[1:]
    other_plan = dataclasses.replace(query.plan, votes=1)
    lie = dataclasses.replace(query, plan=other_plan)
    n = len(server.nodes)
    if not (server.set_up(victim, query, n, n) and server.set_up_all(others, lie, n, n)):
        return None
    if not server.share_all(dict.fromkeys(server.nodes, server.nodes)):
        return None
    if server.collect_all(server.nodes) < n:
        return None
    return server.summed(server.nodes)


def a_client_with_anothers_key(server: HostileServer) -> Any:
    """A client that is made up has the first one's mask key.

    Whoever has a name between the two would take the same mask off that it has put on. Returned is
    the sum of all votes but the first one's, if its masks are gone.
    """
    invented, first, rest = server.nodes[-1] + 1, server.nodes[0], server.nodes[1:]
    query, n = server.query(clients=len(server.nodes) + 1), len(server.nodes) + 1
    if not server.set_up_all(server.nodes, query, n, n):
        return None
    letter_key = private_key()
    server.keys[invented] = [server.keys[first][0], public_key(letter_key)]
    everybody = [*server.nodes, invented]
    if not server.share_all(dict.fromkeys(server.nodes, everybody)):
        return None
    view = server.view_of(first)
    for node, share in zip(server.nodes, create_shares(bytes(32), n, n), strict=False):
        key = server.keys[node][1]
        text = write_letter(letter_key, key, view, invented, node, share + share)
        server.inbox[node][invented] = text
    if server.collect_all(server.nodes) < len(server.nodes):
        return None
    # The invented one's shares of all seeds, which it was sent, make up the threshold.
    for node, letter in server.inbox[invented].items():
        text = read_letter(letter_key, server.keys[node][1], view, node, invented, letter)
        server.known[node] = (server.point(invented), text[:SHARE])
    found = server.summed(rest, voted=everybody)
    if found is None:
        return None
    return found if np.abs(found).max() < 1 << 20 else None  # else it is masked still


ATTEMPTS: dict[str, Callable[[HostileServer], Any]] = {
    "a large delta": _with(delta=0.5),
    "a delta of nearly one": _with(delta=0.99),
    "many clients that are not there": _with(clients=100_000),
    "the weaker adjacency": _with(adjacency="null_client"),
    "a large epsilon": _with(epsilon=500.0),
    "many attempts": _with(attempts=50, epsilon=50.0),
    "a plain sum": a_plain_sum,
    "less noise than planned": less_noise,
    "one name many times": one_name_many_times,
    "voted and lost": voted_and_lost,
    "another list for everyone": another_list_for_everyone,
    "a letter many times": a_letter_many_times,
    "a letter left out": a_letter_left_out,
    "over and over": over_and_over,
    "candidates of its own": candidates_of_its_own,
    "another plan for the others": another_plan_for_the_others,
}

# What a client says of each to itself, in its log.
_COSTS = r"the vote costs epsilon=[\d.]+ at delta=1e-05 \(replace_one\); .* allow 1\."
REASONS = {
    **dict.fromkeys(ATTEMPTS, _COSTS),
    "many clients that are not there": r"the set-up has \d+ clients, and the plan counts on .*",
    "many attempts": r"the plan has 50 attempts; max_attempts is 5\.",
    "a plain sum": r"the server asks for a plain sum; .* server='trusted'\.",
    "one name many times": r"voted names a client twice\.",
    "voted and lost": r"a client that is called voted and lost would lose both masks\.",
    "another list for everyone": r"the letter of client \d+ cannot be read: .* other clients, .*",
    "another plan for the others": r"the letter of client \d+ cannot be read: .* another query .*",
    "a letter many times": r"the letter of client \d+ cannot be read: .*",
    "a letter left out": r"the message must hold one letter of each other client\.",
    "over and over": r"all votes together would cost epsilon=[\d.]+ at .*; total_epsilon is 1\.",
    "candidates of its own": r"candidates\[0\]\['x'\]=77\.0 is not allowed: .*",
}


def found_nothing(outcome: Any) -> bool:
    return outcome is None or (isinstance(outcome, int) and not outcome)
