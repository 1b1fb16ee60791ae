"""Parts of Python's syntax that hints at a source look at."""

from __future__ import annotations

import ast


def called(call: ast.Call) -> str:
    """Returns the last part of the name that is called."""
    function = call.func
    if isinstance(function, ast.Attribute):
        return function.attr
    return function.id if isinstance(function, ast.Name) else ""


def in_words(lines: list[int]) -> str:
    """Returns line numbers in words, five at most."""
    return f"line{'s' if len(lines) > 1 else ''} {', '.join(map(str, lines[:5]))}"
