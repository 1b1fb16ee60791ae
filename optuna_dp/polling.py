"""Waiting for another worker."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

_FIRST_PAUSE = 0.005
_LONGEST_PAUSE = 1.0


class Clock:
    """Time as waiting knows it; tests put another one in :data:`clock`."""

    def now(self) -> float:
        """Returns seconds since some moment."""
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        """Lets that many seconds pass."""
        time.sleep(seconds)


clock = Clock()


def poll(
    read: Callable[[], T | None],
    *,
    timeout: float | None,
    on_pause: Callable[[float], None] | None = None,
) -> T | None:
    """Calls ``read`` until it returns something, at growing intervals.

    Args:
        read: Returns None for "not yet".
        timeout: Seconds after which None is returned; None waits without an end.
        on_pause: Called before each pause with the seconds waited so far.
    """
    start = clock.now()
    pause = _FIRST_PAUSE
    while True:
        found = read()
        if found is not None:
            return found
        waited = clock.now() - start
        if timeout is not None and waited >= timeout:
            return None
        if on_pause is not None:
            on_pause(waited)
        clock.sleep(pause if timeout is None else min(pause, timeout - waited))
        pause = min(1.5 * pause, _LONGEST_PAUSE)
