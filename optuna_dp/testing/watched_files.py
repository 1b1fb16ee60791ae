"""Files that one run leaves and a later one reads: from Python's own audit events."""

from __future__ import annotations

import os
import sys
import sysconfig
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

# Nothing of a run: Python's own files, and what is no file.
_NOT_OURS = tuple(
    os.path.realpath(path) + os.sep
    for path in {
        *(sysconfig.get_path(name) for name in ("stdlib", "platstdlib")),
        "/proc",
        "/sys",
        "/dev",
    }
)
_PACKAGE = os.path.dirname(os.path.dirname(os.path.realpath(__file__))) + os.sep
_IGNORED = (".pyc", ".py", ".so")


def is_installed(path: str) -> bool:
    """Whether a file belongs to Python or to an installed package, this one included."""
    real = os.path.realpath(path)
    if {"site-packages", "dist-packages"} & set(real.split(os.sep)):
        return True
    return path.startswith("<frozen") or real.startswith((*_NOT_OURS, _PACKAGE))


class WatchedFiles:
    """Notes which files are read that were changed by a run before.

    Attributes:
        inherited: Files that a run has read as an earlier run left them.
    """

    def __init__(self) -> None:
        self.inherited: list[str] = []
        self._begun = time.time_ns()
        self._run_began = self._begun
        self._first: dict[str, bool] = {}  # whether this run's first use of a file replaced it
        self._written: set[str] = set()  # by this run
        self._left: set[str] = set()  # by runs before

    @contextmanager
    def run(self) -> Iterator[None]:
        """Watches one run."""
        self._left |= self._written
        self._run_began, self._first, self._written = time.time_ns(), {}, set()
        _install()
        _active.append(self)
        try:
            yield
        finally:
            _active.remove(self)

    def opened(self, path: str, *, replaces: bool, reads: bool, writes: bool) -> None:
        """Notes that a file is being opened."""
        first = self._first.setdefault(path, replaces)
        if reads and not first and path not in self.inherited and self._was_left(path):
            self.inherited.append(path)
        if writes:
            self._written.add(path)

    def _was_left(self, path: str) -> bool:
        if path in self._left:
            return True
        # What other languages write shows in the file's time only: changed since the check began,
        # but not by this run.
        try:
            return self._begun <= os.stat(path).st_mtime_ns < self._run_began
        except OSError:
            return False


_active: list[WatchedFiles] = []
_installed = threading.Lock()


def _install() -> None:
    # An audit hook cannot be taken out again; without anybody active it does nothing.
    if _installed.acquire(blocking=False):
        sys.addaudithook(_hook)


def _hook(event: str, arguments: tuple[Any, ...]) -> None:
    if not _active or event not in ("open", "sqlite3.connect"):
        return
    name = arguments[0]
    if not isinstance(name, str | bytes | os.PathLike):
        return
    path = os.path.realpath(os.fsdecode(name))
    if is_installed(path) or path.endswith(_IGNORED):
        return
    replaces, reads, writes = False, True, True
    if event == "open":
        mode, flags = arguments[1], arguments[2] if isinstance(arguments[2], int) else 0
        kind = flags & os.O_ACCMODE
        replaces = bool(flags & os.O_TRUNC) or (isinstance(mode, str) and mode[:1] in "wx")
        reads, writes = kind != os.O_WRONLY, kind != os.O_RDONLY
    for watcher in tuple(_active):
        watcher.opened(path, replaces=replaces, reads=reads, writes=writes)
