"""Journal files with torn lines, as a full disk leaves them.

A record that could not be written whole stays where it is, and the next one is glued to it. Optuna
passes over a torn last line, and reads no further than a torn line that others follow.

The torn part is no part of the study: whoever wrote it was told so, and nobody has read it. The
record behind it is one that another worker wrote whole. That worker could not read it either, but
went on as if it had been written, up to its next record. So it is kept: the file is then the one
that there had been if the torn part had never been written. Without it the study would hold what
its worker did next, and not what it rests on, such as how a hyperparameter was drawn.

Where a record begins in a torn line is no guess. A record is an object of JSON, and what comes
before it is the beginning of another. Such a beginning ends within a string, lacks its closing
brace, or is an object by itself. So nothing that begins before the record and ends with the line
is one JSON object.
"""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import dataclass
from pathlib import Path

from optuna_dp.core.optuna_internals import journal_lock
from optuna_dp.errors import InvalidArgumentError


@dataclass(frozen=True)
class MendedJournal:
    """What was done to a journal file.

    Attributes:
        dropped: The numbers of the lines of which nothing was left, from 1.
        cut: The numbers of the lines of which the record at their end was kept, from 1.
        lines: How many lines the file had.
        copy: The file as it was; None if nothing was changed.
    """

    dropped: tuple[int, ...]
    cut: tuple[int, ...]
    lines: int
    copy: Path | None


def torn_lines(content: bytes) -> tuple[int, ...]:
    """Returns the numbers of the lines of a journal that are no records, from 1."""
    lines = content.splitlines(keepends=True)
    return tuple(number for number, line in enumerate(lines, start=1) if not _is_record(line))


def mend_journal(path: str | Path) -> MendedJournal:
    """Leaves out what is torn in a journal file; keeps a copy of it beside it.

    No worker may have the file open: each remembers how far it has read.

    Guarantees:
        * Every record that was written whole is left, in the same order.
        * The file is replaced in one step, and not touched if all its lines are records.

    Args:
        path: The journal file of an ``optuna.storages.journal.JournalFileBackend``.

    Returns:
        What was done.

    Raises:
        InvalidArgumentError: If there is no such file, or no line of it is a record of a journal.
        OSError: If the disk cannot hold the copy.
    """
    file = Path(path)
    if not file.is_file():
        raise InvalidArgumentError("path", str(path), problem="there is no such file")
    with journal_lock(str(file)):
        content = file.read_bytes()
        lines = content.splitlines(keepends=True)
        torn = torn_lines(content)
        if not torn:
            return MendedJournal((), (), len(lines), None)
        if len(torn) == len(lines):
            raise InvalidArgumentError(
                "path", str(path), problem="no line of it is a record of a journal"
            )
        copy = _free_name(file)
        shutil.copy2(file, copy)
        sound = [line if _is_record(line) else _record_at_end(line) for line in lines]
        repaired_file = file.with_name(f"{file.name}.mended")
        try:
            with repaired_file.open("wb") as stream:
                stream.writelines(sound)
                stream.flush()
                os.fsync(stream.fileno())
            shutil.copymode(file, repaired_file)
            repaired_file.replace(file)
        finally:
            repaired_file.unlink(missing_ok=True)
    return MendedJournal(
        dropped=tuple(number for number in torn if not sound[number - 1]),
        cut=tuple(number for number in torn if sound[number - 1]),
        lines=len(lines),
        copy=copy,
    )


def _is_record(line: bytes) -> bool:
    if not line.endswith(b"\n"):
        return False  # Optuna reads no line without an end.
    try:
        record = json.loads(line)
    except ValueError:
        return False
    return isinstance(record, dict) and "op_code" in record


def _record_at_end(line: bytes) -> bytes:
    """Returns the whole record with which a torn line ends; nothing if there is none."""
    start = line.find(b"{")
    while start >= 0 and not _is_json(line[start:]):
        start = line.find(b"{", start + 1)
    record = line[start:] if start >= 0 else b""
    # An object inside of a record is none.
    return record if _is_record(record) else b""


def _is_json(content: bytes) -> bool:
    try:
        json.loads(content)
    except ValueError:
        return False
    return True


def _free_name(file: Path) -> Path:
    number = 1
    while (name := file.with_name(f"{file.name}.torn-{number}")).exists():
        number += 1
    return name
