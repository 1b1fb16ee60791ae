"""Warnings of other libraries that say that a privacy guarantee does not hold."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

# What such a warning says where its category is an ordinary one (InterpretML's DP-EBM). Others
# speak of privacy without harm: Opacus asks for more Renyi orders for "a tighter privacy bound".
_PHRASES = ("privacy violation", "privacy leak")


@contextmanager
def noting_privacy_warnings(texts: list[str]) -> Iterator[None]:
    """Notes warnings that a privacy guarantee does not hold.

    Their category names privacy, as diffprivlib's ``PrivacyLeakWarning`` does, or their text says
    so, as InterpretML's "Possible privacy violation". They are noted whatever filter hides them,
    and go on to where they would have gone.

    Args:
        texts: Each warning is put in here once, as "Category: text".
    """
    warn: Any = warnings.warn

    def noting(
        message: Any,
        category: Any = None,
        stacklevel: int = 1,
        *further_arguments: Any,
        **settings: Any,
    ) -> Any:
        kind = type(message) if isinstance(message, Warning) else category or UserWarning
        name = getattr(kind, "__name__", "")
        text = f"{name}: {message}"
        is_of_privacy = "privacy" in name.lower() or any(
            phrase in text.lower() for phrase in _PHRASES
        )
        if is_of_privacy and text not in texts:
            texts.append(text)
        return warn(message, category, stacklevel + 1, *further_arguments, **settings)

    _put(noting, in_place_of=warn)
    try:
        yield
    finally:
        _put(warn, in_place_of=noting)


def _put(function: Any, in_place_of: Any) -> None:
    """Replaces a function in every module that has it as ``warn``, ``warnings`` among them."""
    for module in list(sys.modules.values()):
        names = getattr(module, "__dict__", {})
        if names.get("warn") is in_place_of:
            names["warn"] = function
