"""The cryptography of the secure sum: keys of pairs, masks, letters, and shares of secrets.

Everything is of the ``cryptography`` package (X25519, HKDF-SHA256, ChaCha20, ChaCha20-Poly1305),
but for Shamir's shares, which it does not have. Both sides use this file:
:mod:`optuna_dp.federated.secure_client` describes the protocol.

Clients talk to each other through the server only, which may show each of them another query,
other clients and other keys. Every key of a pair is therefore derived from a digest of all that
the two were shown (:func:`view_of`). Clients that were shown different things have different keys:
they cannot read each other's letters, and their masks do not cancel.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
import secrets
from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

# Sums are taken modulo 2^32: these numbers wrap by themselves.
Words = npt.NDArray[np.uint32]

# Bytes of a key of X25519, private or public, and of a seed.
KEY = 32
_NONCE, _TAG = 12, 16

# The field of the shares is that of the whole numbers modulo this prime. Secrets have 256 bits.
_PRIME = (1 << 521) - 1
# Bytes of a share, and of a letter that holds a share of a seed and one of a private key.
SHARE = 66
LETTER = _NONCE + 2 * SHARE + _TAG


def private_key() -> bytes:
    """Returns a fresh private key of X25519, 32 bytes."""
    return X25519PrivateKey.generate().private_bytes_raw()


def public_key(private: bytes) -> bytes:
    """Returns the public key of a private one, 32 bytes."""
    return X25519PrivateKey.from_private_bytes(private).public_key().public_bytes_raw()


def is_public_key(data: object) -> bool:
    """Returns whether these are 32 bytes, and give a secret that is not known beforehand."""
    if not isinstance(data, bytes) or len(data) != KEY:
        return False
    try:
        X25519PrivateKey.generate().exchange(X25519PublicKey.from_public_bytes(data))
    except ValueError:  # a point of small order: the secret would be zero
        return False
    return True


def view_of(
    run: int, query: str, threshold: int, public_keys: Mapping[int, Sequence[bytes]]
) -> bytes:
    """Returns a digest of all that a client is shown before it votes, 32 bytes.

    Args:
        run: Flower's number of the run.
        query: The query, as it was sent.
        threshold: How many shares recover a secret.
        public_keys: The two public keys of each client that was shown, by its name.
    """
    keys = [[name, *(key.hex() for key in public_keys[name])] for name in sorted(public_keys)]
    query_digest = hashlib.sha256(query.encode()).hexdigest()
    content = json.dumps(["optuna-dp view", run, query_digest, threshold, keys])
    return hashlib.sha256(content.encode()).digest()


def pair_mask(
    private: bytes, public: bytes, view: bytes, own_name: int, other_name: int, size: int
) -> Words:
    """Returns what a client adds to its vote for one other, which adds the negative.

    Args:
        private: The private mask key of either of the two.
        public: The public mask key of the other one.
        view: The digest of what both were shown.
        own_name: The client that adds it.
        other_name: The other client.
        size: How many numbers.
    """
    ends = sorted((own_name, other_name))
    words = mask(_pair_key(private, public, view, "mask", *ends), size)
    return words if own_name == ends[0] else np.negative(words)


def mask(key: bytes, size: int) -> Words:
    """Returns so many uniform numbers below 2^32, the ChaCha20 stream of a key.

    Every key of the protocol is used for one mask only, so the nonce is fixed.
    """
    stream = Cipher(algorithms.ChaCha20(key, bytes(16)), mode=None).encryptor()
    return np.frombuffer(stream.update(bytes(4 * size)), dtype="<u4").astype(np.uint32)


def write_letter(
    private: bytes, public: bytes, view: bytes, sender: int, recipient: int, text: bytes
) -> bytes:
    """Returns a text that only the recipient can read, and only if it was shown the very same."""
    key = _pair_key(private, public, view, "letter", sender, recipient)
    nonce = os.urandom(_NONCE)
    return nonce + ChaCha20Poly1305(key).encrypt(nonce, text, None)


def read_letter(
    private: bytes, public: bytes, view: bytes, sender: int, recipient: int, letter: bytes
) -> bytes:
    """Returns the text of a letter.

    Raises:
        cryptography.exceptions.InvalidTag: If it is damaged, of another sender, for another
            recipient, or if the sender was shown something else.
    """
    key = _pair_key(private, public, view, "letter", sender, recipient)
    return ChaCha20Poly1305(key).decrypt(letter[:_NONCE], letter[_NONCE:], None)


def _pair_key(
    private: bytes, public: bytes, view: bytes, purpose: str, first: int, second: int
) -> bytes:
    """The key of two clients for one purpose, 32 bytes.

    The names matter besides the keys: two public keys may have one shared secret, and with the
    same mask a made-up client could cancel that of an honest one.
    """
    info = json.dumps(["optuna-dp secure sum", purpose, view.hex(), first, second]).encode()
    own_key = X25519PrivateKey.from_private_bytes(private)
    secret = own_key.exchange(X25519PublicKey.from_public_bytes(public))
    return HKDF(algorithm=hashes.SHA256(), length=KEY, salt=None, info=info).derive(secret)


def create_shares(secret: bytes, threshold: int, count: int) -> list[bytes]:
    """Returns shares of a secret, of which so many give it back and fewer say nothing.

    Shamir's scheme: values of a polynomial of random coefficients at 1, 2, ..., ``count``.

    Args:
        secret: 32 bytes.
        threshold: How many shares it takes, at least 1.
        count: How many shares there are, at least ``threshold``.
    """
    constant = int.from_bytes(secret, "big")
    coefficients = [secrets.randbelow(_PRIME) for _ in range(threshold - 1)]
    shares = []
    for point in range(1, count + 1):
        value = 0
        for coefficient in [*coefficients, constant]:  # Horner's method
            value = (value * point + coefficient) % _PRIME
        shares.append(value.to_bytes(SHARE, "big"))
    return shares


def combine_shares(shares: Mapping[int, bytes]) -> bytes:
    """Returns the secret of these shares, 32 bytes.

    Args:
        shares: As many as it takes, by the point that each belongs to: 1 for the first share.

    Raises:
        ValueError: If they are not of one secret of 32 bytes; wrong ones may also give another
            secret.
    """
    weights = _weights_at_zero(tuple(sorted(shares)))
    total = sum(weight * int.from_bytes(shares[point], "big") for point, weight in weights.items())
    secret = total % _PRIME
    if secret >> (8 * KEY):
        raise ValueError("the shares are not of one secret")
    return secret.to_bytes(KEY, "big")


@functools.lru_cache(maxsize=64)  # A server opens all secrets of a sum with one set of points.
def _weights_at_zero(points: tuple[int, ...]) -> dict[int, int]:
    """Lagrange's weights, which give a polynomial's value at 0 from those at the points.

    The weight of point j is the product over all others m of m / (m - j).
    """
    weights = {}
    for j in points:
        above, below = 1, 1
        for m in points:
            if m != j:
                above, below = above * m % _PRIME, below * (m - j) % _PRIME
        weights[j] = above * pow(below, -1, _PRIME) % _PRIME
    return weights
