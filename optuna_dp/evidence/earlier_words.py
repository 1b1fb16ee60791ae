"""Words of statements that this version of optuna-dp had before, so that these stay verifiable.

The words of a statement are a part of its JSON. When they are improved within one version, a
statement with the old ones is still true, and :func:`optuna_dp.verify` says that they are older.
A digest says nothing of the numbers: these are computed again in any case.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any

# The digests of `digest_of_words`. Those of the promises until November 2026, before they said by
# what each run is held.
_EARLIER = frozenset(
    {
        "3e919c991dba989a3986eb0da2d9037d",  # "assumptions" of a budget
        "8a4c19a0a29717ee7a790442fc7e9142",  # "assumptions" of a private selection
    }
)


def is_earlier(key: str, procedure: str, value: Any) -> bool:
    """Returns whether a statement's words are those of an earlier wording.

    Args:
        key: The key of the statement, such as "assumptions".
        procedure: The procedure of the statement's design.
        value: The words as the statement has them, JSON values.
    """
    return digest_of_words(key, procedure, value) in _EARLIER


def digest_of_words(key: str, procedure: str, value: Any) -> str:
    """Returns the digest by which earlier words are known."""
    text = json.dumps([key, procedure, value], separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:32]
