"""A test ends: pytest-timeout acts only once, and a test that waits again would wait for ever.

A minute after its limit the process of such a test is ended, with the stacks of its threads.
"""

from __future__ import annotations

import faulthandler
import os
import threading
from collections.abc import Iterator

import pytest

_GRACE = 60.0
_stderr = pytest.StashKey[int]()


def pytest_configure(config: pytest.Config) -> None:
    """Remembers where errors are printed while nothing is captured."""
    config.stash[_stderr] = os.dup(2)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    def end() -> None:
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
