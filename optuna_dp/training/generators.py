"""Random numbers that a model, a loss or a data set draws while it is trained.

They come from generators that a script can seed: Python's, numpy's and PyTorch's. Who knows the
seed knows which draw a record gets, and a record that joins a batch moves those of all records
after it. So these generators have states from the operating system while a training computes, and
the script's own states afterwards.

PyTorch's draws are independent for each record: ``torch.func.vmap`` makes them so. Python's and
numpy's are the same for all records that are computed together. They are made the same for all
records of a step, so that it does not matter which are computed together.

The threads of a process share these generators, so they take turns at computing.
"""

from __future__ import annotations

import os
import random
import secrets
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import numpy as np
import torch

_SEED_BITS = 512
# PyTorch's generator of the processor keeps 32 bits of a seed: so its whole state is set. It is
# 624 words of a Mersenne twister, 8 bytes each in the state, after 24 bytes of counters.
_WORDS, _FIRST_WORD = 624, 24
# Of a list or a mapping that a data set keeps: transforms, and not the records.
_MOST_LOOKED_AT = 64


class Draws:
    """What is drawn while one training computes.

    Args:
        device: Where the model is.
        seed: A number, to draw the same each time; None for draws that nobody knows.
    """

    # The turn at computing.
    _turn = threading.RLock()

    @classmethod
    def renew_turn(cls) -> None:
        """Makes a new lock in a process that was forked: who held the old one is not in it."""
        cls._turn = threading.RLock()

    def __init__(self, device: torch.device, seed: int | None = None) -> None:
        self._device, self._seed = device, seed
        self._of_step = 0

    @contextmanager
    def for_step(self) -> Iterator[None]:
        """Gives the generators new states inside, and their own ones back afterwards."""
        self._of_step = secrets.randbits(_SEED_BITS) if self._seed is None else self._seed
        with Draws._turn:
            states = random.getstate(), np.random.get_state()
            torch_states = [(each, each.get_state()) for each in _generators(self._device)]
            try:
                for generator in _generators(self._device):
                    _seed_torch(generator, self._seed)
                yield
            finally:
                random.setstate(states[0])
                np.random.set_state(states[1])
                for generator, state in torch_states:
                    generator.set_state(state)

    def before_reading(self) -> None:
        """Renews Python's and numpy's draws, which a data set makes for one record after another.

        To be called inside :meth:`for_step`.
        """
        _seed_shared(secrets.randbits(_SEED_BITS) if self._seed is None else self._seed)

    def before_computing(self) -> None:
        """Makes Python's and numpy's draws those of the step; see :meth:`before_reading`."""
        _seed_shared(self._of_step)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=Draws.renew_turn)


def seed_kept_generators(holders: Iterable[object]) -> None:
    """Seeds the generators that data sets keep in their attributes. They are not put back.

    Args:
        holders: Data sets, and whatever else; arrays are not looked into.
    """
    pending_values, visited_ids = list(holders), set[int]()
    visited_values = []  # An id is of one object only as long as it exists.
    while pending_values:
        value = pending_values.pop()
        if id(value) in visited_ids or isinstance(value, torch.Tensor | np.ndarray | type):
            continue
        visited_ids.add(id(value))
        visited_values.append(value)
        if isinstance(value, np.random.Generator):
            bits = value.bit_generator
            bits.state = type(bits)(secrets.randbits(_SEED_BITS)).state
        elif isinstance(value, np.random.RandomState):
            value.seed(_words(secrets.randbits(_SEED_BITS)))
        elif isinstance(value, random.Random):
            value.seed(secrets.randbits(_SEED_BITS))
        elif isinstance(value, torch.Generator):
            _seed_torch(value, None)
        elif isinstance(value, list | tuple):
            pending_values += value[:_MOST_LOOKED_AT]
        elif isinstance(value, dict):
            pending_values += list(value.values())[:_MOST_LOOKED_AT]
        else:
            pending_values += vars(value).values() if hasattr(value, "__dict__") else ()


def _seed_shared(seed: int) -> None:
    # Both are the same Mersenne twister, and would draw the same numbers from one seed.
    random.seed(seed >> _SEED_BITS // 2)
    np.random.seed(_words(seed & (1 << _SEED_BITS // 2) - 1))


def _words(seed: int) -> list[int]:
    """Returns a seed as words of 32 bits, because numpy takes no longer number."""
    return [seed >> shift & 0xFFFFFFFF for shift in range(0, _SEED_BITS, 32)]


def _seed_torch(generator: torch.Generator, seed: int | None) -> None:
    """Seeds a generator of PyTorch; by the operating system if no seed is given."""
    if seed is not None or generator.device.type != "cpu":
        generator.manual_seed(secrets.randbits(63) if seed is None else seed)
        return
    generator.manual_seed(secrets.randbits(63))  # The counters of a new state.
    state = generator.get_state().numpy()
    end = _FIRST_WORD + 8 * _WORDS
    words = np.frombuffer(secrets.token_bytes(4 * _WORDS), dtype=np.uint32)
    state[_FIRST_WORD:end] = words.astype(np.uint64).view(np.uint8)
    generator.set_state(torch.from_numpy(state))


def _generators(device: torch.device) -> list[torch.Generator]:
    """Returns PyTorch's generators that a model on a device draws from."""
    generators = [torch.default_generator]
    if device.type == "cuda":
        index = torch.cuda.current_device() if device.index is None else device.index
        generators.append(torch.cuda.default_generators[index])
    return generators
