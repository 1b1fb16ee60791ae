"""A fact of a privacy statement: its name, what is said, and who stands for it.

A release's JSON holds facts, the page shows them one a row, and :func:`optuna_dp.verify` makes
them again from the rest of the file and compares them. What a reader has to ask a person follows
from a fact's :class:`Status`, never from its words: these may be the curator's own.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import ClassVar

from optuna_dp.core.json_entries import Entry, stored


class Status(enum.Enum):
    """Who stands for a fact."""

    ENFORCED = "enforced"
    """The software did it or computed it, or would have refused the release."""
    COMPARED = "compared"
    """Code of the curator's did a part. The software did or compared the rest."""
    NOT_CHECKED = "not checked"
    """The guarantee depends on it, and only the curator's word says it."""
    STATED = "stated"
    """The curator said it of the data or of the setting."""
    NOT_STATED = "not stated"
    """Nobody said it."""


class Part(enum.Enum):
    """The part of the page that shows a fact."""

    DATA = "data"
    """Whose records, how many, and what the numbers mean."""
    RUNS = "runs"
    """What touched the records."""
    CHOICE = "choice"
    """How the choice was made."""
    PUBLICATION = "publication"
    """What may be shown to whom."""
    CHECK = "check"
    """Who checked the number."""


def weakest(statuses: Iterable[Status]) -> Status:
    """Returns the status of what several statuses are true of: the last in the enum's order."""
    return max(statuses, key=list(Status).index)


@dataclass(frozen=True)
class Fact(Entry):
    """One thing that a statement says.

    Attributes:
        name: The heading of its row, unique in a statement.
        value: What is said, as Markdown on one line. Words of the curator's in it are escaped
            (:func:`optuna_dp.evidence.layout.escaped`). None if nothing is said.
        status: Who stands for it.
        part: Where the page shows it.
    """

    described_as: ClassVar[str] = "A fact of the statement"

    name: str
    value: str | None
    status: Status = field(metadata=stored(write=lambda status: status.value, read=Status))
    part: Part = field(
        default=Part.CHOICE, metadata=stored(write=lambda part: part.value, read=Part)
    )

    @property
    def text(self) -> str:
        """What the page says in the fact's row."""
        if self.status is Status.NOT_STATED:
            return f"not stated: {self.value}" if self.value else _NOT_STATED
        return f"vouched for: {self.value}" if self.status is Status.STATED else str(self.value)


_NOT_STATED = "not stated by the curator (optuna_dp.describe)"


def enforced(values: dict[str, str], part: Part = Part.CHOICE) -> list[Fact]:
    """Returns facts that the software stands for, from their values by name."""
    return [Fact(name, value, Status.ENFORCED, part) for name, value in values.items()]


def stated(name: str, value: str | None, part: Part = Part.DATA) -> Fact:
    """Returns what the curator said, or the fact that nothing was said."""
    return Fact(name, value, Status.STATED if value else Status.NOT_STATED, part)


def last_of_each(facts: Iterable[Fact]) -> tuple[Fact, ...]:
    """Returns facts by name: a later one takes the place of an earlier one."""
    return tuple({fact.name: fact for fact in facts}.values())
