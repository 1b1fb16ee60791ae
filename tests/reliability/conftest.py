"""Servers and worker processes, started once per session."""

from __future__ import annotations

import multiprocessing
import sys
import time
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import optuna
import pytest

from .storages import Postgres, free_port, opened, serve_grpc
from .workers import Job, serve

_ANSWER_WITHIN = 120.0

if sys.platform == "win32":  # The fork server makes workers cheap enough to kill by the hundred.
    collect_ignore_glob = ["test_*.py"]


@pytest.fixture(scope="session")
def forks() -> Any:
    """Forks workers from a clean process that has imported everything and opened nothing."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["reliability.workers", "optuna_dp.densities.surrogate"])
    return context


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    pytest.importorskip("psycopg")
    server = Postgres()
    yield server
    server.stop()


@pytest.fixture(scope="session")
def proxy(forks: Any, postgres: Postgres) -> Iterator[str]:
    """Optuna's gRPC storage proxy in front of PostgreSQL, in a process of its own."""
    pytest.importorskip("grpc")
    with free_port() as port:
        process = forks.Process(target=serve_grpc, args=(postgres.database(), port), daemon=True)
        process.start()
    with opened(f"grpc:{port}") as storage:
        storage.wait_server_ready(timeout=60)  # type: ignore[attr-defined]
    yield f"grpc:{port}"
    process.kill()
    process.join()


@pytest.fixture(scope="session")
def url_of(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Callable[[str], str]:
    """Returns the URL of a new storage of a kind."""

    def url(kind: str) -> str:
        if kind == "postgresql":
            return str(request.getfixturevalue("postgres").database())
        if kind == "grpc":
            return str(request.getfixturevalue("proxy"))
        path = tmp_path_factory.mktemp(kind) / "studies"
        return f"journal:{path}.log" if kind == "journal" else f"sqlite:///{path}.db"

    return url


class Crew:
    """Eight worker processes that stay."""

    def __init__(self, forks: Any, size: int) -> None:
        self._workers: list[tuple[Any, Connection]] = []
        for _ in range(size):
            mine, theirs = forks.Pipe()
            process = forks.Process(target=serve, args=(theirs,), daemon=True)
            process.start()
            theirs.close()
            self._workers.append((process, mine))

    def work(self, job: Job, workers: int) -> list[int]:
        """Has that many workers do the job at once; returns the numbers of all runs made."""
        crew = self._workers[:workers]
        for _, connection in crew:
            connection.send(job)
        executed: list[int] = []
        deadline = time.monotonic() + _ANSWER_WITHIN
        for _, connection in crew:
            assert connection.poll(max(0.0, deadline - time.monotonic())), f"{job} hangs"
            outcome, value = connection.recv()
            assert outcome == "done", value
            executed += value
        return executed

    def dismiss(self) -> None:
        for process, connection in self._workers:
            connection.close()
            process.kill()
            process.join()


@pytest.fixture(scope="session")
def crew(forks: Any) -> Iterator[Crew]:
    found = Crew(forks, 8)
    yield found
    found.dismiss()


@pytest.fixture
def diary(tmp_path: Path) -> Path:
    return tmp_path / "diary.txt"


@pytest.fixture(autouse=True)
def _no_experimental_warnings() -> None:
    optuna.logging.set_verbosity(optuna.logging.ERROR)
