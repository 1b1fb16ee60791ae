"""Warnings of other libraries that say that a privacy guarantee does not hold."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def noting_privacy_warnings(texts: list[str]) -> Iterator[None]:
    """Notes warnings whose category names privacy, such as diffprivlib's ``PrivacyLeakWarning``.

    They are noted whatever filter hides them, and go on to where they would have gone.

    Args:
        texts: Each warning is put in here once, as "Category: text".
    """
    warn: Any = warnings.warn

    def noting(
        message: Any, category: Any = None, stacklevel: int = 1, *rest: Any, **more: Any
    ) -> Any:
        kind = type(message) if isinstance(message, Warning) else category
        name = getattr(kind, "__name__", "")
        text = f"{name}: {message}"
        if "privacy" in name.lower() and text not in texts:
            texts.append(text)
        return warn(message, category, stacklevel + 1, *rest, **more)

    warnings.warn = noting
    try:
        yield
    finally:
        warnings.warn = warn
