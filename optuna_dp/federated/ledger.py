"""The ledger of a client: each answer is written down before it leaves, and never forgotten.

A file that is only appended to: a line that says what it is, then a line of JSON for every answer
and for every other step that is taken once, each with a digest of itself and of the line before. A
lock makes "read, judge, write" one step, also for several processes on one node. Every file that
is not such lines, whole and in order, is refused: what cannot be seen is in
``docs/explanation/voting.md``.
"""

from __future__ import annotations

import contextlib
import datetime
import hashlib
import json
import os
import secrets
import stat
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from flwr.app import ConfigRecord, Context

from optuna_dp.accounting.event_json import event_from_json, event_to_json
from optuna_dp.accounting.kinds.skellam import SkellamDpEvent
from optuna_dp.federated.query import VoteRefusedError
from optuna_dp.json_records import Record, stored

_STATE = "optuna_dp_ledger"
_HEADER = {"format": "optuna-dp vote ledger", "version": 1}
_CHAIN = "digest"


def _vote_event(data: Any) -> SkellamDpEvent:
    event = event_from_json(data)
    if not isinstance(event, SkellamDpEvent):
        raise ValueError("the event is not that of a vote")
    return event


@dataclass(frozen=True)
class Step(Record):
    """One step of a secure sum that is taken once.

    Attributes:
        once: A name of what must not be done twice.
    """

    once: str

    @classmethod
    def refusal(cls, data: Any, why: str, fix: str = "") -> VoteRefusedError:
        """Returns the error for a line that is not one of a ledger."""
        return VoteRefusedError(f"the ledger is damaged: {why}")


@dataclass(frozen=True)
class Answer(Step):
    """One vote that was sent.

    Attributes:
        time: When, UTC, ISO 8601.
        run: Flower's number of the run.
        vote: The vote's name.
        query: A digest of the query.
        plan: A digest of the plan.
        attempts: How many attempts that has.
        event: What the answer costs.
        clients: How many clients were seen.
        server: What was thought of the server, see :class:`.VotePolicy`.
    """

    time: str
    run: int
    vote: str
    query: str
    plan: str
    attempts: int
    event: SkellamDpEvent = field(metadata=stored(write=event_to_json, read=_vote_event))
    clients: int
    server: str


def _step(data: dict[str, Any]) -> Step:
    return (Answer if "event" in data else Step).from_json(data)


def now() -> str:
    """Returns the time as ledgers have it."""
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")


Check = Callable[[Sequence[Answer]], None]


class Ledger(Protocol):
    """Where answers are written down."""

    def append(self, step: Step, check: Check | None = None, *, write: bool = True) -> None:
        """Writes an answer down if ``check`` of all answers, this one last, does not raise.

        Without ``write`` it is only looked whether it would be.

        Raises:
            VoteRefusedError: If the same was done before, or the ledger cannot be read.
        """


class StateLedger(Ledger):
    """Answers of one run, in its state: another run, or a restart, knows nothing of them."""

    def __init__(self, context: Context) -> None:
        self._context = context

    def append(self, step: Step, check: Check | None = None, *, write: bool = True) -> None:
        records = self._context.state.config_records
        lines: list[Any] = list(records.get(_STATE, ConfigRecord()).get("lines", []))  # type: ignore[arg-type]
        _check_all([_step(json.loads(line)) for line in lines], step, check)
        if write:
            lines.append(json.dumps(step.to_json()))
            records[_STATE] = ConfigRecord({"lines": lines})


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
            return _answers(_read(file)[0])

    def append(self, step: Step, check: Check | None = None, *, write: bool = True) -> None:
        if not os.path.lexists(self._path):
            self._create()
        with self._locked() as file:
            steps, last = _read(file)
            _check_all(steps, step, check)
            if not write:
                return
            end = os.lseek(file, 0, os.SEEK_END)
            try:
                _write(file, _line(last, step.to_json()))
            except OSError as error:
                os.ftruncate(file, end)  # a part of a line
                raise VoteRefusedError(f"the ledger cannot be written: {error}") from None

    def _create(self) -> None:
        """Makes a ledger without answers, at once and whole, unless another process just has."""
        draft = self._path.with_name(f"{self._path.name}.{secrets.token_hex(8)}")
        try:
            file = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            try:
                _write(file, _line(b"", _HEADER))
                with contextlib.suppress(FileExistsError):
                    os.link(draft, self._path)
            finally:
                os.close(file)
                os.unlink(draft)
            folder = os.open(self._path.parent, os.O_RDONLY)
            try:
                os.fsync(folder)
            finally:
                os.close(folder)
        except OSError as error:
            raise VoteRefusedError(f"the ledger cannot be made: {error}") from None

    @contextlib.contextmanager
    def _locked(self) -> Iterator[int]:
        import fcntl  # Lazy: Windows has none, and clients without a file do not need it.

        try:
            file = os.open(self._path, os.O_RDWR | os.O_CLOEXEC | os.O_NONBLOCK)
        except OSError as error:
            raise VoteRefusedError(f"the ledger cannot be opened: {error}") from None
        try:
            if not stat.S_ISREG(os.fstat(file).st_mode):
                raise VoteRefusedError(f"the ledger is no file: {self._path}")
            fcntl.flock(file, fcntl.LOCK_EX)
            yield file
        finally:
            os.close(file)


def _line(previous: bytes, record: dict[str, Any]) -> bytes:
    """A record as a line of the file, with the digest of it and of the line before."""
    text = json.dumps(record, sort_keys=True)
    digest = hashlib.sha256(previous + text.encode()).hexdigest()
    return json.dumps({**record, _CHAIN: digest}, sort_keys=True).encode() + b"\n"


def _read(file: int) -> tuple[list[Step], bytes]:
    """The steps in a file, and its last line; refuses every other file."""
    with os.fdopen(os.dup(file), "rb") as copy:
        copy.seek(0)
        lines = copy.read().splitlines(keepends=True)
    if not lines:
        raise VoteRefusedError(
            "the ledger is empty, and a new one is not: if nothing was answered yet, delete it"
        )
    if not lines[-1].endswith(b"\n"):
        raise VoteRefusedError(
            "the ledger's last line has no end: if the node crashed while it wrote, the answer "
            "did not leave, and the line can be removed; otherwise the ledger is damaged"
        )
    records, previous = [], b""
    for i, line in enumerate(lines):
        try:
            record = json.loads(line)
            del record[_CHAIN]
            if line != _line(previous, record):
                raise ValueError("it does not follow from the line before")
            if i == 0 and record != _HEADER:
                raise ValueError("it is not the first line of a ledger of this version")
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            raise VoteRefusedError(f"the ledger is damaged in line {i + 1}: {error!r}") from None
        records.append(record)
        previous = line
    return [_step(record) for record in records[1:]], previous


def _write(file: int, data: bytes) -> None:
    while data:
        data = data[os.write(file, data) :]
    os.fsync(file)


def _check_all(steps: Sequence[Step], step: Step, check: Check | None) -> None:
    if any(step.once == earlier.once for earlier in steps):
        raise VoteRefusedError("the server asks again for what this client has answered before")
    if check is not None:
        check(_answers([*steps, step]))


def _answers(steps: Sequence[Step]) -> list[Answer]:
    return [step for step in steps if isinstance(step, Answer)]
