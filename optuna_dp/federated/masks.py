"""Flower's SecAgg+ with keys that are bound to what two clients were shown, and strong masks.

Clients never talk to each other but through the server, which may show each of them another query,
other clients and other keys. Every key that two clients share (:func:`pair_key`, for the masks of
their votes and for the shares that they send each other) is therefore derived from a digest of all
that they were shown (:func:`digest_of`). Clients that were shown different things have different
keys: they cannot read each other's shares, and their masks do not cancel.

Flower folds the 256-bit seed of a mask to 32 bits and feeds a Mersenne Twister: whoever has one
masked vector can try all seeds. Here masks are ChaCha20 streams.

Shares of secrets are made and combined by :mod:`optuna_dp.federated.shamir`, and of a private key
the 48 bytes of its number are shared, where Flower shares the 306 of its PEM text.

Both sides of the protocol run from private copies of Flower's own modules, in which the keys, the
masks, the shares and the message type (so that the user's training messages stay his) are others.
Flower's modules themselves are left alone.
"""

from __future__ import annotations

import base64
import contextvars
import functools
import hashlib
import importlib.util
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from flwr.supercore.primitives.asymmetric import public_key_to_bytes

from optuna_dp.arrays import IntArray
from optuna_dp.errors import InvalidArgumentError
from optuna_dp.federated.query import ACTION_SECURE
from optuna_dp.federated.shamir import combine_shares, create_shares

CLIENT = "flwr.client.mod.secure_aggregation.secaggplus_mod"
SERVER = "flwr.server.workflow.secure_aggregation.secaggplus_workflow"
_LARGEST_RANGE = 1 << 32
# Bytes of a mask's seed, and of the number of a private key of P-384.
SEED, PRIVATE_KEY = 32, 48

# What Flower's set-up tells every client.
NUMBERS = (
    *("sample_num", "share_num", "threshold"),
    *("clipping_range", "target_range", "mod_range", "max_weight"),
)

# The digest of what this side was shown, while it handles a message.
view: contextvars.ContextVar[bytes] = contextvars.ContextVar("optuna_dp_view", default=b"")

# The total weight and the sum that the server's side has opened last, unmasked whole numbers.
opened: contextvars.ContextVar[tuple[int, IntArray] | None] = contextvars.ContextVar(
    "optuna_dp_opened", default=None
)


def complete(numbers: Mapping[str, Any], clients: int) -> bool:
    """Returns whether everybody shares with everybody, when so many clients were shown."""
    return bool(numbers["share_num"] == numbers["sample_num"] == clients)


def digest_of(
    run: int, query: str, numbers: Mapping[str, Any], keys: Mapping[int, Sequence[bytes]]
) -> bytes:
    """Returns a digest of all that a client is shown before it answers, 32 bytes.

    Where clients share with a part of the others only, each sees other neighbours: names and keys
    are left out then, and the digest is about the rest.

    Args:
        run: Flower's number of the run.
        query: The query, as it was sent.
        numbers: What the set-up said, the entries :data:`NUMBERS`.
        keys: The two public keys of each client that was shown, by its name.
    """
    public_keys = [(n, *keys[n]) for n in sorted(keys)] if complete(numbers, len(keys)) else []
    query_digest = hashlib.sha256(query.encode()).hexdigest()
    content = [
        "optuna-dp view",
        run,
        query_digest,
        [numbers[name] for name in NUMBERS],
        public_keys,
    ]
    return hashlib.sha256(repr(content).encode()).digest()


def pair_key(own_key: ec.EllipticCurvePrivateKey, peer_key: ec.EllipticCurvePublicKey) -> bytes:
    """Returns the key of two clients for what both were shown, as Fernet takes it.

    A drop-in for Flower's ``generate_shared_key``: ECDH, then HKDF-SHA256 with :data:`view` and
    both public keys. The latter matter too: a point and its negative have one shared secret, and
    with the same mask a made-up client could cancel that of an honest one.
    """
    ends = sorted(public_key_to_bytes(key) for key in (own_key.public_key(), peer_key))
    info = b"optuna-dp secagg+ key\x00" + view.get() + b"".join(ends)
    derivation = HKDF(algorithm=hashes.SHA256(), length=32, salt=None, info=info)
    return base64.urlsafe_b64encode(derivation.derive(own_key.exchange(ec.ECDH(), peer_key)))


def chacha20_masks(
    seed: bytes, num_range: int, dimensions_list: Sequence[tuple[int, ...]]
) -> list[npt.NDArray[np.int64]]:
    """Returns uniform whole numbers in [0, num_range), from all bits of the seed.

    A drop-in for Flower's ``pseudo_rand_gen``. The key is SHA-256 of the seed; every seed of the
    protocol is used for one mask only, so the nonce is fixed.

    Args:
        seed: At least 128 bits of entropy (Flower's have 256).
        num_range: A power of two, at most 2^32.
        dimensions_list: Shapes.
    """
    if not 2 <= num_range <= _LARGEST_RANGE or num_range & (num_range - 1):
        raise InvalidArgumentError("num_range", num_range, "it must be a power of two up to 2^32")
    key = hashlib.sha256(b"optuna-dp secagg+ mask\x00" + seed).digest()
    stream = Cipher(algorithms.ChaCha20(key, b"\x00" * 16), mode=None).encryptor()
    masks = []
    for shape in dimensions_list:
        size = int(np.prod(shape, dtype=np.int64))
        words = np.frombuffer(stream.update(b"\x00" * (4 * size)), dtype="<u4")
        masks.append((words.astype(np.int64) & (num_range - 1)).reshape(shape))
    return masks


def private_key_to_bytes(key: ec.EllipticCurvePrivateKey) -> bytes:
    """Returns the number of a private key, 48 bytes; a drop-in for Flower's function."""
    return key.private_numbers().private_value.to_bytes(PRIVATE_KEY, "big")


@functools.lru_cache(maxsize=2)  # A client uses its two keys once for each of the others.
def bytes_to_private_key(number: bytes) -> ec.EllipticCurvePrivateKey:
    """Returns the private key of a number; a drop-in for Flower's function.

    Raises:
        ValueError: If it is the number of no key.
    """
    return ec.derive_private_key(int.from_bytes(number, "big"), ec.SECP384R1())


class _MessageType:
    TRAIN = ACTION_SECURE


@functools.cache
def client_module() -> Any:
    """Returns Flower's client side of SecAgg+ with these keys, masks and shares."""
    replacements = {
        "create_shares": create_shares,
        "private_key_to_bytes": private_key_to_bytes,
    }
    return _variant(CLIENT, replacements, "decrypt", "share_keys_plaintext_separate")


@functools.cache
def server_module() -> Any:
    """Returns Flower's server side of SecAgg+ with these keys, masks and shares."""
    replacements = {"combine_shares": combine_shares}
    module = _variant(SERVER, replacements, "factor_extract", "bytes_to_public_key", "compat")
    extract = module.factor_extract

    def extract_and_keep(parameters: list[Any]) -> Any:
        """Flower goes on to an average in floating point, of which nobody asks the weight."""
        opened.set((int(parameters[0][0]), np.array(parameters[1], dtype=np.int64)))
        return extract(parameters)

    module.factor_extract = extract_and_keep
    return module


def _variant(name: str, replacements: Mapping[str, Any], *more: str) -> Any:
    spec_of_original = importlib.util.find_spec(name)
    assert spec_of_original is not None
    assert spec_of_original.origin is not None
    # In Flower's own package, because the module has relative imports; under a name of ours.
    own_name = f"{name}_optuna_dp"
    spec = importlib.util.spec_from_file_location(own_name, spec_of_original.origin)
    assert spec is not None
    assert spec.loader is not None
    module: Any = importlib.util.module_from_spec(spec)
    sys.modules[own_name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    attributes = {
        "MessageType": _MessageType,
        "pseudo_rand_gen": chacha20_masks,
        "generate_shared_key": pair_key,
        "bytes_to_private_key": bytes_to_private_key,
        **replacements,
    }
    for attribute in (*attributes, *more):
        if not hasattr(module, attribute):
            raise InvalidArgumentError(
                "flwr",
                name,
                f"it has no {attribute}",
                "Use a version that the extra allows: pip install 'optuna-dp[federated]'.",
            )
    vars(module).update(attributes)
    return module
