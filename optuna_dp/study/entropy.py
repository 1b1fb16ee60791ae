"""The source of the samplers' randomness.

Without a seed everything is drawn afresh from the operating system: T, the tie-breaks, the
candidates, the choice among them. With a seed each draw is a function of the seed and of what is
drawn (the slot and a purpose), so that a simulation is repeatable whatever the number of workers.
A seeded private selection cannot be released: who knows the seed knows T.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Callable

import numpy as np

Bits = Callable[[int], int]

_SEED_BITS = 256
KEY_BITS = 256
# What a run draws before its score is known must not be a function of anything but these words,
# so that two draws of one study never share a stream.
Word = str | int


def generator(seed: int | None, *path: Word) -> np.random.Generator:
    """Returns a generator of its own for one draw; ``path`` says which draw it is for."""
    if seed is None:
        return np.random.default_rng(secrets.randbits(_SEED_BITS))
    return np.random.default_rng(_digest(seed, path))


def bits(seed: int | None, *path: Word) -> Bits:
    """Returns a source of random bits: the operating system's, or one fixed by the seed."""
    if seed is None:
        return secrets.randbits
    source = generator(seed, *path)

    def draw(count: int) -> int:
        return int.from_bytes(source.bytes(-(-count // 8)), "big") >> (-count % 8)

    return draw


def unit(key: int, name: str) -> float:
    """Returns a uniform on [0, 1), a multiple of 2**-53, fixed by a secret key and a name.

    The first 53 bits of SHA-256 of both: the same on every machine, unlike numpy's streams, which
    may change from one version to the next.

    Args:
        key: Uniform on ``[0, 2**256)``, drawn for one run.
        name: What is drawn, the name of a parameter say.
    """
    text = key.to_bytes(KEY_BITS // 8, "big") + name.encode("utf-8", "surrogatepass")
    return (int.from_bytes(hashlib.sha256(text).digest()[:8], "big") >> 11) * 2.0**-53


def _digest(seed: int, path: tuple[Word, ...]) -> int:
    text = "\x1f".join(repr(word) for word in (seed, *path))
    return int.from_bytes(hashlib.sha256(text.encode()).digest(), "big")
