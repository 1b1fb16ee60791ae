"""Seeds that an objective sets: found by where it leaves the global random generators.

Each run begins with the generators in fresh states. If two runs leave one in the same state, the
objective has set it: whatever was drawn after that, noise included, is the same in every run.
"""

from __future__ import annotations

import random
import secrets
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

# A generator's name, how to read its state, how to set it, and how to seed it.
_Generator = tuple[str, Callable[[], Any], Callable[[Any], Any], Callable[[int], Any]]


def _generators() -> list[_Generator]:
    found: list[_Generator] = [
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
        found.append(("torch", torch.get_rng_state, torch.set_rng_state, torch.manual_seed))
    return found


class RandomStates:
    """Gives each run fresh global generators, and puts back what was there before."""

    def __init__(self) -> None:
        self._before = [(put, read()) for _, read, put, _ in _generators()]

    @staticmethod
    def seed(seed: int | None = None) -> None:
        """Puts the generators into a state: a fresh one, or that of ``seed``."""
        for _, _, _, set_seed in _generators():
            set_seed(secrets.randbits(63) if seed is None else seed)

    @staticmethod
    def read() -> dict[str, str]:
        """Returns the state of each generator, by name, in a form that can be compared."""
        return {name: repr(_plain(read())) for name, read, _, _ in _generators()}

    def restore(self) -> None:
        """Puts back the states of before."""
        for put, state in self._before:
            put(state)


def _plain(state: Any) -> Any:
    """Returns a state without arrays, whose repr leaves most of them out."""
    if isinstance(state, dict):
        return {name: _plain(value) for name, value in state.items()}
    return state.tolist() if hasattr(state, "tolist") else state
