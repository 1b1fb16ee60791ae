"""Parts of Python's syntax that hints at a source look at."""

from __future__ import annotations

import ast
from collections.abc import Iterable


def called(call: ast.Call) -> str:
    """Returns the last part of the name that is called."""
    function = call.func
    if isinstance(function, ast.Attribute):
        return function.attr
    return function.id if isinstance(function, ast.Name) else ""


def in_words(lines: list[int]) -> str:
    """Returns line numbers in words, five at most."""
    return f"line{'s' if len(lines) > 1 else ''} {', '.join(map(str, lines[:5]))}"


def nodes_in(parts: Iterable[ast.AST]) -> set[ast.AST]:
    """Returns all nodes of parts of a tree."""
    return {node for part in parts for node in ast.walk(part)}


def axis_of(call: ast.Call) -> int | None:
    """Returns the axis that ``x.max(1)`` or ``np.max(x, axis=1)`` name; None if none.

    Of several axes it is the first one.
    """
    in_place = 1 if _is_of_a_library(call) else 0
    # The next argument of a quantile is which one it is.
    arguments = [] if "tile" in called(call) else call.args[in_place : in_place + 1]
    for node in (*(k.value for k in call.keywords if k.arg in {"axis", "dim"}), *arguments):
        try:
            axis = ast.literal_eval(node)
        except ValueError:
            continue
        axis = axis[0] if isinstance(axis, tuple) and axis else axis
        if isinstance(axis, int):
            return axis
    return None


def _is_of_a_library(call: ast.Call) -> bool:
    return (
        isinstance(call.func, ast.Attribute)
        and isinstance(call.func.value, ast.Name)
        and call.func.value.id in {"np", "numpy", "torch", "jnp", "tf"}
    )
