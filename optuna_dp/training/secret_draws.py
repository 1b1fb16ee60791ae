"""Random numbers that a model, a loss or a data set draws while it is trained.

They come from generators that a script can seed: Python's, numpy's and PyTorch's. Who knows the
seed knows which draw a record gets, and a record that joins a batch moves those of all records
after it. So the generators are seeded by the operating system while a training computes, and put
back afterwards.

*Draws of PyTorch* are independent for each record: ``torch.func.vmap`` makes them so. *Draws of
Python and numpy* are the same for all records that are computed together. They are made the same
for all records of a step, so that it does not matter which are computed together.

All threads of a process share these generators. Trainings may compute side by side, because what
each of them seeds is secret. What needs certain draws is computed while no other training
computes.
"""

from __future__ import annotations

import os
import random
import secrets
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import numpy as np
import torch

# Of a list or a mapping that a data set keeps: transforms, and not the records.
_MOST_LOOKED_AT = 64
_TORCH_BITS, _NUMPY_BITS, _PYTHON_BITS = 63, 32, 128


class _Turns:
    """Computations side by side, or one of them alone."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._side_by_side = 0
        self._waiting_alone = 0
        self._is_alone = False

    @contextmanager
    def side_by_side(self) -> Iterator[None]:
        with self._changed:
            self._changed.wait_for(lambda: not (self._is_alone or self._waiting_alone))
            self._side_by_side += 1
        try:
            yield
        finally:
            with self._changed:
                self._side_by_side -= 1
                self._changed.notify_all()

    @contextmanager
    def alone(self) -> Iterator[None]:
        with self._changed:
            self._waiting_alone += 1
            self._changed.wait_for(lambda: not (self._is_alone or self._side_by_side))
            self._waiting_alone -= 1
            self._is_alone = True
        try:
            yield
        finally:
            with self._changed:
                self._is_alone = False
                self._changed.notify_all()


class _Shared:
    """What the threads of a process share.

    Attributes:
        lock: Held while the rest is read or written.
        turns: Who computes.
        trainings: How many threads train.
        states: What the generators were before the first of them.
        seeds: What each of PyTorch's generators was last seeded with here.
    """

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.turns = _Turns()
        self.trainings = 0
        self.states: Any = None
        self.seeds: dict[torch.Generator, int] = {}


_shared = _Shared()


def _forget_threads() -> None:
    """Begins anew in a process that was forked: the other threads are not in it."""
    global _shared
    _shared = _Shared()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_threads)


class SecretDraws:
    """Seeds that nobody knows, for what is drawn while one model is trained.

    Args:
        device: Where the model is.

    Attributes:
        are_shared: Whether the model or the loss draws from Python's or numpy's generator. No
            other training may move these meanwhile.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._of_step = secrets.randbits(_PYTHON_BITS)
        self.are_shared = False

    def begin_step(self) -> None:
        """Forgets the draws that the records of a step shared."""
        self._of_step = secrets.randbits(_PYTHON_BITS)

    @contextmanager
    def for_reading(self) -> Iterator[None]:
        """Seeds what a data set draws for each record, one after another."""
        with _shared.turns.side_by_side():
            seed_generators(self._device, secrets.randbits(_PYTHON_BITS))
            yield

    @contextmanager
    def for_computing(self) -> Iterator[None]:
        """Seeds what a model and a loss draw for the records of a step."""
        turns = _shared.turns
        with turns.alone() if self.are_shared else turns.side_by_side():
            seed_generators(self._device, self._of_step)
            yield

    def are_secret(self) -> bool:
        """Returns whether nothing else has seeded PyTorch's generators since."""
        with _shared.lock:
            seeds = [(g.initial_seed(), _shared.seeds.get(g)) for g in _generators(self._device)]
        return all(seed == secret for seed, secret in seeds)


def seed_generators(device: torch.device, shared: int, torch_seed: int | None = None) -> None:
    """Seeds Python's, numpy's and PyTorch's generators.

    Args:
        device: Where a model is.
        shared: The seed for Python and numpy.
        torch_seed: The seed for PyTorch; None for one that nobody knows.
    """
    if torch_seed is None:
        torch_seed = secrets.randbits(_TORCH_BITS)
    with _shared.lock:
        random.seed(shared)
        np.random.seed(shared % 2**_NUMPY_BITS)
        for generator in _generators(device):
            generator.manual_seed(torch_seed)
            _shared.seeds[generator] = torch_seed


def seed_kept_generators(holders: list[Any]) -> None:
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
            bits.state = type(bits)(secrets.randbits(_PYTHON_BITS)).state
        elif isinstance(value, np.random.RandomState):
            value.seed(secrets.randbits(_NUMPY_BITS))
        elif isinstance(value, random.Random):
            value.seed(secrets.randbits(_PYTHON_BITS))
        elif isinstance(value, torch.Generator):
            value.manual_seed(secrets.randbits(_TORCH_BITS))
        elif isinstance(value, list | tuple):
            pending_values += value[:_MOST_LOOKED_AT]
        elif isinstance(value, dict):
            pending_values += list(value.values())[:_MOST_LOOKED_AT]
        else:
            pending_values += vars(value).values() if hasattr(value, "__dict__") else ()


def while_no_training_computes() -> AbstractContextManager[None]:
    """Returns a context in which no training of this process computes."""
    return _shared.turns.alone()


@contextmanager
def generators_kept(device: torch.device) -> Iterator[None]:
    """Puts the generators back as they were, when no thread trains any more.

    How far they would have moved depends on how many records were drawn.

    Args:
        device: Where the model is.
    """
    shared = _shared
    with shared.lock:
        if not shared.trainings:
            shared.states = generator_states(device)
        shared.trainings += 1
    try:
        yield
    finally:
        with shared.lock:
            shared.trainings -= 1
            if not shared.trainings:
                restore_generators(shared.states)


def generator_states(device: torch.device) -> Any:
    """Returns the states of all generators that a model on a device draws from."""
    torch_states = [(generator, generator.get_state()) for generator in _generators(device)]
    return shared_states(), torch_states


def restore_generators(states: Any) -> None:
    """Puts generators back to what :func:`generator_states` returned."""
    (python_state, numpy_state), torch_states = states
    random.setstate(python_state)
    np.random.set_state(numpy_state)
    for generator, state in torch_states:
        generator.set_state(state)


def shared_states() -> Any:
    """Returns the states of Python's and numpy's generators."""
    return random.getstate(), np.random.get_state()


def _generators(device: torch.device) -> list[torch.Generator]:
    """Returns PyTorch's generators that a model on a device draws from."""
    generators = [torch.default_generator]
    if device.type == "cuda":
        index = torch.cuda.current_device() if device.index is None else device.index
        generators.append(torch.cuda.default_generators[index])
    return generators
