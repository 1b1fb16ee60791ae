"""What a run leaves in the program's memory for the next: caches, models, the best score so far.

Looked at are the variables that an objective can reach: the globals of its module that its
functions use, its closure, its default arguments, and the attributes of the object it is a method
of. What a run has changed is watched in the next run: dictionaries, lists and sets by stand-ins
that note when something of an earlier run is read; models and arrays by their contents; other
variables by whether the code reads them before it sets them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any

from optuna_dp.testing.reachable import Reachable, Variable


class LeftBehind:
    """Compares what an objective can reach before and after its runs.

    Attributes:
        inherited: Names of variables that a run has read as an earlier one left them.
    """

    def __init__(self, objective: Any) -> None:
        self.inherited: list[str] = []
        reachable = Reachable(objective)
        self._variables = reachable.variables
        self._cached = reachable.cached
        # Values are kept alive, so that no other object can take their identity.
        self._before = [(v, v.get(), contents(v.get())) for v in self._variables]
        self._sizes = [f.cache_info().currsize for _, f in self._cached]
        self._hits: list[tuple[str, Any, int]] = []
        self._stand_ins: list[tuple[Variable, Any, Any]] = []

    def after_first_run(self) -> None:
        """Judges what the first run has changed, and puts stand-ins in the place of containers."""
        for variable, old, old_contents in self._before:
            value = variable.get()
            if value is old and contents(value) == old_contents:
                continue
            stand_in = None if variable.put is None else _stand_in(value)
            if stand_in is not None and (value is old or variable.read_first):
                assert variable.put is not None
                variable.put(stand_in)
                self._stand_ins.append((variable, value, stand_in))
            elif value is old or variable.read_first:
                self._add(variable.name)
        for (name, function), size in zip(self._cached, self._sizes, strict=True):
            if function.cache_info().currsize > size:
                self._hits.append((name, function, function.cache_info().hits))

    def after_last_run(self) -> None:
        """Takes the stand-ins out, keeping what was put into them."""
        for variable, original, stand_in in self._stand_ins:
            if stand_in.was_read:
                self._add(variable.name)
            if variable.get() is stand_in and variable.put is not None:
                stand_in.give_back(original)
                variable.put(original)
        for name, function, hits in self._hits:
            if function.cache_info().hits > hits:
                self._add(name)

    def _add(self, name: str) -> None:
        if name not in self.inherited:
            self.inherited.append(name)


def contents(value: Any, depth: int = 3) -> Any:
    """Returns what can be compared of a value before and after a run."""
    if value is None or isinstance(value, bool | int | float | complex | str | bytes):
        return value
    if isinstance(value, type):  # has a model's methods, and no model
        return id(value)
    if depth and isinstance(value, dict):
        return {id(k): (k, contents(v, depth - 1)) for k, v in dict.items(value)}
    if depth and isinstance(value, list | tuple):
        return [contents(item, depth - 1) for item in value]
    if isinstance(value, set):
        return set(value)
    if hasattr(value, "state_dict") and hasattr(value, "parameters"):  # a model of torch
        return [contents(v, depth - 1) for v in value.state_dict().values()]
    if hasattr(value, "detach") and hasattr(value, "numpy"):  # a tensor of torch
        value = value.detach().cpu().numpy()
    if hasattr(value, "tobytes") and hasattr(value, "dtype"):
        return hashlib.sha256(value.tobytes()).digest()
    return id(value)


def _stand_in(value: Any) -> Any:
    """Returns a container that behaves like this one and notes reads; None for other values."""
    kinds: dict[Any, Any] = {dict: _Dict, list: _List, set: _Set}
    kind = kinds.get(type(value))
    return None if kind is None else kind(value)


def _noting(*names: str, by_key: tuple[str, ...] = ()) -> Callable[[type], type]:
    """Has methods of a container note whether they read what was in it before.

    Of those ``by_key`` only the key counts that they are given.
    """

    def method(kind: type, name: str) -> Any:
        original = getattr(kind.__base__, name)

        def read(self: Any, *arguments: Any, **settings: Any) -> Any:
            self.was_read |= self.has_old(*(arguments[:1] if name in by_key else ()))
            return original(self, *arguments, **settings)

        return read

    def noting(kind: type) -> type:
        for name in (*names, *by_key):
            setattr(kind, name, method(kind, name))
        return kind

    return noting


_READS = ("__iter__", "__len__", "__eq__", "copy")
_BY_KEY = ("__getitem__", "__contains__", "get", "setdefault", "pop")


@_noting(*_READS, "keys", "values", "items", "popitem", by_key=_BY_KEY)
class _Dict(dict):  # type: ignore[type-arg]
    """A dictionary of which only what was in it before counts as read."""

    def __init__(self, value: Any) -> None:
        super().__init__(value)
        self.was_read = False
        self._old = set(value)

    def has_old(self, *key: Any) -> bool:
        return key[0] in self._old if key else bool(self._old)

    def give_back(self, original: dict[Any, Any]) -> None:
        original.clear()
        original.update(zip(dict.keys(self), dict.values(self), strict=True))

    def __setitem__(self, key: Any, value: Any) -> None:
        self._old.discard(key)
        super().__setitem__(key, value)


@_noting(*_READS, "__getitem__", "__contains__", "__reversed__", "pop", "index", "count")
class _List(list):  # type: ignore[type-arg]
    """A list of which anything read counts, since positions say nothing of when they were set."""

    was_read = False

    def has_old(self) -> bool:
        return True

    def give_back(self, original: list[Any]) -> None:
        original[:] = list.__iter__(self)


@_noting(*_READS, "__contains__", "pop")
class _Set(set):  # type: ignore[type-arg]
    """A set of which anything read counts."""

    was_read = False

    def has_old(self) -> bool:
        return True

    def give_back(self, original: set[Any]) -> None:
        original.clear()
        original.update(set.__iter__(self))
