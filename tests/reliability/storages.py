"""Real storages by URL, for workers in other processes."""

from __future__ import annotations

import fcntl
import os
import pwd
import shutil
import subprocess
import tempfile
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import optuna
import sqlalchemy
from optuna.storages import BaseStorage, JournalStorage, RDBStorage
from optuna.storages._cached_storage import _CachedStorage
from optuna.storages.journal import JournalFileBackend
from optuna.storages.journal._file import BaseJournalFileLock
from patience import within

from optuna_dp.core.polling import poll

KINDS = ("sqlite", "journal", "postgresql", "grpc")


class KernelLock(BaseJournalFileLock):
    """A journal's lock that the kernel takes back from a dead holder, and from nobody else.

    Optuna's own are taken over after quiet seconds: from a holder that was only slow, too.
    """

    def __init__(self, path: str) -> None:
        self._path = f"{path}.flock"
        self._held = threading.local()

    def __reduce__(self) -> tuple[Any, ...]:
        return (KernelLock, (self._path.removesuffix(".flock"),))

    def acquire(self) -> bool:
        self._held.file = os.open(self._path, os.O_RDWR | os.O_CREAT)
        fcntl.flock(self._held.file, fcntl.LOCK_EX)
        return True

    def release(self) -> None:
        os.close(self._held.file)


def session_name(pid: int | str) -> str:
    """What a worker's sessions at PostgreSQL are called."""
    return f"worker {pid}"


def open_storage(url: str, heartbeat: int | None = None) -> BaseStorage:
    """Opens a storage; ``journal:PATH`` and ``grpc:SOCKET`` besides what Optuna takes."""
    kind, _, rest = url.partition(":")
    if kind == "journal":
        return JournalStorage(JournalFileBackend(rest, KernelLock(rest)))
    if kind == "grpc":
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            return optuna.storages.GrpcStorageProxy(**grpc_address(rest))
    options: dict[str, Any] = {}
    if kind.startswith("postgresql"):
        arguments = {"application_name": session_name(os.getpid())}
        options = {"pool_pre_ping": True, "pool_size": 12, "connect_args": arguments}
    elif kind.startswith("mysql"):
        options = {"pool_pre_ping": True, "pool_size": 12}
    elif kind == "sqlite":
        # SQLite serves whoever asks at the right moment: on a slow disk that may take long.
        options = {"connect_args": {"timeout": 240}}
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


def sessions(storage: BaseStorage) -> set[str]:
    """Names of the sessions that a PostgreSQL server has; nothing of other storages.

    A session outlives its killed client for as long as its last statement takes.
    """
    if not isinstance(storage, _CachedStorage):
        return set()
    engine = storage._backend.engine
    if engine.name != "postgresql":
        return set()
    with engine.connect() as connection:
        names = sqlalchemy.text("SELECT application_name FROM pg_stat_activity")
        return set(connection.execute(names).scalars())


def name_of(url: str) -> str:
    """The name of the database in a URL of SQLAlchemy's."""
    name = sqlalchemy.make_url(url).database
    assert name is not None
    return name


class Postgres:
    """A PostgreSQL server of its own on a unix socket, in a temporary directory."""

    def __init__(self) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # platformdirs remarks on the environment.
            import pgserver
            from pgserver import postgres_server

            start = postgres_server.pg_ctl

            def patiently(arguments: list[str], timeout: float, **options: Any) -> Any:
                return start(["-t", "300", *arguments], **options)  # pgserver waits 10 seconds

            self._directory = Path(tempfile.mkdtemp(prefix="odp-pg-"))
            self._directory.chmod(0o755)
            self._pgserver = pgserver
            # Two at once would both want to add the user under which the server runs.
            lock = KernelLock(str(Path(tempfile.gettempdir()) / "odp-pg"))
            lock.acquire()
            try:
                with mock.patch.object(postgres_server, "pg_ctl", patiently):
                    self._server = pgserver.get_server(
                        self._directory / "data", cleanup_mode="delete"
                    )
            finally:
                lock.release()
        self.databases = 0

    def database(self, template: str | None = None) -> str:
        """Returns the URL of a new database: an empty one, or a copy of one that nobody uses."""
        self.databases += 1
        name = f"study{self.databases}"
        source = "" if template is None else f" TEMPLATE {name_of(template)}"
        self._server.psql(f"CREATE DATABASE {name}{source};")
        uri = self._server.get_uri(name)
        return uri.replace("postgresql://", "postgresql+psycopg://")

    def drop(self, url: str) -> None:
        """Drops a database, cutting the connections to it; nothing if it is gone."""
        self._server.psql(f"DROP DATABASE IF EXISTS {name_of(url)} WITH (FORCE);")

    def cut_connections(self, url: str) -> None:
        """Ends all sessions at a database, as an administrator or a firewall may."""
        self._server.psql(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
            f"WHERE datname = '{name_of(url)}';"
        )

    def dump(self, url: str, file: Path) -> None:
        """Writes a backup of a database that may be in use; none if the server ends meanwhile."""
        command = [self._program("pg_dump"), self._server.get_uri(name_of(url))]
        written = subprocess.run(command, capture_output=True, check=False)
        if written.returncode == 0:
            file.write_bytes(written.stdout)

    def restored(self, file: Path) -> str:
        """Returns the URL of a new database with what a backup holds."""
        url = self.database()
        uri = self._server.get_uri(name_of(url))
        command = [self._program("psql"), "-q", "-v", "ON_ERROR_STOP=1", "-f", str(file), uri]
        subprocess.run(command, stdout=subprocess.DEVNULL, check=True)
        return url

    def restart(self, mode: str = "fast") -> None:
        """Stops the server, cutting all connections, and starts it again.

        Args:
            mode: "fast", or "immediate": it is ended in the midst, as in a crash.
        """
        data = self._directory / "data"
        user = self._server.system_user
        # Two at once would find each other's server half started.
        lock = KernelLock(str(self._directory / "restarts"))
        lock.acquire()
        try:
            self._pgserver.pg_ctl(
                ["-w", "-t", "300", "-m", mode, "restart"], pgdata=data, user=user
            )
        finally:
            lock.release()

    def is_restarting(self) -> bool:
        """Whether somebody is restarting the server now."""
        with (self._directory / "restarts.flock").open("w") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return True
        return False

    def _program(self, name: str) -> str:
        return str(Path(self._pgserver.__file__).parent / "pginstall" / "bin" / name)

    def stop(self) -> None:
        self._server.cleanup()
        shutil.rmtree(self._directory, ignore_errors=True)


class MariaDB:
    """A MariaDB server of its own on a unix socket, in a temporary directory."""

    NEEDED = ("mariadb-install-db", "mariadbd", "mariadb")

    def __init__(self) -> None:
        self._directory = Path(tempfile.mkdtemp(prefix="odp-maria-"))
        self._socket = self._directory / "socket"
        data = f"--datadir={self._directory / 'data'}"
        # As the user who runs the tests: no service is started, no port is opened.
        user = f"--user={pwd.getpwuid(os.getuid()).pw_name}"
        with (self._directory / "log").open("w") as log:
            subprocess.run(
                [
                    "mariadb-install-db",
                    "--no-defaults",
                    user,
                    data,
                    "--skip-test-db",
                    "--auth-root-authentication-method=normal",
                ],
                check=True,
                stdout=log,
                stderr=log,
            )
            self._server = subprocess.Popen(
                [
                    "mariadbd",
                    "--no-defaults",
                    user,
                    data,
                    f"--socket={self._socket}",
                    "--skip-networking",
                    "--max-connections=300",
                ],
                stdout=log,
                stderr=log,
            )
        poll(self._is_ready, within(said=self._log))
        self.databases = 0

    def _log(self) -> str:
        return (self._directory / "log").read_text()

    def _is_ready(self) -> bool | None:
        assert self._server.poll() is None, self._log()
        return self._socket.exists() or None

    def database(self) -> str:
        """Returns the URL of a new, empty database."""
        self.databases += 1
        name = f"study{self.databases}"
        client = ["mariadb", "--no-defaults", f"--socket={self._socket}", "--user=root"]
        subprocess.run([*client, f"--execute=CREATE DATABASE {name}"], check=True)
        return f"mysql+pymysql://root@localhost/{name}?unix_socket={self._socket}"

    def stop(self) -> None:
        self._server.kill()
        self._server.wait()
        shutil.rmtree(self._directory, ignore_errors=True)


def grpc_address(socket: str) -> dict[str, Any]:
    """A unix socket as Optuna's two arguments: no port that another program could have taken."""
    return {"host": "unix", "port": socket}


def serve_grpc(url: str, socket: str) -> None:
    """Runs Optuna's storage proxy until killed."""
    from concurrent.futures import ThreadPoolExecutor

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        optuna.storages.run_grpc_proxy_server(
            open_storage(url), thread_pool=ThreadPoolExecutor(16), **grpc_address(socket)
        )
