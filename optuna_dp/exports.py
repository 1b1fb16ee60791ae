"""What is made of a finished result for other tools: pages of notebooks, entries of registries.

The classes that a guarantee rests on offer these as methods, and import none of it: the package's
front door puts the functions here. An error in them can print a wrong page and never change a
guarantee.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

_makers: dict[str, Callable[..., str]] = {}


def offer(kind: str, maker: Callable[..., str]) -> None:
    """Sets the function that makes one kind of export."""
    _makers[kind] = maker


def export(kind: str, result: Any, **options: Any) -> str:
    """Returns the export of a result; the options are the maker's own."""
    return _makers[kind](result, **options)
