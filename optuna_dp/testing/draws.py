"""Finds where a run's own code draws random numbers, and the seeds of its generators.

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


@dataclass
class Times:
    """When something was drawn at a place.

    Attributes:
        count: How often.
        first: Number of the first draw among all of the run.
        last: Number of the last one.
        kinds: Of the sources: "system", "numpy", "random" and "torch".
    """

    count: int = 0
    first: int = 0
    last: int = 0
    kinds: set[str] = field(default_factory=set)


@functools.cache
def is_users(file: str) -> bool:
    """Returns whether code is the user's own: not Python's, a package's, or this one's."""
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
        places: When something was drawn at each place.
        last: The place of the last draw.
        count: How often something was drawn.
        lines: Lines looked at.
    """

    entropy: Callable[[], int] | None = None
    generators: dict[int, Generator] = field(default_factory=dict)
    places: dict[Place, Times] = field(default_factory=dict)
    last: Place = ()
    count: int = 0
    lines: int = 0
    _globals: dict[str, Any] = field(default_factory=dict)

    @property
    def complete(self) -> bool:
        """Returns whether every line was looked at."""
        return 0 < self.lines < _MOST_LINES

    def end_with(self, steps: int) -> bool:
        """Whether the last draw is one of the training's, which draws in each of so many steps.

        Whatever is drawn in a loop of its own after the training began after it had ended.
        """
        if not self.complete or not self.last:
            return False
        last_place = self.places[self.last]
        places_before = (
            t for t in self.places.values() if t.count >= steps and t.last < last_place.first
        )
        return last_place.count >= steps and not any(places_before)

    def noise_after(self, steps: int) -> bool:
        """Returns whether something is drawn after a training that draws in each of so many steps.

        PyTorch's own generator does not count: a loader draws from it when it is read.
        """
        training = [t.last for t in self.places.values() if t.count >= steps > 0]
        return bool(training) and any(
            t.first > max(training) and t.kinds - {"torch"} for t in self.places.values()
        )

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Looks at every line of the user's code that this thread runs."""
        if self.entropy is None:
            yield
            return
        previous_trace = sys.gettrace()
        self._globals = self._read_globals()
        sys.settrace(self._trace)
        try:
            yield
        finally:
            sys.settrace(previous_trace)

    def _trace(self, frame: FrameType, event: str, argument: Any) -> Any:
        if not is_users(frame.f_code.co_filename) or self.lines >= _MOST_LINES:
            return None
        self.lines += 1
        if _is_transformed():
            return self._trace
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
        kinds = set()
        for generator in self.generators.values():
            state = _state(generator.generator)
            if state != generator.last:
                generator.last = state
                generator.changes += 1
                kinds.add(_kind(generator.generator))
        states = self._read_globals()
        kinds |= {kind for kind, state in states.items() if state != self._globals.get(kind)}
        self._globals = states
        if kinds:
            self.last = tuple(_users_lines(frame))
            self.count += 1
            times = self.places.setdefault(self.last, Times(first=self.count))
            times.count, times.last = times.count + 1, self.count
            times.kinds |= kinds

    def _read_globals(self) -> dict[str, Any]:
        assert self.entropy is not None
        torch = sys.modules.get("torch")
        return {
            "system": self.entropy(),
            "random": random.getstate(),
            "numpy": _packed(np.random.get_state(legacy=False)),
            "torch": None if torch is None else torch.get_rng_state().numpy().tobytes(),
        }


def _is_transformed() -> bool:
    """Returns whether the code runs inside a transform of torch.func, as losses of odp.train do.

    Tensors have no values there, and neither has the state of a generator.
    """
    torch = sys.modules.get("torch")
    return torch is not None and torch._C._functorch.maybe_current_level() is not None


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


def fixed(first_draws: Draws, second_draws: Draws) -> list[Generator]:
    """Returns the generators whose seed is the same whenever the program runs.

    Args:
        first_draws: Of a run.
        second_draws: Of another run of equal hyperparameters and fresh randomness.
    """
    fixed_generators = []
    for key, generator in second_draws.generators.items():
        if not generator.changes:
            continue
        if key in first_draws.generators:  # made before the runs
            is_fixed = _is_written(first_draws.generators[key])
        else:
            is_fixed = any(
                _equal(generator, reference) for reference in first_draws.generators.values()
            )
        if is_fixed:
            fixed_generators.append(generator)
    return fixed_generators


def _equal(generator: Generator, reference: Generator) -> bool:
    if generator.name != reference.name:
        return False
    return bool(
        generator.seed == reference.seed
        if generator.seed is not None
        else generator.first == reference.first
    )


def _is_written(generator: Generator) -> bool:
    """Returns whether a generator that was there before has a seed that somebody wrote."""
    if isinstance(generator.seed, int):
        return generator.seed < _SMALL or generator.seed == _TORCH_DEFAULT
    if generator.seed is not None:
        return bool(generator.seed[0] < _SMALL)
    kind = type(generator.generator)
    if kind not in (random.Random, np.random.RandomState):
        return False
    return any(_state(kind(seed)) == generator.first for seed in range(_TRIED))
