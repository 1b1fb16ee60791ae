"""What a client has answered: written down before the answer leaves, and never forgotten.

One line of JSON for every answer, in a file that is only appended to. A lock makes "read, judge,
write" one step, also for several processes on one node. A line that a crash cut off was never
followed by an answer and is passed over; any other damage is refused.
"""

from __future__ import annotations

import contextlib
import datetime
import json
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from flwr.app import ConfigRecord, Context

from optuna_dp.accounting.event_json import event_from_json, event_to_json
from optuna_dp.accounting.kinds.skellam import SkellamDpEvent
from optuna_dp.errors import OptunaDPError
from optuna_dp.federated.policy import VoteRefusedError

_STATE = "optuna_dp_ledger"
_VERSION = 1


@dataclass(frozen=True)
class Answer:
    """One vote that was sent, or one help to open a sum.

    Attributes:
        time: When, UTC, ISO 8601.
        run: Flower's number of the run.
        search: A digest of the candidates and of k.
        event: What it costs; None for opening a sum, which is a part of the vote's cost.
        clients: How many clients were seen.
        server: What was thought of the server, see :class:`.VotePolicy`.
        once: A name of what must not be answered twice.
    """

    time: str
    run: int
    search: str
    event: SkellamDpEvent | None
    clients: int
    server: str
    once: str

    def to_line(self) -> str:
        """Returns one line of text."""
        event = None if self.event is None else event_to_json(self.event)
        return json.dumps({**vars(self), "event": event, "version": _VERSION}, sort_keys=True)

    @classmethod
    def from_line(cls, line: str) -> Answer:
        """Reads what :meth:`to_line` wrote; refuses anything else."""
        try:
            data = json.loads(line)
            if data.pop("version") != _VERSION:
                raise ValueError("it is of another version")
            if data["event"] is not None:
                data["event"] = event_from_json(data["event"])
                if not isinstance(data["event"], SkellamDpEvent):
                    raise ValueError("it is no vote")
            return cls(**data)
        except (ValueError, TypeError, KeyError, AttributeError, OptunaDPError) as error:
            raise VoteRefusedError(f"the ledger is damaged: {error!r}") from None


def now() -> str:
    """Returns the time as ledgers have it."""
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")


def events_of(answers: Sequence[Answer]) -> list[SkellamDpEvent]:
    """Returns what was paid for."""
    return [answer.event for answer in answers if answer.event is not None]


Check = Callable[[Sequence[Answer]], None]


class Ledger(Protocol):
    """Where answers are written down."""

    def append(self, answer: Answer, check: Check, *, write: bool = True) -> None:
        """Writes an answer down if ``check`` of all answers, this one last, does not raise.

        Without ``write`` it is only looked whether it would be.

        Raises:
            VoteRefusedError: If the same was answered before, or the ledger cannot be read.
        """


class StateLedger(Ledger):
    """Answers of one run, in its state: another run, or a restart, knows nothing of them."""

    def __init__(self, context: Context) -> None:
        self._context = context

    def append(self, answer: Answer, check: Check, *, write: bool = True) -> None:
        records = self._context.state.config_records
        lines: list[Any] = list(records.get(_STATE, ConfigRecord()).get("lines", []))  # type: ignore[arg-type]
        check(_read_all(lines, answer))
        if not write:
            return
        records[_STATE] = ConfigRecord({"lines": [*lines, answer.to_line()]})


class FileLedger(Ledger):
    """Answers of a node, in a file that outlives runs, apps and restarts."""

    def __init__(self, path: str | Path) -> None:
        self._path = Path(path)

    def answers(self) -> list[Answer]:
        """Returns what was answered so far; nothing if there is no file yet.

        Raises:
            VoteRefusedError: If the file is damaged.
        """
        if not self._path.exists():
            return []
        with self._locked() as file:
            return [Answer.from_line(line) for line in _complete_lines(file)]

    def append(self, answer: Answer, check: Check, *, write: bool = True) -> None:
        with self._locked() as file:
            lines = _complete_lines(file)
            check(_read_all(lines, answer))
            if not write:
                return
            end = sum(len(line) + 1 for line in (text.encode() for text in lines))
            os.ftruncate(file, end)  # what a crash has cut off was never followed by an answer
            os.lseek(file, end, os.SEEK_SET)
            data = answer.to_line().encode() + b"\n"
            while data:
                data = data[os.write(file, data) :]
            os.fsync(file)

    @contextlib.contextmanager
    def _locked(self) -> Iterator[int]:
        import fcntl  # Windows has none, and clients without a file do not need it.

        is_new = not self._path.exists()
        try:
            file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise VoteRefusedError(f"the ledger cannot be opened: {error}") from None
        try:
            fcntl.flock(file, fcntl.LOCK_EX)
            if is_new:
                folder = os.open(self._path.parent, os.O_RDONLY)
                try:
                    os.fsync(folder)
                finally:
                    os.close(folder)
            yield file
        finally:
            os.close(file)


def _complete_lines(file: int) -> list[str]:
    with os.fdopen(os.dup(file), "rb") as copy:
        copy.seek(0)
        whole, _, _ = copy.read().rpartition(b"\n")
    try:
        return whole.decode().split("\n") if whole else []
    except UnicodeDecodeError as error:
        raise VoteRefusedError(f"the ledger is damaged: {error}") from None


def _read_all(lines: Sequence[str], answer: Answer) -> list[Answer]:
    answers = [Answer.from_line(line) for line in lines]
    if any(answer.once == earlier.once for earlier in answers):
        raise VoteRefusedError("this very question was answered before")
    return [*answers, answer]
