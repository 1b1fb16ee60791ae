"""The randomness of a run under check, which can be repeated.

A run draws from the global generators of ``random``, ``numpy`` and ``torch``, from the operating
system (``secrets``, ``np.random.default_rng()``), from OpenSSL (``odp.train``), and, for the
scores of this package, from OpenDP. While :meth:`Randomness.controlled` is active, all of it
follows from one number. The number itself is secret, so nothing that a run draws can be guessed.
"""

from __future__ import annotations

import os
import random
import secrets
import ssl
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from optuna_dp import scoring

_system_bytes = os.urandom
# A generator's name, how to read its state, how to set it, and how to seed it.
_Generator = tuple[str, Callable[[], Any], Callable[[Any], Any], Callable[[int], Any]]


def _generators() -> list[_Generator]:
    generators: list[_Generator] = [
        ("random", random.getstate, random.setstate, random.seed),
        (
            "numpy.random",
            lambda: np.random.get_state(legacy=False),
            np.random.set_state,
            lambda seed: np.random.seed(seed % 2**32),
        ),
    ]
    torch = sys.modules.get("torch")  # nobody has seeded what nobody has imported
    if torch is not None:
        generators.append(("torch", torch.get_rng_state, torch.set_rng_state, torch.manual_seed))
    return generators


class Randomness:
    """What the runs of one check draw from.

    Attributes:
        drawn: Bytes of the operating system's randomness that this run has drawn.
    """

    def __init__(self) -> None:
        self._before = [(set_state, get_state()) for _, get_state, set_state, _ in _generators()]
        self.seed(secrets.randbits(63))

    def seed(self, seed: int) -> None:
        """Makes all randomness from here on a function of ``seed``."""
        for _, _, _, set_seed in _generators():
            set_seed(seed)
        self._stream = np.random.Generator(np.random.PCG64(seed))
        self.drawn = 0

    def read(self) -> dict[str, str]:
        """Returns the state of each global generator, by name, in a form to be compared."""
        return {name: repr(plain(get_state())) for name, get_state, _, _ in _generators()}

    def restore(self) -> None:
        """Puts the global generators back into the states of before."""
        for set_state, state in self._before:
            set_state(state)

    @contextmanager
    def controlled(self) -> Iterator[None]:
        """Takes the place of the operating system's randomness until the block ends."""
        own_seed = random.Random.seed

        def seed(generator: random.Random, a: Any = None, version: int = 2) -> None:
            own_seed(generator, self._bytes(32) if a is None else a, version)

        places: list[tuple[Any, str, Any]] = [
            (os, "urandom", self._bytes),
            (random, "_urandom", self._bytes),  # of secrets and of numpy's fresh seeds
            (ssl, "RAND_bytes", self._bytes),  # of odp.train
            (random.Random, "seed", seed),
            (scoring, "with_noise", self._noisy),
        ]
        originals = [getattr(place, name) for place, name, _ in places]
        for place, name, replacement in places:
            setattr(place, name, replacement)
        try:
            yield
        finally:
            for (place, name, _), original in zip(places, originals, strict=True):
                setattr(place, name, original)

    def _bytes(self, size: int) -> bytes:
        if _importing():
            return _system_bytes(size)  # what a library draws when it is first used
        self.drawn += size
        return self._stream.bytes(size)

    def _noisy(self, total: int, scale: float) -> int:
        self.drawn += 1
        return total + round(scale * self._stream.normal())


def _importing() -> bool:
    frame = sys._getframe(2)
    while frame.f_back is not None:
        if frame.f_code.co_filename == "<frozen importlib._bootstrap>":
            return True
        frame = frame.f_back
    return False


def plain(state: Any) -> Any:
    """Returns a generator's state without arrays, whose repr leaves most of them out."""
    if isinstance(state, dict):
        return {name: plain(value) for name, value in state.items()}
    return state.tolist() if hasattr(state, "tolist") else state
