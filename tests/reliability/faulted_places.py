"""Storages of faulted studies: where each is, and what may happen to it while workers run."""

from __future__ import annotations

import contextlib
import datetime
import os
import resource
import shutil
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import optuna
import sqlalchemy
from patience import within

import optuna_dp as odp
from optuna_dp.core.polling import poll
from optuna_dp.errors import InvalidArgumentError, OptunaDPError
from optuna_dp.study.torn_journals import mend_journal, torn_lines

from .checks import plan_of
from .storages import Postgres, opened, serve_grpc, session_name, sessions
from .workers import Fate

NAME = "s"  # of every study
_OF_FILES = ("none", "kill", "gone", "full disk", "deletion", "clock jump", "copy")
FAULTS = {
    "sqlite": _OF_FILES,
    "journal": _OF_FILES,
    # A full disk or a deleted file of a server is the server's, not the worker's.
    "grpc": tuple(f if f in ("none", "kill", "gone") else "kill" for f in _OF_FILES),
    "postgresql": (
        *("none", "kill", "gone", "deletion", "deleted study", "clock jump", "copy"),
        *("restart", "crash", "cut connections", "move"),
    ),
}
ENDS_IT = ("deletion", "deleted study")


class Servers:
    """What studies share, started when the first one needs it: a PostgreSQL server."""

    def __init__(self) -> None:
        self._postgres: Postgres | None = None
        self._tables = ""

    def postgres(self) -> Postgres:
        if self._postgres is None:
            self._postgres = Postgres()
            self._tables = self._postgres.database()
            with opened(self._tables):
                pass  # Optuna makes its tables, which takes seconds. Every study gets a copy.
        return self._postgres

    def database(self) -> str:
        return self.postgres().database(self._tables)

    def stop(self) -> None:
        if self._postgres is not None:
            self._postgres.stop()


@dataclass
class Place:
    """The storage of one study.

    Attributes:
        kind: A key of ``FAULTS``.
        at_worker: The URL by which workers open it.
        at_operator: The URL by which whoever operates it does.
        file: Its file, or that of a backup.
        postgres: The server, if it is a database of one.
    """

    kind: str
    at_worker: str
    at_operator: str
    file: Path
    postgres: Postgres | None = None

    def delete(self) -> None:
        """Deletes the whole storage."""
        if self.postgres is None:
            self.file.unlink(missing_ok=True)
        else:
            self.postgres.drop(self.at_worker)

    def copy(self) -> None:
        """Makes a copy, or a backup, while workers run."""
        if self.postgres is None:
            shutil.copy(self.file, self.file.with_suffix(".copy"))
        else:
            self.postgres.dump(self.at_worker, self.file)

    def move(self) -> None:
        """Has the study go on in a copy of a database that nobody uses any more."""
        assert self.postgres is not None
        old = self.at_worker
        self.await_sessions()
        if self.postgres.databases % 2:
            self.at_worker = self.at_operator = self.postgres.database(old)
        else:
            self.postgres.dump(old, self.file)
            self.at_worker = self.at_operator = self.postgres.restored(self.file)
        self.postgres.drop(old)

    def is_busy(self) -> bool:
        """Whether a server is being restarted."""
        return self.postgres is not None and self.postgres.is_restarting()

    def await_sessions(self) -> None:
        """Waits until a server is done with what dead workers had sent it."""
        if self.postgres is None:
            return
        own = session_name(os.getpid())
        with opened(self.at_operator) as storage:
            poll(
                lambda: (
                    not any(
                        name.startswith(session_name("")) and name != own
                        for name in sessions(storage)
                    )
                    or None
                ),
                within(),
            )

    def mark_the_dead(self) -> None:
        """Mends a torn journal and marks all open runs as failed, when no worker is alive."""
        if self.at_operator.startswith("journal:") and torn_lines(self.file.read_bytes()):
            mend_journal(self.file)
        self.await_sessions()
        with opened(self.at_operator) as storage:
            study = optuna.load_study(study_name=NAME, storage=storage)
            # A worker of a dead call may end its run, or begin one, until it has seen the death.
            poll(lambda: _all_failed(study) or None, within())

    def reading_of_backup(self, release: Callable[[optuna.Study], Any]) -> str:
        """Restores the last backup, if there is one; returns what was raised by reading it.

        Nothing is run there: the study itself goes on.
        """
        if self.postgres is None or not self.file.exists():
            return ""
        url = self.postgres.restored(self.file)
        try:
            with opened(url) as storage:
                study = optuna.load_study(study_name=NAME, storage=storage)
                odp.recover(study, fail=[trial.number for trial in odp.recover(study)])
                # Without a plan nothing had begun.
                with contextlib.suppress(OptunaDPError):
                    if plan_of(study) is not None:
                        release(study)
        except Exception as error:
            return f"raw {type(error).__name__}: {error} in a backup"
        finally:
            self.postgres.drop(url)
        return ""


def _all_failed(study: optuna.Study) -> bool:
    """Marks all open trials as failed; returns False if one ended or began meanwhile."""
    try:
        return odp.recover(study, fail=[trial.number for trial in odp.recover(study)]) == []
    except InvalidArgumentError:
        return False


@dataclass
class Fault(Fate):
    """Something that happens to a worker at its n-th step."""

    kind: str = "none"
    place: Place | None = None

    def tick(self, before: bool) -> None:
        if before:
            self.seen += 1
        if self.seen != self.step or before != self.before:
            return
        self.happen()

    def happen(self) -> None:
        place = self.place
        assert place is not None
        if self.kind == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        elif self.kind == "gone":
            cause = sqlalchemy.exc.OperationalError("UPDATE", {}, Exception("gone away"))
            raise optuna.exceptions.StorageInternalError("An exception is raised") from cause
        elif self.kind == "deletion":
            place.delete()
        elif self.kind == "deleted study":
            with opened(place.at_operator) as storage, contextlib.suppress(KeyError):
                optuna.delete_study(study_name=NAME, storage=storage)  # Unless another has.
        elif self.kind == "copy":
            place.copy()
        elif self.kind == "clock jump":
            jump_by((self.step or 0) * (-1) ** (self.step or 0))
        elif self.kind in ("restart", "crash"):
            assert place.postgres is not None
            place.postgres.restart({"restart": "fast", "crash": "immediate"}[self.kind])
        elif self.kind == "cut connections":
            assert place.postgres is not None
            place.postgres.cut_connections(place.at_worker)


def jump_by(months: int) -> None:
    """Lets every later look at the clock, Optuna's too, be off by so many months."""
    offset = datetime.timedelta(days=30 * months)
    now = time.time
    time.time = lambda: now() + offset.total_seconds()

    class Jumped(datetime.datetime):
        @classmethod
        def now(cls, tz: Any = None) -> Any:
            return datetime.datetime.fromtimestamp(time.time(), tz)

    for name, module in list(sys.modules.items()):
        if name.startswith("optuna") and getattr(module, "datetime", None) is datetime.datetime:
            module.datetime = Jumped  # type: ignore[attr-defined]


def fill_disk(file: Path, free_bytes: int) -> None:
    """Lets files of this process grow by so many bytes, and a database by so many pages."""
    resource.setrlimit(
        resource.RLIMIT_FSIZE, (file.stat().st_size + free_bytes, resource.RLIM_INFINITY)
    )

    def limit(connection: Any, _: Any) -> None:
        (pages,) = connection.execute("PRAGMA page_count").fetchone()
        connection.execute(f"PRAGMA max_page_count = {pages + free_bytes // 4096}")

    sqlalchemy.event.listen(sqlalchemy.engine.Engine, "connect", limit)


def forked(call: Callable[..., None], *arguments: Any) -> int:
    """Calls something in a process of its own, which ends with the call; returns its number."""
    pid = os.fork()
    if not pid:
        try:
            call(*arguments)
        finally:
            os._exit(1)
    return pid


@contextmanager
def new_place(kind: str, folder: Path, servers: Servers) -> Iterator[Place]:
    """A new storage with an empty study."""
    with ExitStack() as stack:
        if kind == "postgresql":
            url = servers.database()
            place = Place(kind, url, url, folder / "backup.sql", servers.postgres())
            stack.callback(lambda: servers.postgres().drop(place.at_worker))
        elif kind == "journal":
            file = folder / "s.log"
            place = Place(kind, f"journal:{file}", f"journal:{file}", file)
        else:
            file = folder / "s.db"
            url = f"sqlite:///{file}"
            at_worker = url
            if kind == "grpc":
                at_worker = stack.enter_context(_proxy_of(url, folder / "socket"))
            place = Place(kind, at_worker, url, file)
        with opened(place.at_operator) as storage:
            optuna.create_study(storage=storage, study_name=NAME, direction="maximize")
        yield place


@contextmanager
def _proxy_of(url: str, socket: Path) -> Iterator[str]:
    server = forked(serve_grpc, url, str(socket))
    poll(lambda: socket.exists() or None, within())
    try:
        yield f"grpc:{socket}"
    finally:
        os.kill(server, signal.SIGKILL)
        os.waitpid(server, 0)
