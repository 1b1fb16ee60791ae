"""One way to go wrong."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Case:
    """A way to go wrong.

    Attributes:
        what: What the user did.
        do: Does it; raises.
        then: What it means and what to do, where the message leaves a question.
    """

    what: str
    do: Callable[[], Any]
    then: str = ""
