"""The server's checks of each reply of the secure sum, before Flower's code sees it.

A reply that is not as it should be counts as a client that dropped out. What cannot be seen in any
reply (a wrong share, a wrong mask) shows when the sum is opened: :func:`impossible`.
"""

from __future__ import annotations

from typing import Any, cast

import numpy as np
from flwr.app import ConfigRecord, Message, MetricRecord

from optuna_dp.arrays import IntArray
from optuna_dp.federated.masks import PRIVATE_KEY, SEED
from optuna_dp.federated.shamir import INDEX, share_length
from optuna_dp.federated.transport import (
    MODULUS,
    SECAGG_CONFIG,
    noise_bound,
    short,
    vector_of,
)
from optuna_dp.voting.plan import VotePlan

_FIT_RESULT = {
    SECAGG_CONFIG,
    "fitres.num_examples",
    "fitres.parameters",
    "fitres.metrics",
    "fitres.status",
}
_SEED_SHARE, _KEY_SHARE = share_length(SEED), share_length(PRIVATE_KEY)


class ReplyChecks:
    """The replies of one set-up of the secure sum; ``module`` is Flower's server side."""

    def __init__(self, plan: VotePlan, module: Any) -> None:
        self._plan, self._module = plan, module
        self._keys: set[bytes] = set()
        self._indices: dict[int, set[bytes]] = {}

    def well_formed(self, stage: str, request: Message, reply: Message) -> bool:
        """Returns whether a reply is what an honest client may send."""
        try:
            config = reply.content.config_records.get(SECAGG_CONFIG)
            if config is None:
                return False
            if stage == "collect_masked_vectors":
                return self._vector(reply, config)
            if set(reply.content) != {SECAGG_CONFIG}:
                return False
            question = request.content.config_records[SECAGG_CONFIG]
            if stage == "setup":
                return self._public_keys(config)
            if stage == "share_keys":
                return _ciphertexts(
                    config, set(question) - {"stage"}, request.metadata.dst_node_id
                )
            return self._shares(config, question)
        except Exception:  # whatever a stranger's bytes make a library raise
            return False

    def _public_keys(self, config: ConfigRecord) -> bool:
        keys = [config.get(name) for name in ("pk1", "pk2")]
        if set(config) != {"pk1", "pk2"} or not all(short(key) for key in keys):
            return False
        public_keys = cast(list[bytes], keys)
        for key in public_keys:
            self._module.bytes_to_public_key(key)  # raises
        if len({*public_keys}) < 2 or self._keys & set(public_keys):
            return False
        self._keys |= set(public_keys)
        return True

    def _shares(self, config: ConfigRecord, question: ConfigRecord) -> bool:
        """One share of each secret that was asked for, none of which another client has sent."""
        if set(config) != {"nids", "shares"}:
            return False
        nids, shares = config.get("nids"), config.get("shares")
        active, dropped = (
            cast(list[int], question[name]) for name in ("active_nids", "dead_nids")
        )
        if not (_whole(nids) and isinstance(shares, list) and nids == [*active, *dropped]):
            return False
        if len(shares) != len(cast(list[int], nids)) or not all(short(s) for s in shares):
            return False
        secret_shares = cast(list[bytes], shares)
        lengths = [_SEED_SHARE] * len(active) + [_KEY_SHARE] * len(dropped)
        if [len(share) for share in secret_shares] != lengths:
            return False
        pairs = list(zip(cast(list[int], nids), secret_shares, strict=True))
        if any(s[:INDEX] in self._indices.get(n, set()) for n, s in pairs):
            return False
        for n, s in pairs:
            self._indices.setdefault(n, set()).add(s[:INDEX])
        return True

    def _vector(self, reply: Message, config: ConfigRecord) -> bool:
        content = reply.content
        if set(content) != _FIT_RESULT or set(config) != {"masked_params"}:
            return False
        if dict(cast(MetricRecord, content["fitres.num_examples"])) != {"num_examples": 1}:
            return False  # a weight other than one, which would be a size of data
        if len(content["fitres.metrics"]) or len(content["fitres.parameters"]):
            return False  # something besides the vote
        if dict(cast(ConfigRecord, content["fitres.status"])) != {"code": 0, "message": ""}:
            return False
        self._module.compat.recorddict_to_fitres(content, True)  # raises
        parts = config["masked_params"]
        if not isinstance(parts, list) or len(parts) != 2:
            return False
        return all(
            _masked(part, shape)
            for part, shape in zip(parts, ((1,), (self._plan.candidates,)), strict=True)
        )


def impossible(plan: VotePlan, sums: IntArray, votes: int) -> str:
    """Returns why no honest votes, so many, have this sum, shape (candidates,); else "".

    It happens to honest votes with a probability below 1e-300.
    """
    bound = noise_bound(float(plan.share_variance) * votes)
    if bool(np.any(sums < -bound)) or bool(np.any(sums > votes + bound)):
        return "an entry lies beyond what votes and their noise can be"
    total, total_bound = (
        int(sums.sum()),
        noise_bound(float(plan.share_variance) * votes * len(sums)),
    )
    if abs(total - votes * plan.votes) > total_bound:
        return "there are more votes in it, or fewer, than votes and their noise can be"
    return ""


def _masked(part: Any, shape: tuple[int, ...]) -> bool:
    array = vector_of(part, shape)
    return array is not None and bool(np.all((array >= 0) & (array < MODULUS)))


def _ciphertexts(config: ConfigRecord, introduced: set[str], own_id: int) -> bool:
    """One text for each of the others that were shown."""
    targets, texts = config.get("dsts"), config.get("ctxts")
    return (
        set(config) == {"dsts", "ctxts"}
        and _whole(targets)
        and isinstance(texts, list)
        and len(texts) == len(cast(list[int], targets))
        and sorted(cast(list[int], targets))
        == sorted(int(n) for n in introduced if int(n) != own_id)
        and all(short(text) for text in texts)
    )


def _whole(numbers: Any) -> bool:
    return isinstance(numbers, list) and all(type(n) is int for n in numbers)
