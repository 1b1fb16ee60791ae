"""Real storages by URL, for workers in other processes."""

from __future__ import annotations

import shutil
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import optuna
from optuna.storages import BaseStorage, JournalStorage, RDBStorage
from optuna.storages._cached_storage import _CachedStorage
from optuna.storages.journal import JournalFileBackend, JournalFileOpenLock

KINDS = ("sqlite", "journal", "postgresql", "grpc")


def open_storage(url: str, heartbeat: int | None = None) -> BaseStorage:
    """Opens a storage; ``journal:PATH`` and ``grpc:PORT`` besides what Optuna takes."""
    kind, _, rest = url.partition(":")
    if kind == "journal":
        # A lock whose holder was killed is taken over after three quiet seconds (30 by default).
        return JournalStorage(JournalFileBackend(rest, JournalFileOpenLock(rest, grace_period=3)))
    if kind == "grpc":
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            return optuna.storages.GrpcStorageProxy(host="127.0.0.1", port=int(rest))
    options: dict[str, Any] = {}
    if kind.startswith("postgresql"):
        options = {"pool_pre_ping": True, "pool_size": 12}
    elif kind == "sqlite":
        options = {"connect_args": {"timeout": 60}}
    if heartbeat is None:
        return _CachedStorage(RDBStorage(url, engine_kwargs=options))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        return _CachedStorage(
            RDBStorage(
                url, engine_kwargs=options, heartbeat_interval=heartbeat, grace_period=heartbeat
            )
        )


@contextmanager
def opened(url: str, heartbeat: int | None = None) -> Iterator[BaseStorage]:
    """A storage whose connections are closed afterwards."""
    storage = open_storage(url, heartbeat)
    try:
        yield storage
    finally:
        if isinstance(storage, _CachedStorage):
            storage._backend.scoped_session.remove()
            storage._backend.engine.dispose()
        elif isinstance(storage, optuna.storages.GrpcStorageProxy):
            storage.close()


class Postgres:
    """A PostgreSQL server of its own on a unix socket, in a temporary directory."""

    def __init__(self) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # platformdirs remarks on the environment.
            import pgserver

            self._directory = Path(tempfile.mkdtemp(prefix="odp-pg-"))
            self._directory.chmod(0o755)
            self._pgserver = pgserver
            self._server = pgserver.get_server(self._directory / "data", cleanup_mode="delete")
        self.databases = 0

    def database(self) -> str:
        """Returns the URL of a new, empty database."""
        self.databases += 1
        name = f"study{self.databases}"
        self._server.psql(f"CREATE DATABASE {name};")
        uri = self._server.get_uri(name)
        return uri.replace("postgresql://", "postgresql+psycopg://")

    def restart(self) -> None:
        """Stops the server at once, cutting all connections, and starts it again."""
        data = self._directory / "data"
        user = self._server.system_user
        self._pgserver.pg_ctl(["-w", "-m", "fast", "restart"], pgdata=data, user=user)

    def stop(self) -> None:
        self._server.cleanup()
        shutil.rmtree(self._directory, ignore_errors=True)


def serve_grpc(url: str, port: int) -> None:
    """Runs Optuna's storage proxy until killed."""
    from concurrent.futures import ThreadPoolExecutor

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        optuna.storages.run_grpc_proxy_server(
            open_storage(url), host="127.0.0.1", port=port, thread_pool=ThreadPoolExecutor(16)
        )


@contextmanager
def free_port() -> Iterator[int]:
    import socket

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        number = int(probe.getsockname()[1])
    yield number
