"""A test ends: pytest-timeout acts only once, and a test that waits again would wait for ever.

A minute after its limit the process of such a test is ended, with the stacks of its threads.
Another process then takes the tests of the file; the one that waited fails there at once.
"""

from __future__ import annotations

import faulthandler
import hashlib
import os
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

_GRACE = 60.0
_stderr = pytest.StashKey[int]()


def pytest_configure(config: pytest.Config) -> None:
    """Remembers where errors are printed while nothing is captured."""
    config.stash[_stderr] = os.dup(2)


def _note_of(item: pytest.Item) -> Path:
    """A file that is there if the test ended its process in this run of all tests."""
    run = getattr(item.config, "workerinput", {}).get("testrunuid", os.getpid())
    name = hashlib.sha256(f"{run} {item.nodeid}".encode()).hexdigest()
    return Path(tempfile.gettempdir(), f"waited-{name}")


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    note = _note_of(item)
    if note.exists():
        note.unlink()
        pytest.fail("it waited beyond its limit, and its process was ended", pytrace=False)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    def end() -> None:
        _note_of(item).touch()
        faulthandler.dump_traceback(item.config.stash[_stderr])
        os._exit(1)

    limit = item.config.getoption("timeout") or float(item.config.getini("timeout"))
    timer = threading.Timer(limit + _GRACE, end)
    timer.daemon = True
    timer.start()
    try:
        return (yield)
    finally:
        timer.cancel()
