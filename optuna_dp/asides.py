"""What is asked or done on the way and may be wrong without harm to a guarantee.

The files that a guarantee rests on import none of it: they ask here, by name, and the package's
front door puts the functions here. Each use says why no answer can do harm, and
``tests/test_asides.py`` gives the worst answers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

_functions: dict[str, Callable[..., Any]] = {}


def offer(what: str, function: Callable[..., Any]) -> None:
    """Sets the function that is asked."""
    _functions[what] = function


def aside(what: str, *question: Any, **options: Any) -> Any:
    """Asks; returns the answer."""
    return _functions[what](*question, **options)
