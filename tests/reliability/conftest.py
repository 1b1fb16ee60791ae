"""Servers and worker processes, started once per session."""

from __future__ import annotations

import multiprocessing
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import optuna
import pytest

from .storages import MariaDB, Postgres, opened, serve_grpc
from .workers import Job, Ledger, serve

_ANSWER_WITHIN = 300.0  # Seconds; a job takes one or two. Below the suite's limit for a test.

if sys.platform == "win32":  # The fork server makes workers cheap enough to kill by the hundred.
    collect_ignore_glob = ["test_*.py"]


@pytest.fixture(scope="session")
def forks() -> Any:
    """Forks workers from a clean process that has imported everything and opened nothing."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["reliability.workers", "optuna_dp.priors.surrogate"])
    return context


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    pytest.importorskip("psycopg")
    server = Postgres()
    yield server
    server.stop()


@pytest.fixture(scope="session")
def mariadb() -> Iterator[MariaDB]:
    pytest.importorskip("pymysql")
    missing = [name for name in MariaDB.NEEDED if shutil.which(name) is None]
    if missing:
        pytest.skip(f"MariaDB is not installed: {missing}. Try: apt-get install mariadb-server")
    server = MariaDB()
    yield server
    server.stop()


@contextmanager
def proxy_of(forks: Any, url: str) -> Iterator[str]:
    """Optuna's gRPC storage proxy in front of a storage, in a process of its own."""
    pytest.importorskip("grpc")
    # Not pytest's own directory: the path of a socket may have 107 characters only.
    folder = tempfile.mkdtemp(prefix="odp-grpc-")
    path = f"{folder}/socket"
    process = forks.Process(target=serve_grpc, args=(url, path), daemon=True)
    process.start()
    with opened(f"grpc:{path}") as storage:
        storage.wait_server_ready(timeout=300)  # type: ignore[attr-defined]
    yield f"grpc:{path}"
    process.kill()
    process.join()
    shutil.rmtree(folder)


@pytest.fixture(scope="session")
def proxy(forks: Any, postgres: Postgres) -> Iterator[str]:
    with proxy_of(forks, postgres.database()) as url:
        yield url


@pytest.fixture(scope="session")
def proxy_of_sqlite(forks: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with proxy_of(forks, f"sqlite:///{tmp_path_factory.mktemp('grpc') / 'studies.db'}") as url:
        yield url


@pytest.fixture(scope="session")
def url_of(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Callable[[str], str]:
    """Returns the URL of a storage of a kind: a new one, or the proxy that all tests share."""

    def url(kind: str) -> str:
        if kind == "postgresql":
            return str(request.getfixturevalue("postgres").database())
        if kind == "mariadb":
            return str(request.getfixturevalue("mariadb").database())
        if kind == "grpc":
            return str(request.getfixturevalue("proxy"))
        if kind == "grpc of sqlite":
            return str(request.getfixturevalue("proxy_of_sqlite"))
        path = tmp_path_factory.mktemp(kind) / "studies"
        return f"journal:{path}.log" if kind == "journal" else f"sqlite:///{path}.db"

    return url


class Crew:
    """Eight worker processes that stay."""

    def __init__(self, forks: Any, size: int, stacks: Path) -> None:
        self._workers: list[tuple[Any, Connection]] = []
        self._stacks = stacks
        for _ in range(size):
            mine, theirs = forks.Pipe()
            process = forks.Process(target=serve, args=(theirs, str(stacks)), daemon=True)
            process.start()
            theirs.close()
            self._workers.append((process, mine))

    def work(self, job: Job, workers: int) -> list[int]:
        """Has that many workers do the job at once; returns the numbers of all runs made."""
        return [number for number, _ in self.ledger(job, workers)]

    def ledger(self, job: Job, workers: int) -> Ledger:
        """Has that many workers do the job at once; returns what they noted.

        Every answer is read before anything is raised: one that is left would be taken for the
        answer to the next job, whose study would seem to have runs made twice, and others missing.
        """
        crew = self._workers[:workers]
        for _, connection in crew:
            connection.send(job)
        noted: Ledger = []
        failures: list[str] = []
        deadline = time.monotonic() + _ANSWER_WITHIN
        for _, connection in crew:
            if not connection.poll(max(0.0, deadline - time.monotonic())):
                stacks = self._where_they_are()
                self.dismiss()  # Nothing that it says from now on is an answer to a later job.
                raise AssertionError(f"{job} hangs:\n{stacks}")
            outcome, value = connection.recv()
            if outcome == "done":
                noted += value
            else:
                failures.append(value)
        assert not failures, failures[0]
        return noted

    def _where_they_are(self) -> str:
        for process, _ in self._workers:
            os.kill(process.pid, signal.SIGUSR1)
        time.sleep(2.0)
        return self._stacks.read_text()

    def dismiss(self) -> None:
        for process, connection in self._workers:
            connection.close()
            process.kill()
            process.join()


@pytest.fixture(scope="session")
def crew(forks: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Crew]:
    found = Crew(forks, 8, tmp_path_factory.mktemp("crew") / "stacks.txt")
    yield found
    found.dismiss()


@pytest.fixture
def diary(tmp_path: Path) -> Path:
    return tmp_path / "diary.txt"


@pytest.fixture(autouse=True)
def _no_experimental_warnings() -> None:
    optuna.logging.set_verbosity(optuna.logging.ERROR)
