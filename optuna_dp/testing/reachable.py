"""The variables of a program that an objective can reach, and that outlive its runs."""

from __future__ import annotations

import dis
import functools
import inspect
from collections.abc import Callable, Iterator
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any, NamedTuple

from optuna_dp.testing.watched_files import is_installed

_LOADS = ("LOAD_GLOBAL", "LOAD_NAME", "LOAD_DEREF", "LOAD_ATTR", "LOAD_METHOD")
_STORES = ("STORE_GLOBAL", "STORE_NAME", "STORE_DEREF", "STORE_ATTR")


class Variable(NamedTuple):
    """A variable that outlives a run.

    Attributes:
        name: As a person would say it.
        put: Sets it; None if it cannot be set.
        read_first: Whether the code may read it before setting it.
    """

    name: str
    get: Callable[[], Any]
    put: Callable[[Any], None] | None
    read_first: bool


class Reachable:
    """What an objective's code can reach.

    Attributes:
        variables: Globals, closures, and attributes of objects, of the user's own code.
        cached: Functions of the user's own that keep results (``functools.cache``), with names;
            those that take no argument load something once, and are left out.
    """

    def __init__(self, objective: Any) -> None:
        self.variables: list[Variable] = []
        self.cached: list[tuple[str, Any]] = []
        self._codes: list[CodeType] = []
        self._seen: set[int] = set()
        self._later: list[Callable[[], None]] = []
        self._visit(objective, "the objective")
        # Whether code reads a variable first is known only when all code has been seen.
        for make in self._later:
            make()

    def _visit(self, value: Any, name: str) -> None:
        """Looks at what a variable holds, if that is code or an object of the user's own."""
        if id(value) in self._seen or isinstance(value, ModuleType):
            return
        self._seen.add(id(value))
        if isinstance(value, functools.partial):
            for part in (value.func, *value.args, *value.keywords.values()):
                self._visit(part, name)
            for key in value.keywords:
                self._item(value.keywords, key, f"{name}({key}=)")
        elif isinstance(value, MethodType):
            self._visit(value.__func__, name)
            self._visit(value.__self__, name)
        elif isinstance(value, FunctionType):
            if not is_installed(value.__code__.co_filename):
                self._function(value)
        elif hasattr(value, "cache_info") and hasattr(value, "__wrapped__"):
            if not is_installed(value.__wrapped__.__code__.co_filename):
                self._visit(value.__wrapped__, name)
                if inspect.signature(value).parameters:
                    self.cached.append((f"the results kept by {name}", value))
        elif _is_of_the_user(type(value)) or (isinstance(value, type) and _is_of_the_user(value)):
            self._object(value, name)

    def _function(self, function: FunctionType) -> None:
        self._codes.append(function.__code__)
        names = set(_names_in(function.__code__))
        for name in sorted(names & set(function.__globals__)):
            self._item(function.__globals__, name, name)
            self._visit(function.__globals__[name], name)
        cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
        for name, cell in cells:
            try:
                value = cell.cell_contents
            except ValueError:  # not set yet
                continue
            get, put = _access(cell, "cell_contents")
            self._variable(name, get, put, name)
            self._visit(value, name)
        for name, value in inspect.signature(function).parameters.items():
            if isinstance(value.default, dict | list | set):
                self._variable(name, functools.partial(_itself, value.default), None, name)

    def _object(self, value: Any, name: str) -> None:
        kind = value if isinstance(value, type) else type(value)
        for part in vars(kind).values():
            inner = getattr(part, "__func__", getattr(part, "fget", part))
            # What sets an object up has run before the first run.
            if isinstance(inner, FunctionType) and inner.__name__ != "__init__":
                self._visit(inner, name)
        for attribute in sorted(vars(value) if hasattr(value, "__dict__") else ()):
            if attribute.startswith("__") or isinstance(vars(value)[attribute], FunctionType):
                continue
            get, put = _access(value, attribute)
            self._variable(f"{name}.{attribute}", get, put, attribute)
            self._visit(vars(value)[attribute], f"{name}.{attribute}")

    def _item(self, place: dict[str, Any], key: str, name: str) -> None:
        self._variable(name, lambda: place[key], lambda new: place.__setitem__(key, new), key)

    def _variable(
        self, name: str, get: Callable[[], Any], put: Callable[[Any], None] | None, bare: str
    ) -> None:
        def make() -> None:
            if all(v.name != name for v in self.variables):
                self.variables.append(Variable(name, get, put, self._read_first(bare)))

        self._later.append(make)

    def _read_first(self, name: str) -> bool:
        """Whether some code reads a variable before it sets it, the objective's own code first."""
        for code in self._codes:
            for nested in _codes_in(code):
                uses = [i.opname for i in dis.get_instructions(nested) if i.argval == name]
                uses = [use for use in uses if use in (*_LOADS, *_STORES)]
                if uses:
                    return uses[0] in _LOADS
        return False


def _access(owner: Any, name: str) -> tuple[Callable[[], Any], Callable[[Any], None]]:
    return functools.partial(getattr, owner, name), functools.partial(setattr, owner, name)


def _itself(value: Any) -> Any:
    return value


def _is_of_the_user(kind: type) -> bool:
    if kind.__module__ == "builtins":
        return False
    try:
        file = inspect.getfile(kind)
    except (TypeError, OSError):
        return kind.__module__ == "__main__"
    return not is_installed(file)


def _codes_in(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _codes_in(constant)


def _names_in(code: CodeType) -> Iterator[str]:
    for nested in _codes_in(code):
        yield from nested.co_names
