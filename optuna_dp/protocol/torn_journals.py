"""Journal files with torn lines, as a full disk leaves them.

A line that could not be written whole stays where it is, and the next one is glued to it. Optuna
passes over a torn last line, and reads no further than a torn line that others follow: no worker
has ever read what stands in it. So a line that is no record is no part of the study. Leaving it
out gives the study that workers have seen, and every record that was written after it.
"""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import dataclass
from pathlib import Path

from optuna_dp.errors import InvalidArgumentError
from optuna_dp.optuna_internals import journal_lock


@dataclass(frozen=True)
class MendedJournal:
    """What was done to a journal file.

    Attributes:
        dropped: The numbers of the lines that were left out, from 1.
        lines: How many lines the file had.
        copy: The file as it was; None if nothing was changed.
    """

    dropped: tuple[int, ...]
    lines: int
    copy: Path | None


def torn_lines(content: bytes) -> tuple[int, ...]:
    """Returns the numbers of the lines of a journal that are no records, from 1."""
    lines = content.splitlines(keepends=True)
    return tuple(number for number, line in enumerate(lines, start=1) if not _is_record(line))


def mend_journal(path: str | Path) -> MendedJournal:
    """Leaves out the torn lines of a journal file; keeps a copy of it beside it.

    No worker may have the file open: each remembers how far it has read.

    Guarantees:
        * The lines that are left are the same, in the same order.
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
        raise InvalidArgumentError("path", str(path), "there is no such file")
    with journal_lock(str(file)):
        content = file.read_bytes()
        lines = content.splitlines(keepends=True)
        torn = torn_lines(content)
        if not torn:
            return MendedJournal((), len(lines), None)
        if len(torn) == len(lines):
            raise InvalidArgumentError("path", str(path), "no line of it is a record of a journal")
        copy = _free_name(file)
        shutil.copy2(file, copy)
        sound = [line for number, line in enumerate(lines, start=1) if number not in set(torn)]
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
    return MendedJournal(torn, len(lines), copy)


def _is_record(line: bytes) -> bool:
    if not line.endswith(b"\n"):
        return False  # Optuna reads no line without an end.
    try:
        record = json.loads(line)
    except ValueError:
        return False
    return isinstance(record, dict) and "op_code" in record


def _free_name(file: Path) -> Path:
    number = 1
    while (name := file.with_name(f"{file.name}.torn-{number}")).exists():
        number += 1
    return name
