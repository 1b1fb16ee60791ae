"""Warnings of other libraries that say that a privacy guarantee does not hold."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager

# What such a warning says where its category is an ordinary one (InterpretML's DP-EBM). Others
# speak of privacy without harm: Opacus asks for more Renyi orders for "a tighter privacy bound".
_PHRASES = ("privacy violation", "privacy leak")


@contextmanager
def noting_privacy_warnings(texts: list[str]) -> Iterator[None]:
    """Notes warnings that a privacy guarantee does not hold, whatever filter was set before.

    Their category names privacy, as diffprivlib's ``PrivacyLeakWarning`` does, or their text says
    so, as InterpretML's "Possible privacy violation". No warning is shown meanwhile.

    Args:
        texts: Each warning is put in here once, as "Category: text".
    """
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            yield
        finally:
            for warning in caught:
                name = warning.category.__name__
                text = f"{name}: {warning.message}"
                is_of_privacy = "privacy" in name.lower() or any(
                    phrase in text.lower() for phrase in _PHRASES
                )
                if is_of_privacy and text not in texts:
                    texts.append(text)
