"""Hooks to code that no guarantee depends on: attacks, the bounds of others, pages, entries.

The package's front door registers the functions. What a guarantee depends on imports none of
them: it calls them by name, and shows their results beside a guarantee.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

functions: dict[str, Callable[..., Any]] = {}


def register(name: str, function: Callable[..., Any]) -> None:
    """Sets the function of a hook."""
    functions[name] = function


def call_optional(name: str, /, *arguments: Any, **options: Any) -> Any:
    """Calls the function of a hook and returns its result."""
    return functions[name](*arguments, **options)
