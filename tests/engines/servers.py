"""Storage servers that can be killed."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from patience import within

from optuna_dp.polling import poll

TESTS = Path(__file__).resolve().parents[1]


def until(condition: Callable[[], bool]) -> None:
    poll(lambda: condition() or None, within())


@contextmanager
def proxy_server(folder: Path) -> Iterator[tuple[str, Callable[[], int]]]:
    """A storage behind a server that can be killed: its URL, and what (re)starts the server."""
    servers: list[subprocess.Popen[bytes]] = []
    short = Path(tempfile.mkdtemp(prefix="odp-"))  # Sockets have short names.
    behind, socket = f"sqlite:///{folder}/behind.db", str(short / "s")
    code = f"from reliability.storages import serve_grpc; serve_grpc({behind!r}, {socket!r})"

    def start() -> int:
        Path(socket).unlink(missing_ok=True)
        servers.append(subprocess.Popen([sys.executable, "-c", code], cwd=TESTS))
        until(lambda: Path(socket).exists())
        return servers[-1].pid

    try:
        yield f"grpc:{socket}", start
    finally:
        for server in servers:
            server.kill()
            server.wait()
        shutil.rmtree(short)
