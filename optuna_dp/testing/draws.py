"""Where a run's own code draws random numbers, and from generators of which seeds.

Noise that follows from a number written in the program is no noise. A generator's seed can be read
(numpy, PyTorch) or shows by its state: two runs that begin with fresh randomness and make equal
generators have seeded them. Which generators a run uses is seen line by line of the user's code.
"""

from __future__ import annotations

import functools
import os
import random
import sys
import sysconfig
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import FrameType
from typing import Any

import numpy as np

# Lines that are looked at; a run of more is judged by these.
_MOST_LINES = 300_000
# Seeds that people write, unlike those that are drawn from the operating system.
_SMALL = 2**32
_TORCH_DEFAULT = 67280421310721
_TRIED = 10_000
_PACKAGE = os.path.dirname(os.path.dirname(os.path.realpath(__file__))) + os.sep
_STANDARD = tuple(
    os.path.realpath(sysconfig.get_path(name)) + os.sep for name in ("stdlib", "platstdlib")
)

# Lines of the user's code that led to a draw, the innermost first.
Place = tuple[tuple[str, int], ...]


@functools.cache
def is_users(file: str) -> bool:
    """Whether code is the user's own: not Python's, a package's, or this one's."""
    real = os.path.realpath(file)
    installed = {"site-packages", "dist-packages"} & set(real.split(os.sep))
    return not (installed or file.startswith("<frozen") or real.startswith((*_STANDARD, _PACKAGE)))


@dataclass
class Generator:
    """A generator that a run's code has used.

    Attributes:
        name: Of the variable that holds it.
        seed: What can be read of its seed; None if nothing can.
        first: Its state when it was first seen.
        last: Its latest state.
        changes: How often it was found in another state than on the line before.
    """

    name: str
    generator: Any
    seed: Any
    first: Any
    last: Any
    changes: int = 0


@dataclass
class Draws:
    """The draws of one run.

    Attributes:
        entropy: How much of the operating system's randomness was drawn so far.
        generators: By identity.
        places: How often something was drawn at each place.
        last: The place of the last draw.
        lines: Lines looked at.
    """

    entropy: Callable[[], int] | None = None
    generators: dict[int, Generator] = field(default_factory=dict)
    places: Counter[Place] = field(default_factory=Counter)
    last: Place = ()
    lines: int = 0
    _globals: Any = None

    @property
    def complete(self) -> bool:
        """Whether every line was looked at."""
        return 0 < self.lines < _MOST_LINES

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Looks at every line of the user's code that this thread runs."""
        if self.entropy is None:
            yield
            return
        own = sys.gettrace()
        self._globals = self._read_globals()
        sys.settrace(self._trace)
        try:
            yield
        finally:
            sys.settrace(own)

    def _trace(self, frame: FrameType, event: str, argument: Any) -> Any:
        if not is_users(frame.f_code.co_filename) or self.lines >= _MOST_LINES:
            return None
        self.lines += 1
        values = dict(frame.f_locals)
        if event == "call":
            for name in frame.f_code.co_names:
                if name in frame.f_globals:
                    values.setdefault(name, frame.f_globals[name])
            for name, value in list(values.items()):
                values.update({f"{name}.{k}": v for k, v in _attributes(value)})
        for name, value in values.items():
            if id(value) not in self.generators and _kind(value):
                state = _state(value)
                self.generators[id(value)] = Generator(name, value, _seed(value), state, state)
        self._look(frame)
        return self._trace

    def _look(self, frame: FrameType) -> None:
        drawn = False
        for known in self.generators.values():
            state = _state(known.generator)
            if state != known.last:
                known.last, drawn = state, True
                known.changes += 1
        now = self._read_globals()
        if now != self._globals:
            self._globals, drawn = now, True
        if drawn:
            self.last = tuple(_users_lines(frame))
            self.places[self.last] += 1

    def _read_globals(self) -> Any:
        assert self.entropy is not None
        torch = sys.modules.get("torch")
        return (
            self.entropy(),
            random.getstate(),
            _packed(np.random.get_state(legacy=False)),
            None if torch is None else torch.get_rng_state().numpy().tobytes(),
        )


def _users_lines(frame: FrameType | None) -> Iterator[tuple[str, int]]:
    while frame is not None:
        if is_users(frame.f_code.co_filename):
            yield frame.f_code.co_filename, frame.f_lineno
        frame = frame.f_back


def _attributes(value: Any) -> list[tuple[str, Any]]:
    """Returns the attributes of an object of the user's own; none of any other."""
    module = type(value).__module__
    file = getattr(sys.modules.get(module), "__file__", None)
    users = module == "__main__" if file is None else is_users(file)
    return list(vars(value).items()) if users and hasattr(value, "__dict__") else []


def _kind(value: Any) -> str:
    """Returns which library a generator is of; empty for whatever is none."""
    if isinstance(value, np.random.Generator | np.random.RandomState):
        return "numpy"
    if isinstance(value, random.Random) and not isinstance(value, random.SystemRandom):
        return "random"
    torch = sys.modules.get("torch")
    return "torch" if torch is not None and isinstance(value, torch.Generator) else ""


def _state(value: Any) -> Any:
    """Returns a generator's state in a form that can be compared."""
    kind = _kind(value)
    if kind == "random":
        return value.getstate()
    if kind == "torch":
        return value.get_state().numpy().tobytes()
    bits = value.bit_generator if hasattr(value, "bit_generator") else value._bit_generator
    return repr(bits.state) if "PCG64" in type(bits).__name__ else _packed(bits.state)


def _packed(state: Any) -> Any:
    if isinstance(state, dict):
        return tuple(_packed(part) for part in state.values())
    return state.tobytes() if hasattr(state, "tobytes") else state


def _seed(value: Any) -> Any:
    """Returns a generator's seed as far as it can be read; None if it cannot."""
    kind = _kind(value)
    if kind == "torch":
        return value.initial_seed()
    sequence: Any = getattr(getattr(value, "bit_generator", None), "seed_seq", None)
    entropy = getattr(sequence, "entropy", None)
    return None if entropy is None else (_packed_seed(entropy), tuple(sequence.spawn_key))


def _packed_seed(entropy: Any) -> int:
    parts = entropy if isinstance(entropy, list | tuple | np.ndarray) else [entropy]
    return sum(int(part) << (32 * i) for i, part in enumerate(parts))


def fixed(one: Draws, other: Draws) -> list[Generator]:
    """Returns the generators whose seed is the same whenever the program runs.

    Args:
        one: Of a run.
        other: Of another run of equal hyperparameters and fresh randomness.
    """
    found = []
    for key, used in other.generators.items():
        if not used.changes:
            continue
        if key in one.generators:  # made before the runs
            bad = _is_written(one.generators[key])
        else:
            bad = any(_equal(used, made) for made in one.generators.values())
        if bad:
            found.append(used)
    return found


def _equal(one: Generator, other: Generator) -> bool:
    if one.name != other.name:
        return False
    return bool(one.seed == other.seed if one.seed is not None else one.first == other.first)


def _is_written(used: Generator) -> bool:
    """Whether a generator that was there before has a seed that somebody wrote."""
    if isinstance(used.seed, int):
        return used.seed < _SMALL or used.seed == _TORCH_DEFAULT
    if used.seed is not None:
        return bool(used.seed[0] < _SMALL)
    kind = type(used.generator)
    if kind not in (random.Random, np.random.RandomState):
        return False
    return any(_state(kind(seed)) == used.first for seed in range(_TRIED))
