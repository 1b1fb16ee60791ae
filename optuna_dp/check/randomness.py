"""The global random generators, which a run under check begins with fresh seeds.

Two runs that begin with other seeds and leave a generator in one state have set it themselves.
"""

from __future__ import annotations

import random
import secrets
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

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


@contextmanager
def generators_kept() -> Iterator[None]:
    """Puts the global generators back into their states of before when the block ends."""
    before = [(set_state, get_state()) for _, get_state, set_state, _ in _generators()]
    try:
        yield
    finally:
        for set_state, state in before:
            set_state(state)


def seed_anew() -> None:
    """Seeds the global generators from the operating system's randomness."""
    for _, _, _, set_seed in _generators():
        set_seed(secrets.randbits(63))


def states() -> dict[str, str]:
    """Returns the state of each global generator, by name, in a form to be compared."""
    return {name: repr(_plain(get_state())) for name, get_state, _, _ in _generators()}


def _plain(state: object) -> object:
    """Returns a generator's state without arrays, whose repr leaves most of them out."""
    if isinstance(state, dict):
        return {name: _plain(value) for name, value in state.items()}
    return state.tolist() if hasattr(state, "tolist") else state
