"""A client's side of the secure sum: what it checks, what it keeps, and what it answers.

The protocol is that of Bonawitz et al., *Practical Secure Aggregation for Privacy-Preserving
Machine Learning*, CCS 2017, in which everybody shares secrets with everybody. It has four stages,
each one message to every client and its reply:

``set_up``  The query, the number n of clients and the threshold t come; two fresh public keys go
            back: one for masks and one for letters.
``share``   The keys of all n clients come; for each other client a letter goes back, with a share
            of the seed of this client's own mask and one of its private mask key. It takes t
            shares to recover either.
``vote``    The letters of all others come; the masked vote goes back. Its masks are one of the
            client's own seed, and one for each other client, which adds the negative.
``open``    The names of clients that have voted and of those that were lost come; a share goes
            back of the seed of each that has voted, and of the private key of each that was lost.

A server may say anything. Each message is checked here, and all keys are bound to what the client
was shown (:mod:`optuna_dp.federated.secure_keys`). What follows from it is proved in
``docs/explanation/voting.md``, "A server that lies". The keys, the seed and the shares lie in the
run's state on the node between messages, and are deleted once the sum is opened.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, cast

import numpy as np
from cryptography.exceptions import InvalidTag
from flwr.app import ConfigRecord, Context

from optuna_dp.core.arrays import IntArray
from optuna_dp.federated.policy import View
from optuna_dp.federated.query import VoteQuery, VoteRefusedError
from optuna_dp.federated.secure_keys import (
    KEY,
    LETTER,
    SHARE,
    create_shares,
    is_public_key,
    mask,
    pair_mask,
    private_key,
    public_key,
    read_letter,
    view_of,
    write_letter,
)

_STATE = "optuna_dp_secure_sum"


@dataclass(frozen=True)
class Session:
    """What a client keeps of the secure sum that it is in.

    Attributes:
        run: Flower's number of the run.
        name: What the client is called: Flower's number of its node.
        query: The text of the query.
        clients: How many clients are in the set-up.
        threshold: How many shares recover a secret.
        mask_key: The private key of its masks.
        letter_key: The private key of its letters.
        seed: The seed of its own mask.
        names: The names of all clients, in order; empty before the second stage.
        keys: Their public keys, two for each: for masks and for letters.
        shares: Of each of them a share of its seed and one of its mask key, one after the other.
            Its own alone before the third stage.
    """

    run: int
    name: int
    query: str
    clients: int
    threshold: int
    # Secrets stay out of the repr, which may come into a log.
    mask_key: bytes = field(repr=False)
    letter_key: bytes = field(repr=False)
    seed: bytes = field(repr=False)
    names: Sequence[int] = ()
    keys: Sequence[bytes] = ()
    shares: Sequence[bytes] = field(default=(), repr=False)

    @classmethod
    def set_up(cls, config: ConfigRecord, context: Context) -> Session:
        """Returns a sum as the server sets it up, with fresh keys.

        Raises:
            VoteRefusedError: If it is not what the query plans.
        """
        view = set_up_view(config)
        return cls(
            run=context.run_id,
            name=context.node_id,
            query=query_text(config),
            clients=view.clients,
            threshold=view.threshold,
            mask_key=private_key(),
            letter_key=private_key(),
            seed=os.urandom(KEY),
        )

    @classmethod
    def kept(cls, context: Context) -> Session:
        """Returns the sum that was set up last.

        Raises:
            VoteRefusedError: If there is none.
        """
        record = context.state.config_records.get(_STATE)
        if record is None:
            raise VoteRefusedError(
                "the message is of a secure sum that was never set up on this client, or is over"
            )
        return cls(**cast(dict[str, Any], dict(record)))

    def keep(self, context: Context) -> None:
        """Writes it into the state of the run, in place of the one before."""
        entries = {
            name: list(value) if isinstance(value, tuple) else value
            for name, value in asdict(self).items()
        }
        context.state.config_records[_STATE] = ConfigRecord(entries)

    @staticmethod
    def forget(context: Context) -> None:
        """Deletes the secrets of the sum from the state of the run."""
        context.state.config_records.pop(_STATE, None)

    @property
    def public_keys(self) -> list[bytes]:
        """Its own public keys."""
        return [public_key(self.mask_key), public_key(self.letter_key)]

    @property
    def label(self) -> str:
        """A name of this set-up: its keys are made for one sum."""
        return hashlib.sha256(b"".join(self.public_keys)).hexdigest()

    @property
    def view(self) -> bytes:
        """The digest of what the client was shown, the same for all that were shown the same."""
        return view_of(self.run, self.query, self.threshold, self._keys_by_name())

    def introduced(self, config: ConfigRecord) -> Session:
        """Returns the sum with the clients and keys that a message shows.

        Raises:
            VoteRefusedError: If they are not as many different clients as were set up, this one
                with its own keys among them.
        """
        names, keys = _names(config, "names"), config.get("keys")
        if len(names) != self.clients:
            raise VoteRefusedError(
                f"the message shows {len(names)} clients, and the set-up has {self.clients}"
            )
        if not isinstance(keys, list) or len(keys) != 2 * len(names):
            raise VoteRefusedError("the message must show two keys of each client")
        if not all(map(is_public_key, keys)):
            raise VoteRefusedError("the message shows keys that no client makes")
        pairs = {name: keys[2 * i : 2 * i + 2] for i, name in enumerate(names)}
        if pairs.get(self.name) != self.public_keys:
            raise VoteRefusedError("the message does not show this client its own keys")
        ordered_names = sorted(names)
        ordered_keys = [key for name in ordered_names for key in pairs[name]]
        return replace(self, names=ordered_names, keys=cast(list[bytes], ordered_keys))

    def with_own_shares(self) -> tuple[Session, list[bytes]]:
        """Returns the sum with its own share of its secrets, and the letters to the others.

        The letters are in the order of names.
        """
        seeds, keys = (
            create_shares(secret, self.threshold, self.clients)
            for secret in (self.seed, self.mask_key)
        )
        texts = {name: seeds[i] + keys[i] for i, name in enumerate(self.names)}
        view, keys_by_name = self.view, self._keys_by_name()
        letters = [
            write_letter(
                self.letter_key, keys_by_name[name][1], view, self.name, name, texts[name]
            )
            for name in self._others()
        ]
        return replace(self, shares=[texts[self.name]]), letters

    def with_shares_of(self, config: ConfigRecord) -> Session:
        """Returns the sum with the shares that the others' letters hold.

        Whose letter can be read was shown the very same, this vote's query among it.

        Raises:
            VoteRefusedError: If a letter is missing, or one cannot be read.
        """
        letters = config.get("letters")
        if len(self.shares) != 1:
            raise VoteRefusedError("the message must come once, after this client's own letters")
        if not isinstance(letters, list) or len(letters) != self.clients - 1:
            raise VoteRefusedError("the message must hold one letter of each other client")
        shares = {self.name: self.shares[0]}
        view, keys_by_name = self.view, self._keys_by_name()
        for sender, letter in zip(self._others(), letters, strict=True):
            if not isinstance(letter, bytes) or len(letter) != LETTER:
                raise VoteRefusedError(f"the letter of client {sender} is none")
            try:
                shares[sender] = read_letter(
                    self.letter_key, keys_by_name[sender][1], view, sender, self.name, letter
                )
            except InvalidTag:
                raise VoteRefusedError(
                    f"the letter of client {sender} cannot be read: that client was shown another "
                    "query or other clients, or the letter is damaged"
                ) from None
        return replace(self, shares=[shares[name] for name in self.names])

    def masked(self, vote: IntArray) -> bytes:
        """Returns the vote under its masks, and a one under a mask of its own beside it.

        Args:
            vote: Whole numbers, shape (candidates,).

        Returns:
            ``candidates + 1`` numbers modulo 2^32, four bytes each, little endian. The sum of the
            last ones says how many votes were opened.
        """
        words = np.append(vote, 1).astype(np.uint32)  # modulo 2^32
        words += mask(self.seed, len(words))
        view, keys_by_name = self.view, self._keys_by_name()
        for name in self._others():
            words += pair_mask(
                self.mask_key, keys_by_name[name][0], view, self.name, name, len(words)
            )
        return words.astype("<u4").tobytes()

    def opened(self, config: ConfigRecord) -> list[bytes]:
        """Returns a share of the seed of each client that has voted, and of each lost one's key.

        Raises:
            VoteRefusedError: If a client is called both, or too few are said to have voted.
        """
        if len(self.shares) != self.clients:
            raise VoteRefusedError("this client has not voted in the secure sum")
        voted, lost = _names(config, "voted"), _names(config, "lost")
        if set(voted) & set(lost):
            raise VoteRefusedError("a client that is called voted and lost would lose both masks")
        if not {*voted, *lost} <= set(self.names):
            raise VoteRefusedError("the message names a client that was never introduced")
        if len(voted) < self.threshold:
            raise VoteRefusedError(f"{len(voted)} clients voted, and {self.threshold} are needed")
        shares = dict(zip(self.names, self.shares, strict=True))
        return [
            *(shares[name][:SHARE] for name in voted),
            *(shares[name][SHARE:] for name in lost),
        ]

    def _others(self) -> list[int]:
        return [name for name in self.names if name != self.name]

    def _keys_by_name(self) -> dict[int, Sequence[bytes]]:
        return {name: self.keys[2 * i : 2 * i + 2] for i, name in enumerate(self.names)}


def query_text(config: ConfigRecord) -> str:
    """Returns the text of the query that a message carries."""
    text = config.get("query")
    if not isinstance(text, str):
        raise VoteRefusedError("the message carries no vote query")
    return text


def set_up_view(config: ConfigRecord) -> View:
    """Returns what a set-up says that this client will see.

    Raises:
        VoteRefusedError: If it is for more clients than planned, or has a lower threshold.
    """
    plan = VoteQuery.from_json(query_text(config)).plan
    clients, threshold = config.get("clients"), config.get("threshold")
    if type(clients) is not int or type(threshold) is not int:
        raise VoteRefusedError("the set-up must give clients and threshold as whole numbers")
    if not 2 <= threshold <= clients <= plan.clients:
        raise VoteRefusedError(
            f"the set-up has {clients} clients ({plan.clients} were planned) and threshold "
            f"{threshold}; it must be at least 2, and at most the number of clients"
        )
    lowest = max(clients // 2 + 1, clients - plan.max_dropout)
    if threshold < lowest:
        raise VoteRefusedError(
            f"the set-up has threshold {threshold}, and the plan needs at least {lowest}"
        )
    return View(True, clients, threshold)


def _names(config: ConfigRecord, entry: str) -> list[int]:
    names = config.get(entry)
    if not isinstance(names, list) or any(type(name) is not int for name in names):
        raise VoteRefusedError(f"{entry} is no list of clients")
    if len(set(names)) < len(names):
        raise VoteRefusedError(f"{entry} names a client twice")
    return cast(list[int], names)
