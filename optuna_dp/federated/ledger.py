"""The ledger of a client: each answer is written down before it leaves, and never forgotten.

A file that is only appended to: a line that says what it is, then a line of JSON for every answer,
each with a digest of itself and of the line before. A lock makes "read, judge, write" one step,
also for several processes on one node. Every file that is not such lines, whole and in order, is
refused: what cannot be seen is in ``docs/explanation/voting.md``.

Beside it lies a small file of the latest set-ups of secure sums, and of what was done in each: a
client takes each step of a set-up once. A server may ask for any number of set-ups, and the file
does not grow with them. The steps of a set-up that is not in the file are refused, so its loss
costs nothing but the sums that are under way.
"""

from __future__ import annotations

import contextlib
import datetime
import hashlib
import json
import os
import secrets
import stat
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from flwr.app import ConfigRecord, Context

from optuna_dp.accounting.event_json import event_from_json, event_to_json
from optuna_dp.accounting.kinds.skellam import SkellamDpEvent
from optuna_dp.core.json_entries import Entry, stored
from optuna_dp.federated.query import VoteRefusedError

_STATE = "optuna_dp_ledger"
_SET_UPS_STATE = "optuna_dp_set_ups"
_HEADER = {"format": "optuna-dp vote ledger", "version": 1}
_CHAIN = "digest"
# Set-ups that are remembered, the latest. A client is in one at a time, or in a few where several
# runs use one ledger at once.
MOST_SET_UPS = 64
_NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC


def _vote_event(data: object) -> SkellamDpEvent:
    event = event_from_json(data)
    if not isinstance(event, SkellamDpEvent):
        raise ValueError("the event is not that of a vote")
    return event


@dataclass(frozen=True)
class Answer(Entry):
    """One vote that was sent.

    Attributes:
        once: A name of the sum that it is in: no other answer of the ledger has it.
        time: When, UTC, ISO 8601.
        run: Flower's number of the run.
        vote: The vote's name.
        query: A digest of the query.
        plan: A digest of the plan.
        attempts: How many attempts that has.
        event: What the answer costs.
        clients: How many clients were seen.
        share_units: Variance of one client's share of the noise, in units of 2^-24.
        server: What was thought of the server, see :class:`.VotePolicy`.
    """

    once: str
    time: str
    run: int
    vote: str
    query: str
    plan: str
    attempts: int
    event: SkellamDpEvent = field(metadata=stored(write=event_to_json, read=_vote_event))
    clients: int
    share_units: int
    server: str

    @classmethod
    def refusal(cls, data: object, reason: str, fix: str = "") -> VoteRefusedError:
        """Returns the error for a line that is not one of a ledger."""
        return VoteRefusedError(f"the ledger is damaged: {reason}")


def now() -> str:
    """Returns the time as ledgers have it."""
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")


# Raises VoteRefusedError if it does not allow these answers, the last of which is to be written.
Check = Callable[[Sequence[Answer]], None]

# The steps that were taken in each of the latest set-ups, by the name of the set-up.
SetUps = dict[str, list[str]]


class Ledger(Protocol):
    """Where answers are written down."""

    def append(self, answer: Answer, check: Check, *, write: bool = True) -> None:
        """Writes an answer down if ``check`` of all answers, this one last, does not raise.

        Without ``write`` it is only looked whether it would be.

        Raises:
            VoteRefusedError: If the same was answered before, or the ledger cannot be read.
        """

    def begin(self, set_up: str) -> None:
        """Writes down that a set-up of a secure sum has begun; the oldest one is forgotten.

        Raises:
            VoteRefusedError: If it cannot be written.
        """

    def take(self, set_up: str, step: str) -> None:
        """Writes down a step of a set-up, which is taken once.

        Raises:
            VoteRefusedError: If it was taken before, or the set-up is not one of the latest.
        """


class StateLedger(Ledger):
    """Answers of one run, in its state: another run, or a restart, knows nothing of them."""

    def __init__(self, context: Context) -> None:
        self._context = context

    def append(self, answer: Answer, check: Check, *, write: bool = True) -> None:
        records = self._context.state.config_records
        lines: list[Any] = list(records.get(_STATE, ConfigRecord()).get("lines", []))  # type: ignore[arg-type]
        _check_all([Answer.from_json(json.loads(line)) for line in lines], answer, check)
        if write:
            lines.append(json.dumps(answer.to_json()))
            records[_STATE] = ConfigRecord({"lines": lines})

    def begin(self, set_up: str) -> None:
        self._write(begun(self._set_ups(), set_up))

    def take(self, set_up: str, step: str) -> None:
        self._write(taken(self._set_ups(), set_up, step))

    def _set_ups(self) -> SetUps:
        record = self._context.state.config_records.get(_SET_UPS_STATE)
        return set_ups_in("" if record is None else str(record["text"]))

    def _write(self, set_ups: SetUps) -> None:
        record = ConfigRecord({"text": json.dumps(set_ups)})
        self._context.state.config_records[_SET_UPS_STATE] = record


class FileLedger(Ledger):
    """Answers of a node, in a file that outlives runs, apps and restarts."""

    def __init__(self, path: str | Path) -> None:
        self._path = Path(path)
        self._set_ups_path = self._path.with_name(f"{self._path.name}.set-ups")

    def answers(self) -> list[Answer]:
        """Returns what was answered so far; nothing if there is no file yet.

        Raises:
            VoteRefusedError: If the file is damaged.
        """
        if not self._path.exists():
            return []
        with self._locked() as file:
            return _read(file)[0]

    def append(self, answer: Answer, check: Check, *, write: bool = True) -> None:
        with self._locked(create=True) as file:
            answers, last_line = _read(file)
            _check_all(answers, answer, check)
            if not write:
                return
            end = os.lseek(file, 0, os.SEEK_END)
            try:
                _write(file, _line(last_line, answer.to_json()))
            except OSError as error:
                os.ftruncate(file, end)  # a part of a line
                raise VoteRefusedError(f"the ledger cannot be written: {error}") from None

    def begin(self, set_up: str) -> None:
        with self._locked(create=True):
            self._write_set_ups(begun(self._set_ups(), set_up))

    def take(self, set_up: str, step: str) -> None:
        with self._locked(create=True):
            self._write_set_ups(taken(self._set_ups(), set_up, step))

    def _set_ups(self) -> SetUps:
        try:
            return set_ups_in(self._set_ups_path.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return {}

    def _write_set_ups(self, set_ups: SetUps) -> None:
        """Replaces the file at once: a crash leaves the old one or the new one."""
        draft = self._draft(self._set_ups_path)
        try:
            file = os.open(draft, _NEW_FILE, 0o600)
            try:
                _write(file, json.dumps(set_ups).encode())
            finally:
                os.close(file)
            os.replace(draft, self._set_ups_path)
        except OSError as error:
            draft.unlink(missing_ok=True)
            raise VoteRefusedError(f"the ledger's set-ups cannot be written: {error}") from None

    @staticmethod
    def _draft(path: Path) -> Path:
        return path.with_name(f"{path.name}.{secrets.token_hex(8)}")

    def _create(self) -> None:
        """Makes a ledger without answers, at once and whole, unless another process just has."""
        draft = self._draft(self._path)
        try:
            file = os.open(draft, _NEW_FILE, 0o600)
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
    def _locked(self, *, create: bool = False) -> Iterator[int]:
        import fcntl  # Lazy: Windows has none, and clients without a file do not need it.

        if create and not os.path.lexists(self._path):
            self._create()
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


def _line(previous: bytes, record: Mapping[str, object]) -> bytes:
    """A record as a line of the file, with the digest of it and of the line before."""
    text = json.dumps(record, sort_keys=True)
    digest = hashlib.sha256(previous + text.encode()).hexdigest()
    return json.dumps({**record, _CHAIN: digest}, sort_keys=True).encode() + b"\n"


def _read(file: int) -> tuple[list[Answer], bytes]:
    """The answers in a file, and its last line; refuses every other file."""
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
    return [Answer.from_json(record) for record in records[1:]], previous


def _write(file: int, data: bytes) -> None:
    while data:
        data = data[os.write(file, data) :]
    os.fsync(file)


def _check_all(answers: Sequence[Answer], answer: Answer, check: Check) -> None:
    if any(answer.once == stored_answer.once for stored_answer in answers):
        raise VoteRefusedError("the server asks again for what this client has answered before")
    check([*answers, answer])


def begun(set_ups: SetUps, name: str) -> SetUps:
    """Returns the latest set-ups with a new one, in which nothing was done."""
    return dict([*set_ups.items(), (name, [])][-MOST_SET_UPS:])


def taken(set_ups: SetUps, name: str, step: str) -> SetUps:
    """Returns the set-ups with a step of one.

    Raises:
        VoteRefusedError: If it was taken before, or the set-up is not among them.
    """
    steps = set_ups.get(name)
    if steps is None:
        raise VoteRefusedError(
            "the message is of a secure sum that is not one of this client's latest "
            f"{MOST_SET_UPS}"
        )
    if step in steps:
        raise VoteRefusedError("the server asks again for what this client has answered before")
    return {**set_ups, name: [*steps, step]}


def set_ups_in(text: str) -> SetUps:
    """Returns the set-ups in a text; none if the text is damaged.

    What is not remembered is refused, so a text that is damaged costs nothing but the sums that
    are under way.
    """
    try:
        data = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    if not isinstance(data, dict) or not all(map(_are_steps, data.values())):
        return {}
    return data


def _are_steps(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(step, str) for step in value)
