"""What a check reports."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Finding:
    """Something that an objective does and should not.

    Attributes:
        name: Of the kind of fault, two or three words.
        what: What was seen.
        change: What to write instead.
        certain: Whether it has to be changed; otherwise it is a hint to look at.
        about: What it is about, where there may be several of a kind.
    """

    name: str
    what: str
    change: str
    certain: bool = True
    about: str = ""

    def __str__(self) -> str:
        return f"{self.name}: {self.what}\n      Instead: {self.change}"
