"""Strong masks for Flower's SecAgg+, and shares that only clients with one view can read.

Flower folds the 256-bit seed of a mask to 32 bits and feeds a Mersenne Twister: whoever has one
masked vector can try all seeds. Here both sides of the protocol run from private copies of
Flower's own modules in which only the mask generator (and the message type, so that the user's
training messages stay his) is another; Flower's modules themselves are left alone.

Clients never talk to each other but through the server, which may show each of them other clients
and other keys. The shares that they send each other are encrypted with keys that depend on what
the sender was shown (:data:`view`): who was shown something else cannot read them, and refuses.
"""

from __future__ import annotations

import base64
import contextvars
import functools
import hashlib
import importlib.util
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from cryptography.fernet import InvalidToken
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms

from optuna_dp.arrays import IntArray
from optuna_dp.errors import InvalidArgumentError
from optuna_dp.federated.policy import VoteRefusedError
from optuna_dp.federated.query import ACTION_SECURE

STRONG = "chacha20"
FLOWER = "flower"

_CLIENT = "flwr.client.mod.secure_aggregation.secaggplus_mod"
_SERVER = "flwr.server.workflow.secure_aggregation.secaggplus_workflow"
_LARGEST_RANGE = 1 << 32

# What this client was shown, while it answers a message; see :func:`bound`.
view: contextvars.ContextVar[bytes] = contextvars.ContextVar("optuna_dp_view", default=b"")

# The total weight and the sum that the server's side has opened last, unmasked whole numbers.
opened: contextvars.ContextVar[tuple[int, IntArray] | None] = contextvars.ContextVar(
    "optuna_dp_opened", default=None
)


def bound(key: bytes) -> bytes:
    """Returns the key of two clients for what both were shown, as Fernet takes it."""
    digest = hashlib.sha256(b"optuna-dp secagg+ view\x00" + view.get() + b"\x00" + key).digest()
    return base64.urlsafe_b64encode(digest)


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


class _MessageType:
    TRAIN = ACTION_SECURE


@functools.lru_cache(maxsize=4)
def client_module(masks: str) -> Any:
    """Returns Flower's client side of SecAgg+ with the given masks."""
    module = _variant(_CLIENT, masks, "encrypt", "decrypt")
    encrypt, decrypt = module.encrypt, module.decrypt
    module.encrypt = lambda key, plaintext: encrypt(bound(key), plaintext)

    def decrypt_bound(key: bytes, ciphertext: bytes) -> Any:
        try:
            return decrypt(bound(key), ciphertext)
        except InvalidToken:
            raise VoteRefusedError(
                "a client's share cannot be read: it was shown other clients, or it is damaged"
            ) from None

    module.decrypt = decrypt_bound
    return module


@functools.lru_cache(maxsize=4)
def server_module(masks: str) -> Any:
    """Returns Flower's server side of SecAgg+ with the given masks."""
    module = _variant(_SERVER, masks, "factor_extract", "bytes_to_public_key", "compat")
    extract = module.factor_extract

    def extract_and_keep(parameters: list[Any]) -> Any:
        """Flower goes on to an average in floating point, of which nobody asks the weight."""
        opened.set((int(parameters[0][0]), np.array(parameters[1], dtype=np.int64)))
        return extract(parameters)

    module.factor_extract = extract_and_keep
    return module


def _variant(name: str, masks: str, *more: str) -> Any:
    if masks not in (STRONG, FLOWER):
        raise InvalidArgumentError("masks", masks, f"it must be {STRONG!r} or {FLOWER!r}")
    found = importlib.util.find_spec(name)
    assert found is not None
    assert found.origin is not None
    # In Flower's own package, because the module has relative imports; under a name of ours.
    own_name = f"{name}_optuna_dp_{masks}"
    spec = importlib.util.spec_from_file_location(own_name, found.origin)
    assert spec is not None
    assert spec.loader is not None
    module: Any = importlib.util.module_from_spec(spec)
    sys.modules[own_name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    for expected in ("pseudo_rand_gen", "MessageType", *more):
        if not hasattr(module, expected):
            raise InvalidArgumentError(
                "flwr",
                name,
                f"it has no {expected}",
                "Use a version that the extra allows: pip install 'optuna-dp[federated]'.",
            )
    module.MessageType = _MessageType
    if masks == STRONG:
        module.pseudo_rand_gen = chacha20_masks
    return module
