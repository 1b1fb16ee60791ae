"""A server that lies, over any grid of Flower: in process, and over a network.

Every attempt returns what it found out: something true if a client gave in. It speaks the protocol
itself, message by message, because Flower's workflow tells every client the same.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from cryptography.hazmat.primitives.asymmetric import ec
from flwr.app import ConfigRecord, Message, RecordDict
from flwr.common import bytes_to_ndarray
from flwr.common.secure_aggregation.crypto.symmetric_encryption import decrypt, encrypt
from flwr.common.secure_aggregation.secaggplus_utils import (
    share_keys_plaintext_concat,
    share_keys_plaintext_separate,
)
from flwr.supercore.primitives.asymmetric import (
    bytes_to_public_key,
    generate_key_pairs,
    public_key_to_bytes,
)
from optuna.distributions import BaseDistribution
from patience import within

from optuna_dp.federated import masks
from optuna_dp.federated.query import VoteQuery, choose_candidates
from optuna_dp.federated.shamir import combine_shares, create_shares
from optuna_dp.federated.transport import MODULUS, entry_bound
from optuna_dp.polling import poll
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
        self.asked: dict[int, tuple[str, dict[str, Any]]] = {}
        self.inbox: dict[int, list[tuple[int, bytes]]] = {}
        self.masked: dict[int, np.ndarray] = {}
        # Shares of seeds that clients of the server's own were sent.
        self.known: dict[int, list[bytes]] = {}
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

    def stage(self, node: int, stage: str, config: dict[str, Any]) -> Any:
        return self.stage_all(stage, {node: config})[node]

    def stage_all(self, stage: str, configs: Mapping[int, Any], query: str = "") -> Any:
        more = {"vote_query": {"query": query}} if query else {}
        asked = {
            node: {"secaggplus_configs": {"stage": stage, **config}, **more}
            for node, config in configs.items()
        }
        found = self.ask_all("query.vote_secagg", asked)
        return {
            node: None if content is None else content.config_records["secaggplus_configs"]
            for node, content in found.items()
        }

    def set_up(
        self, node: int, query: VoteQuery, clients: int, threshold: int, shares: int | None = None
    ) -> bool:
        return self.set_up_all([node], query, clients, threshold, shares)

    def set_up_all(
        self,
        nodes: Sequence[int],
        query: VoteQuery,
        clients: int,
        threshold: int,
        shares: int | None = None,
        **changes: Any,
    ) -> bool:
        """Also of other numbers than the query asks for: ``changes``."""
        clip = entry_bound(query.plan)
        config = {
            "sample_num": clients,
            "share_num": shares or clients,
            "threshold": threshold,
            "clipping_range": float(clip),
            "target_range": 2 * clip,
            "mod_range": MODULUS,
            "max_weight": 1.0,
            **changes,
        }
        found = self.stage_all("setup", dict.fromkeys(nodes, config), query.to_json())
        self.keys |= {n: [each["pk1"], each["pk2"]] for n, each in found.items() if each}
        self.asked |= dict.fromkeys(nodes, (query.to_json(), config))
        return None not in found.values()

    def view_of(self, node: int) -> bytes:
        """The digest that a client's keys are bound to, if all were shown to it."""
        query, numbers = self.asked[node]
        return masks.digest_of(self.run, query, numbers, self.keys)

    def share(self, node: int, shown: Sequence[int]) -> bool:
        return self.share_all({node: shown})

    def share_all(self, shown: Mapping[int, Sequence[int]]) -> bool:
        keys = {node: {str(n): self.keys[n] for n in them} for node, them in shown.items()}
        found = self.stage_all("share_keys", keys)
        for node, each in found.items():
            for target, text in zip(each["dsts"], each["ctxts"], strict=True) if each else ():
                self.inbox.setdefault(target, []).append((node, text))
        return None not in found.values()

    def collect(self, node: int, sources: Sequence[int] | None = None) -> bool:
        return self.collect_all([node], sources) == 1

    def collect_all(self, nodes: Sequence[int], sources: Sequence[int] | None = None) -> int:
        """How many answer."""
        configs = {}
        for node in nodes:
            got = dict(self.inbox.get(node, []))
            chosen = list(got) if sources is None else list(sources)
            configs[node] = {"srcs": chosen, "ctxts": [got[n] for n in chosen]}
        found = self.stage_all("collect_masked_vectors", configs)
        answered = {node: each for node, each in found.items() if each is not None}
        self.masked |= {n: bytes_to_ndarray(e["masked_params"][1]) for n, e in answered.items()}
        return len(answered)

    def unmask(self, node: int, active: list[int], dead: list[int]) -> Any:
        found = self.stage(node, "unmask", {"active_nids": active, "dead_nids": dead})
        return None if found is None else list(zip(found["nids"], found["shares"], strict=True))

    def summed(self, of: Sequence[int], active: Sequence[int] | None = None) -> Any:
        """The sum of these clients' vectors, their seeds opened; None if one refuses."""
        shares = {node: list(self.known.get(node, [])) for node in of}
        for node in self.nodes:
            found = self.unmask(node, list(active or self.nodes), [])
            if found is None:
                return None
            for owner, share in found:
                if owner in shares:
                    shares[owner].append(share)
        total = sum(self.masked[node] for node in of)
        shapes = [(1,), total.shape]
        for each in shares.values():
            total = total - masks.chacha20_masks(combine_shares(each), MODULUS, shapes)[1]
        return total % MODULUS

    def introduced(self, query: VoteQuery, threshold: int | None = None) -> bool:
        """Everybody is set up and has shared with everybody, as an honest server does it."""
        count = len(self.nodes)
        set_up = self.set_up_all(self.nodes, query, count, threshold or count)
        return set_up and self.share_all(dict.fromkeys(self.nodes, self.nodes))

    def opened(
        self, victim: int, query: VoteQuery, seed: list[bytes], keys: dict[int, list[bytes]]
    ) -> np.ndarray:
        """The victim's noisy vote, from shares of its seed and of the others' secret keys."""
        p, shapes = query.plan.candidates, [(1,), (query.plan.candidates,)]
        vector = (
            self.masked[victim] - masks.chacha20_masks(combine_shares(seed), MODULUS, shapes)[1]
        )
        for other, shares in keys.items():
            secret = masks.bytes_to_private_key(combine_shares(shares))
            before = masks.view.set(self.view_of(victim))
            key = masks.pair_key(secret, bytes_to_public_key(self.keys[victim][0]))
            masks.view.reset(before)
            mask = masks.chacha20_masks(key, MODULUS, shapes)[1]
            vector = vector - mask if victim > other else vector + mask
        assert vector.shape == (p,)
        return vector % MODULUS - entry_bound(query.plan)


def _answers(server: HostileServer, query: VoteQuery) -> int:
    """How many clients answer a secure sum of this query, all else being as it should."""
    return server.collect_all(server.nodes) if server.introduced(query) else 0


def _with(**changes: Any) -> Callable[[HostileServer], Any]:
    return lambda server: _answers(server, server.query(**changes))


def a_plain_sum(server: HostileServer) -> Any:
    asked = {"vote_query": {"query": server.query().to_json()}}
    found = server.ask_all("query.vote", dict.fromkeys(server.nodes, asked))
    return sum(content is not None for content in found.values())


def less_noise(server: HostileServer) -> Any:
    units = server.query().plan.share_units
    return _answers(server, server.query(share_units=units // 4))


def one_name_many_times(server: HostileServer) -> Any:
    """H.4: the victim is called active as often as it takes, and everybody else dead."""
    query, victim = server.query(), server.nodes[0]
    if _answers(server, query) < len(server.nodes):
        return None
    others = [n for n in server.nodes if n != victim]
    seed: list[bytes] = []
    keys: dict[int, list[bytes]] = {n: [] for n in others}
    lie = {"active_nids": [victim] * len(server.nodes), "dead_nids": others}
    for found in server.stage_all("unmask", dict.fromkeys(server.nodes, lie)).values():
        if found is None:
            return None
        seed.append(found["shares"][0])
        for owner, share in zip(others, found["shares"][len(server.nodes) :], strict=True):
            keys[owner].append(share)
    return server.opened(victim, query, seed, keys)


def active_and_dead(server: HostileServer) -> Any:
    query = server.query()
    if _answers(server, query) < len(server.nodes):
        return None
    return server.unmask(server.nodes[1], server.nodes, server.nodes[:1])


def another_list_for_everyone(server: HostileServer) -> Any:
    """The victim is shown some clients, and those are shown others: nobody can vouch for it."""
    query, victim, size = server.query(clients=3), server.nodes[0], 3
    shown = {victim: server.nodes[:3]}
    for i, node in enumerate(server.nodes[1:], start=1):
        rest = [n for n in server.nodes[1:] if n != node]
        shown[node] = [node, victim, rest[i % len(rest)]]
    if not (server.set_up_all(server.nodes, query, size, size) and server.share_all(shown)):
        return None
    sources = [n for n in shown[victim] if n != victim]
    return server.collect(victim, sources)


def a_source_many_times(server: HostileServer) -> Any:
    query = server.query()
    server.introduced(query)
    one = server.inbox[server.nodes[0]][0][0]
    return server.collect(server.nodes[0], [one] * (len(server.nodes) - 1))


def a_source_left_out(server: HostileServer) -> Any:
    """Against whoever is left out nothing masks the victim's vote."""
    query, victim = server.query(max_dropout=1), server.nodes[0]
    if not server.introduced(query, threshold=len(server.nodes) - 1):
        return None
    return server.collect(victim, [n for n, _ in server.inbox[victim]][1:])


def a_part_of_the_shares(server: HostileServer) -> Any:
    """A sparse graph, which a server that lies can draw around its victim."""
    query, near = server.query(), server.nodes[:3]
    if not server.set_up_all(near, query, len(server.nodes), len(near), shares=len(near)):
        return None
    if not server.share_all(dict.fromkeys(near, near)):
        return None
    return server.collect(near[0])


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
    total = server.summed(server.nodes)
    if total is None:
        return None
    found = total - entry_bound(query.plan) - (n - 1) * entry_bound(other_plan)
    return (found + MODULUS // 2) % MODULUS - MODULUS // 2


def a_client_with_anothers_key(server: HostileServer) -> Any:
    """A client that is made up has the first one's key, written in another way.

    Whoever has a name between the two takes the same mask off that it has put on: the first one's
    vote, and its noise, can be left out of the sum.
    """
    return _with_a_key_of_its_own(server, lambda key: key + b"\n")


def a_client_with_anothers_shared_secrets(server: HostileServer) -> Any:
    """The same with the negative of the point: ECDH knows only one coordinate."""

    def negative(text: bytes) -> bytes:
        point = bytes_to_public_key(text).public_numbers()
        prime = 2**384 - 2**128 - 2**96 + 2**32 - 1
        return public_key_to_bytes(
            ec.EllipticCurvePublicNumbers(point.x, prime - point.y, ec.SECP384R1()).public_key()
        )

    return _with_a_key_of_its_own(server, negative)


def _with_a_key_of_its_own(server: HostileServer, other: Callable[[bytes], bytes]) -> Any:
    """The sum of all votes but the first one's, if its masks are gone."""
    invented, first, rest = server.nodes[-1] + 1, server.nodes[0], server.nodes[1:]
    query, n = server.query(clients=len(server.nodes) + 1), len(server.nodes) + 1
    if not server.set_up_all(server.nodes, query, n, n):
        return None
    secret, public = generate_key_pairs()
    server.keys[invented] = [other(server.keys[first][0]), public_key_to_bytes(public)]
    everybody = [*server.nodes, invented]
    if not server.share_all(dict.fromkeys(server.nodes, everybody)):
        return None
    seed = create_shares(bytes(32), n, n)
    for node, share in zip(server.nodes, seed, strict=False):
        before = masks.view.set(server.view_of(node))
        key = masks.pair_key(secret, bytes_to_public_key(server.keys[node][1]))
        masks.view.reset(before)
        text = encrypt(key, share_keys_plaintext_concat(invented, node, share, share))
        server.inbox[node].append((invented, text))
    if server.collect_all(server.nodes) < len(server.nodes):
        return None
    # The invented one's shares of all seeds, which it was sent, make up the threshold.
    for node, text in server.inbox[invented]:
        before = masks.view.set(server.view_of(node))
        key = masks.pair_key(secret, bytes_to_public_key(server.keys[node][1]))
        masks.view.reset(before)
        share = share_keys_plaintext_separate(decrypt(key, text))[2]
        server.known.setdefault(node, []).append(share)
    total = server.summed(rest, active=everybody)
    if total is None:
        return None
    found = total - len(rest) * entry_bound(query.plan)
    found = (found + MODULUS // 2) % MODULUS - MODULUS // 2
    return found if np.abs(found).max() < MODULUS // 1000 else None  # else it is masked still


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
    "active and dead": active_and_dead,
    "another list for everyone": another_list_for_everyone,
    "a source many times": a_source_many_times,
    "a source left out": a_source_left_out,
    "a part of the shares": a_part_of_the_shares,
    "over and over": over_and_over,
    "candidates of its own": candidates_of_its_own,
    "another plan for the others": another_plan_for_the_others,
    "a key of another client": a_client_with_anothers_key,
}

# What a client says of each to itself, in its log.
_COSTS = r"the vote costs epsilon=[\d.]+ at delta=1e-05 \(replace_one\); .* allow 1\."
REASONS = {
    **dict.fromkeys(ATTEMPTS, _COSTS),
    "many clients that are not there": r"the set-up has \d+ clients, and the plan counts on .*",
    "many attempts": r"the plan has 50 attempts; max_attempts is 5\.",
    "a plain sum": r"the server asks for a plain sum; .* server='trusted'\.",
    "one name many times": r"active_nids names a client twice\.",
    "active and dead": r"a client that is called active and dead would lose both masks\.",
    "another list for everyone": r"a client's share cannot be read: it was shown another .*",
    "another plan for the others": r"a client's share cannot be read: it was shown another .*",
    "a key of another client": r"the message shows keys that no client makes\.",
    "a source many times": r"srcs names a client twice\.",
    "a source left out": r"a client that was introduced has sent no share\.",
    "a part of the shares": r"clients share secrets with a part of the others, which a server .*",
    "over and over": r"all votes together would cost epsilon=[\d.]+ at .*; total_epsilon is 1\.",
    "candidates of its own": r"candidates\[0\]\['x'\]=77\.0 is not allowed: .*",
}


def found_nothing(outcome: Any) -> bool:
    return outcome is None or (isinstance(outcome, int) and not outcome)
