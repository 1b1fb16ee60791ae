"""Losses and models that name the records themselves."""

from __future__ import annotations

import dis
import functools
import inspect
from collections.abc import Callable, Iterable, Iterator

from optuna_dp.training.record_arrays import is_array, is_same


def named_records(
    functions: Iterable[Callable[..., object]], holders: Iterable[object]
) -> str | None:
    """Returns by what name a function reaches the records; None if it is not seen to.

    A loss gets its record as an argument. One that names all records may use another one, by
    mistake. It may also use their shape only, which is no harm.

    Args:
        functions: Losses, scores, and the ``forward`` of models.
        holders: The arrays or data sets of the records.
    """
    holders = list(holders)
    for function in functions:
        for name, value in _values(function):
            for path, inner in ((name, value), *_attributes(name, value)):
                if any(is_same(inner, holder) for holder in holders):
                    return path
    return None


def _values(function: object) -> Iterator[tuple[str, object]]:
    """Yields what a function holds or names, by name."""
    if isinstance(function, functools.partial):
        yield from ((f"argument {index}", value) for index, value in enumerate(function.args))
        yield from function.keywords.items()
        function = function.func
    if inspect.ismethod(function):
        yield "self", function.__self__
        function = function.__func__
    if not inspect.isfunction(function):
        yield type(function).__name__, function
        return
    code, defaults = function.__code__, function.__defaults__ or ()
    for name, cell in zip(code.co_freevars, function.__closure__ or (), strict=True):
        try:
            yield name, cell.cell_contents
        except ValueError:  # Empty.
            continue
    keyword_defaults = (function.__kwdefaults__ or {}).values()
    yield from (("a default", value) for value in (*defaults, *keyword_defaults))
    for instruction in dis.get_instructions(code):
        if instruction.opname == "LOAD_GLOBAL" and instruction.argval in function.__globals__:
            yield instruction.argval, function.__globals__[instruction.argval]


def _attributes(name: str, value: object) -> Iterator[tuple[str, object]]:
    if is_array(value) or inspect.ismodule(value) or isinstance(value, type):
        return
    if isinstance(value, dict):
        yield from ((f"{name}[{key!r}]", inner) for key, inner in value.items())
    elif isinstance(value, list | tuple) and len(value) < 16:
        yield from ((f"{name}[{index}]", inner) for index, inner in enumerate(value))
    else:
        attributes = getattr(value, "__dict__", {})
        yield from ((f"{name}.{key}", inner) for key, inner in attributes.items())
