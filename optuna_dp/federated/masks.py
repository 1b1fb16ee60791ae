"""Strong masks for Flower's SecAgg+.

Flower folds the 256-bit seed of a mask to 32 bits and feeds a Mersenne Twister: whoever has one
masked vector can try all seeds. Here both sides of the protocol run from private copies of
Flower's own modules in which only the mask generator (and the message type, so that the user's
training messages stay his) is another; Flower's modules themselves are left alone.
"""

from __future__ import annotations

import functools
import hashlib
import importlib.util
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms

from optuna_dp.errors import InvalidArgumentError
from optuna_dp.federated.query import ACTION_SECURE

STRONG = "chacha20"
FLOWER = "flower"

_CLIENT = "flwr.client.mod.secure_aggregation.secaggplus_mod"
_SERVER = "flwr.server.workflow.secure_aggregation.secaggplus_workflow"
_LARGEST_RANGE = 1 << 32


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
    return _variant(_CLIENT, masks)


@functools.lru_cache(maxsize=4)
def server_module(masks: str) -> Any:
    """Returns Flower's server side of SecAgg+ with the given masks."""
    return _variant(_SERVER, masks)


def _variant(name: str, masks: str) -> Any:
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
    for expected in ("pseudo_rand_gen", "MessageType"):
        if not hasattr(module, expected):
            raise InvalidArgumentError(
                "flwr",
                name,
                f"it has no {expected}",
                "Use the version that the extra pins: pip install 'optuna-dp[federated]'.",
            )
    module.MessageType = _MessageType
    if masks == STRONG:
        module.pseudo_rand_gen = chacha20_masks
    return module
