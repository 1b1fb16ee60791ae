"""A client's checks of each message of the secure sum, before Flower's code sees it.

Flower's client side counts list entries; a server that repeats a name, or tells of clients that
were never introduced, is believed. Here every list is one of distinct, known clients, every key is
one, and what the client has seen of the vote comes out (:class:`.View`). The query comes with the
set-up: it is judged before any key is made, and all keys of the set-up are bound to it
(:mod:`optuna_dp.federated.masks`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping, Sequence
from typing import cast

from cryptography.fernet import InvalidToken
from cryptography.hazmat.primitives.asymmetric import ec
from flwr.app import ConfigRecord, Context, Message
from flwr.supercore.primitives.asymmetric import bytes_to_public_key, public_key_to_bytes

from optuna_dp.federated import masks
from optuna_dp.federated.policy import View
from optuna_dp.federated.query import QUERY_RECORD, VoteQuery, VoteRefusedError
from optuna_dp.federated.transport import MODULUS, SECAGG_CONFIG, entry_bound, short

# Flower's record of a secure sum, and ours of the query that it is for.
_STATE = "secaggplus_state"
_ASKED = "optuna_dp_asked"
_LARGEST_NAME = (1 << 64) - 1


def query_text(message: Message) -> str:
    """Returns the text of a message's query."""
    record = message.content.config_records.get(QUERY_RECORD)
    text = None if record is None else record.get("query")
    if not isinstance(text, str):
        raise VoteRefusedError("the message carries no vote query")
    return text


def stage_of(message: Message) -> str:
    """Returns the stage that a message asks for; refuses what is no message of the protocol."""
    stage = _config(message).get("stage")
    if not isinstance(stage, str):
        raise VoteRefusedError("the message of the secure sum names no stage")
    return stage


def check(message: Message, context: Context) -> None:
    """Refuses lists with repeated or unknown clients, keys that are none, and other set-ups.

    Raises:
        VoteRefusedError: With the reason.
    """
    config, stage = _config(message), stage_of(message)
    if stage == "setup":
        _check_setup(config, VoteQuery.from_json(query_text(message)))
        return
    state = _state(context)
    if stage == "share_keys":
        _check_keys(shown_keys(config), state)
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


def check_shares(message: Message, context: Context) -> None:
    """Refuses a vote for which a share of one of the others is missing or cannot be read.

    Whose share can be read was shown the very same (:func:`.masks.digest_of`), this vote's query
    among it.

    Raises:
        VoteRefusedError: If one cannot be read, or is another's.
    """
    config, state, module = _config(message), _state(context), masks.client_module()
    names = cast(list[int], state["ss2_dict:K"])
    keys = dict(zip(names, cast(list[bytes], state["ss2_dict:V"]), strict=True))
    texts, sources = config.get("ctxts"), cast(list[int], config["srcs"])
    if not isinstance(texts, list) or len(texts) != len(sources) or not all(map(short, texts)):
        raise VoteRefusedError("the message must hold one share of each client that it names")
    for source, text in zip(sources, cast(list[bytes], texts), strict=True):
        try:
            share = module.decrypt(keys[source], text)
        except InvalidToken:
            raise VoteRefusedError(
                "a client's share cannot be read: it was shown another query or other clients, "
                "or the share is damaged"
            ) from None
        if module.share_keys_plaintext_separate(share)[:2] != (source, state["nid"]):
            raise VoteRefusedError(
                f"the share of client {source} was made by another client, or for another"
            )


def remember(message: Message, context: Context) -> None:
    """Keeps the query of a set-up, once its keys are made."""
    keys = _own_keys(_state(context))
    query_record = ConfigRecord({"query": query_text(message), "keys": keys})
    context.state.config_records[_ASKED] = query_record


def query_of(context: Context) -> str:
    """Returns the text of the query that the current set-up was made for."""
    record = context.state.config_records.get(_ASKED)
    if record is None or record["keys"] != _own_keys(_state(context)):
        raise VoteRefusedError(
            "the message is of a secure sum that was never set up on this client"
        )
    return cast(str, record["query"])


def view_of(message: Message, context: Context) -> bytes:
    """Returns the digest of what this client was shown; b"" where no keys are asked for."""
    stage = stage_of(message)
    if stage not in ("share_keys", "collect_masked_vectors"):
        return b""
    state = _state(context)
    keys = shown_keys(_config(message)) if stage == "share_keys" else _keys(state)
    return masks.digest_of(context.run_id, query_of(context), state, keys)


def promised(message: Message) -> View:
    """Returns what a set-up says that this client will see."""
    config = _config(message)
    return _view(config, cast(int, config["share_num"]))


def seen(context: Context) -> View:
    """Returns what was seen of a secure sum, once shares have been exchanged."""
    state = _state(context)
    return _view(state, len(_keys(state)))


def _view(numbers: ConfigRecord, clients: int) -> View:
    set_up, threshold = (cast(int, numbers[name]) for name in ("sample_num", "threshold"))
    return View(True, clients, set_up, threshold, masks.complete(numbers, clients))


def set_up_name(context: Context) -> str:
    """Returns a name of this client's set-up: its keys are made for one sum."""
    return hashlib.sha256(b"".join(_own_keys(_state(context)))).hexdigest()


def sum_name(context: Context) -> str:
    """Returns a name of the sum, the same whatever clients this one may be called in it."""
    state = _state(context)
    keys = _keys(state)
    view_digest = masks.digest_of(context.run_id, query_of(context), state, keys)
    own_keys = b"" if masks.complete(state, len(keys)) else b"".join(_own_keys(state))
    return hashlib.sha256(view_digest + own_keys).hexdigest()


def _check_setup(config: ConfigRecord, query: VoteQuery) -> None:
    """The secure sum is as planned: no clipping of the noise, no lower threshold.

    Flower's defaults (clip to 8) would cut the noise off.
    """
    plan, clip = query.plan, entry_bound(query.plan)
    counts = [config.get(name) for name in ("sample_num", "share_num", "threshold")]
    if any(type(n) is not int for n in counts):
        raise VoteRefusedError(
            "the set-up must give sample_num, share_num and threshold as whole numbers"
        )
    clients, shares, threshold = cast(list[int], counts)
    if not 2 <= threshold <= shares <= clients <= plan.clients:
        raise VoteRefusedError(
            f"the set-up has {clients} clients ({plan.clients} were planned), {shares} shares and "
            f"threshold {threshold}; each must be at most the one before, and at least 2"
        )
    lowest = max(shares // 2 + 1, shares - plan.max_dropout)
    if threshold < lowest:
        raise VoteRefusedError(
            f"the set-up has threshold {threshold}, and the plan needs at least {lowest}"
        )
    plan_values = {
        "clipping_range": float(clip),
        "target_range": 2 * clip,
        "mod_range": MODULUS,
        "max_weight": 1.0,
    }
    for name, value in plan_values.items():
        value_of_server = config.get(name)
        if type(value_of_server) is not type(value) or value_of_server != value:
            raise VoteRefusedError(
                f"the set-up has {name} {value_of_server!r}, and the plan needs {value}"
            )


def _config(message: Message) -> ConfigRecord:
    config = message.content.config_records.get(SECAGG_CONFIG)
    if config is None:
        raise VoteRefusedError("the message holds no record of the secure sum")
    return config


def _state(context: Context) -> ConfigRecord:
    state = context.state.config_records.get(_STATE)
    if state is None:
        raise VoteRefusedError(
            "the message is of a secure sum that was never set up on this client"
        )
    return state


def _check_keys(keys: Mapping[int, Sequence[bytes]], state: ConfigRecord) -> None:
    if len(keys) > cast(int, state["share_num"]):
        raise VoteRefusedError("the message shows more clients than the set-up has shares")
    if list(keys.get(cast(int, state["nid"]), ())) != _own_keys(state):
        raise VoteRefusedError("the message does not show this client its own keys")
    parts = [part for pair in keys.values() for part in pair]
    if len(set(parts)) < len(parts):
        raise VoteRefusedError("the message shows two clients with the same key")
    if not all(map(is_key, parts)):
        raise VoteRefusedError("the message shows keys that no client makes")
    _check_enough(len(keys), state)


def is_key(text: bytes) -> bool:
    """Returns whether it is a public key, written in the one way that clients write theirs."""
    try:
        key = bytes_to_public_key(text)
        return isinstance(key.curve, ec.SECP384R1) and public_key_to_bytes(key) == text
    except Exception:  # whatever a stranger's bytes make a library raise
        return False


def shown_keys(config: ConfigRecord) -> dict[int, tuple[bytes, bytes]]:
    """Returns the public keys that a message shows, by client.

    Raises:
        VoteRefusedError: If it holds anything else.
    """
    public_keys: dict[int, tuple[bytes, bytes]] = {}
    for name, value in config.items():
        if name == "stage":
            continue
        pair = value if isinstance(value, list) else []
        number = int(name) if name.isdecimal() and len(name) <= 20 else -1
        if not 0 <= number <= _LARGEST_NAME or len(pair) != 2 or not all(map(short, pair)):
            raise VoteRefusedError("the message shows keys that no client makes")
        if number in public_keys:  # "7" and "07" are one client
            raise VoteRefusedError(f"the message names client {number} twice")
        public_keys[number] = cast(tuple[bytes, bytes], tuple(pair))
    return public_keys


def sort_keys(message: Message) -> None:
    """Brings the clients that a message shows into the order of their names.

    Flower's code numbers the shares of a secret in this order. Where everybody shares with
    everybody, a client then has shares of the same index of all secrets, and the server computes
    one set of coefficients for all of them.
    """
    config = _config(message)
    for name in sorted((name for name in config if name != "stage"), key=int):
        config[name] = config.pop(name)


def _keys(state: ConfigRecord) -> dict[int, tuple[bytes, bytes]]:
    """The public keys that were shown, this client's own among them."""
    names = cast(list[int], state.get("public_keys_dict:K", []))
    parts = cast(list[bytes], state.get("public_keys_dict:V", []))
    return {n: (parts[2 * i], parts[2 * i + 1]) for i, n in enumerate(names)}


def _own_keys(state: ConfigRecord) -> list[bytes]:
    return [cast(bytes, state["pk1"]), cast(bytes, state["pk2"])]


def _ids(config: ConfigRecord, name: str) -> list[int]:
    ids = config.get(name)
    if not isinstance(ids, list) or any(type(n) is not int for n in ids):
        raise VoteRefusedError(f"{name} is no list of clients")
    if len(set(ids)) < len(ids):
        raise VoteRefusedError(f"{name} names a client twice")
    return cast(list[int], ids)


def _check_known(ids: Sequence[int], introduced: Collection[int], name: str) -> None:
    if not set(ids) <= set(introduced):
        raise VoteRefusedError(f"{name} names a client that was never introduced")


def _check_enough(count: int, state: ConfigRecord) -> None:
    threshold = cast(int, state["threshold"])
    if count < threshold:
        raise VoteRefusedError(f"{count} different clients, and {threshold} are needed")
