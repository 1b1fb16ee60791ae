"""What a client checks of each message of the secure sum before Flower's code sees it.

Flower's client side counts list entries; a server that repeats a name, or tells of clients that
were never introduced, is believed. Here every list is one of distinct, known clients, and what the
client has seen of the vote comes out (:class:`.View`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Sequence
from typing import cast

from flwr.app import ConfigRecord, Context, Message

from optuna_dp.federated.policy import View, VoteRefusedError
from optuna_dp.federated.query import VoteQuery
from optuna_dp.federated.transport import MODULUS, SECAGG_CONFIG, entry_bound

_STATE = "secaggplus_state"
# Shares are made by polynomials of this degree, on the client.
_MOST_SHARES = 10_000


def stage_of(message: Message) -> str:
    """Returns the stage that a message asks for; refuses what is no message of the protocol."""
    stage = _config(message).get("stage")
    if not isinstance(stage, str):
        raise VoteRefusedError("a message of the secure sum without a stage")
    return stage


def check(message: Message, context: Context) -> None:
    """Refuses lists with repeated or unknown clients, and counts that no sum has.

    Raises:
        VoteRefusedError: With the reason.
    """
    config, stage = _config(message), stage_of(message)
    if stage == "setup":
        _check_setup(config)
        return
    state = _state(context)
    if stage == "share_keys":
        _check_keys(config, state)
    elif stage == "collect_masked_vectors":
        sources = _ids(config, "srcs")
        _check_known(sources, set(_keys(state)) - {state["nid"]}, "srcs")
        if len(sources) + 1 < len(_keys(state)):
            # Nothing would mask its vote from whoever is left out, and each may be told of others.
            raise VoteRefusedError("a client that was introduced has sent no share")
    elif stage == "unmask":
        active, dead = _ids(config, "active_nids"), _ids(config, "dead_nids")
        if set(active) & set(dead):
            raise VoteRefusedError("a client that is called active and dead would lose both masks")
        _check_known([*active, *dead], cast(list[int], state["rd_seed_share_dict:K"]), "nids")
        _check_enough(len(active), state)


def check_shares(
    message: Message, context: Context, decrypt: Callable[[bytes, bytes], bytes]
) -> None:
    """Refuses a vote for which the others' shares cannot be read.

    Raises:
        VoteRefusedError: If one cannot be read.
    """
    if stage_of(message) != "collect_masked_vectors":
        return
    config, state = _config(message), _state(context)
    names = cast(list[int], state["ss2_dict:K"])
    keys = dict(zip(names, cast(list[bytes], state["ss2_dict:V"]), strict=True))
    texts, sources = config.get("ctxts"), cast(list[int], config["srcs"])
    if not isinstance(texts, list) or len(texts) != len(sources):
        raise VoteRefusedError("there must be one share of each client")
    for source, text in zip(sources, texts, strict=True):
        decrypt(keys[source], cast(bytes, text))


def view_of(message: Message, context: Context) -> bytes:
    """Returns a digest of what this client was shown, equal for all that were shown the same.

    Where clients share with a part of the others only, each sees other neighbours; then it says
    no more than that.
    """
    stage = stage_of(message)
    if stage not in ("share_keys", "collect_masked_vectors"):
        return b""
    state = _state(context)
    keys = _shown_keys(_config(message)) if stage == "share_keys" else _keys(state)
    if not _complete(state, len(keys)):
        return b"partial"
    content = [state[name] for name in ("sample_num", "share_num", "threshold")]
    content += [part for nid in sorted(keys) for part in (nid, *keys[nid])]
    return hashlib.sha256(repr(content).encode()).digest()


def seen(context: Context) -> View:
    """Returns what was seen of a secure sum, once shares have been exchanged."""
    state = _state(context)
    clients = len(_keys(state))
    return View(True, clients, cast(int, state["threshold"]), _complete(state, clients))


def session(context: Context) -> str:
    """Returns a name of this set-up of the secure sum: its keys are made for one vote."""
    state = _state(context)
    return hashlib.sha256(b"".join(cast(bytes, state[k]) for k in ("pk1", "pk2"))).hexdigest()


def check_set_up(query: VoteQuery, context: Context) -> None:
    """The secure sum is set up as planned: no clipping of the noise, no lower threshold.

    Flower's defaults (clip to 8) would cut the noise off.

    Raises:
        VoteRefusedError: If it is not.
    """
    state = _state(context)
    plan, clip = query.plan, entry_bound(query.plan)
    shares = cast(int, state["share_num"])
    least = max(shares // 2 + 1, shares - plan.max_dropout)
    expected = {
        "clipping_range": float(clip),
        "target_range": 2 * clip,
        "mod_range": MODULUS,
        "max_weight": 1.0,
    }
    for name, value in expected.items():
        if state[name] != value:
            raise VoteRefusedError(f"{name} is {state[name]}, and a vote as planned takes {value}")
    if cast(int, state["threshold"]) < least:
        raise VoteRefusedError(
            f"a threshold of {state['threshold']}, and a vote as planned takes {least}"
        )
    if cast(int, state["sample_num"]) > plan.clients:
        raise VoteRefusedError("more clients than planned")


def _config(message: Message) -> ConfigRecord:
    config = message.content.config_records.get(SECAGG_CONFIG)
    if config is None:
        raise VoteRefusedError("a message that is not one of the secure sum")
    return config


def _state(context: Context) -> ConfigRecord:
    state = context.state.config_records.get(_STATE)
    if state is None:
        raise VoteRefusedError("a stage of a secure sum that was never set up")
    return state


def _check_setup(config: ConfigRecord) -> None:
    numbers = [config.get(name) for name in ("sample_num", "share_num", "threshold")]
    if any(type(n) is not int for n in numbers):
        raise VoteRefusedError("a set-up without whole numbers of clients")
    clients, shares, threshold = cast(list[int], numbers)
    if not (2 <= threshold <= shares <= min(clients, _MOST_SHARES) and 2 * threshold > shares):
        raise VoteRefusedError(
            f"a set-up of {clients} clients with {shares} shares, {threshold} of which open a mask"
        )


def _check_keys(config: ConfigRecord, state: ConfigRecord) -> None:
    keys = _shown_keys(config)
    if len(keys) > cast(int, state["share_num"]):
        raise VoteRefusedError("more clients than shares")
    parts = [part for pair in keys.values() for part in pair]
    if len(set(parts)) < len(parts):
        raise VoteRefusedError("two clients with one key")
    _check_enough(len(keys), state)


def _shown_keys(config: ConfigRecord) -> dict[int, tuple[bytes, bytes]]:
    found: dict[int, tuple[bytes, bytes]] = {}
    for name, value in config.items():
        if name == "stage":
            continue
        pair = value if isinstance(value, list) else []
        if not name.isdecimal() or len(pair) != 2 or not all(isinstance(p, bytes) for p in pair):
            raise VoteRefusedError("keys that are none")
        if int(name) in found:  # "7" and "07" are one client
            raise VoteRefusedError("a client that is named twice")
        found[int(name)] = cast(tuple[bytes, bytes], tuple(pair))
    return found


def _keys(state: ConfigRecord) -> dict[int, tuple[bytes, bytes]]:
    """The public keys that were shown, this client's own among them."""
    names = cast(list[int], state.get("public_keys_dict:K", []))
    parts = cast(list[bytes], state.get("public_keys_dict:V", []))
    return {n: (parts[2 * i], parts[2 * i + 1]) for i, n in enumerate(names)}


def _complete(state: ConfigRecord, shown: int) -> bool:
    return state["share_num"] == state["sample_num"] == shown


def _ids(config: ConfigRecord, name: str) -> list[int]:
    ids = config.get(name)
    if not isinstance(ids, list) or any(type(n) is not int for n in ids):
        raise VoteRefusedError(f"{name} is no list of clients")
    if len(set(ids)) < len(ids):
        raise VoteRefusedError(f"{name} names a client twice")
    return cast(list[int], ids)


def _check_known(ids: Sequence[int], known: Collection[int], name: str) -> None:
    if not set(ids) <= set(known):
        raise VoteRefusedError(f"{name} names a client that was never introduced")


def _check_enough(count: int, state: ConfigRecord) -> None:
    if count < cast(int, state["threshold"]):
        raise VoteRefusedError(f"{count} different clients, and {state['threshold']} are needed")
