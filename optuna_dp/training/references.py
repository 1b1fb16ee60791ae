"""Losses and models that name the records themselves."""

from __future__ import annotations

import dis
import functools
import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping

from optuna_dp.training.record_arrays import is_array, is_same


def named_records(
    functions: Iterable[Callable[..., object]], holders: Iterable[object]
) -> str | None:
    """Returns by what name a function reaches the records; None if it is not seen to.

    A loss gets its record as an argument. One that names all records may use another one, by
    mistake. It may also use their shape only, which is no harm.

    Args:
        functions: Losses, scores, the ``forward`` of models, and what makes an optimizer.
        holders: The arrays or data sets of the records.
    """
    holders = list(holders)
    for function in (each for named in functions for each in _with_methods(named)):
        words = _words(function)
        for name, value in _values(function):
            for path, inner in ((name, value), *_attributes(name, value, words)):
                if any(is_same(inner, holder) for holder in holders):
                    return path
    return None


def _with_methods(function: object) -> Iterator[object]:
    """Yields a function, and the methods of classes that it names, such as optimizers."""
    yield function
    for _, value in _values(function):
        if isinstance(value, type) and not value.__module__.startswith("torch"):
            yield from filter(inspect.isfunction, vars(value).values())


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


def _words(function: object) -> set[str] | None:
    """Returns names and texts in a function's code and in the methods that it names.

    None if there is no code to read.
    """
    function = function.func if isinstance(function, functools.partial) else function
    owner = type(getattr(function, "__self__", None))
    code = getattr(getattr(function, "__func__", function), "__code__", None)
    if code is None:
        return None
    words, pending = set[str](), [code]
    while pending:
        code = pending.pop()
        texts = {value for value in code.co_consts if isinstance(value, str)}
        pending += [value for value in code.co_consts if inspect.iscode(value)]
        new_words = {*code.co_names, *texts} - words
        words |= new_words
        methods = [getattr(owner, word, None) for word in new_words]
        pending += [method.__code__ for method in methods if inspect.isfunction(method)]
    return words


def _attributes(name: str, value: object, words: set[str] | None) -> Iterator[tuple[str, object]]:
    """Yields what a value holds, by name; of its attributes those that the code names."""
    if is_array(value) or inspect.ismodule(value) or isinstance(value, type):
        return
    if isinstance(value, list | tuple):
        few = value if len(value) < 16 else ()
        yield from ((f"{name}[{index}]", inner) for index, inner in enumerate(few))
        return
    is_mapping = isinstance(value, dict)
    attributes: Mapping[object, object] = getattr(value, "__dict__", {})
    if isinstance(value, dict):
        attributes = value
    for key, inner in attributes.items():
        if words is None or not isinstance(key, str) or key in words:
            yield (f"{name}[{key!r}]" if is_mapping else f"{name}.{key}"), inner
