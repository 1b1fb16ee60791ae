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
    reader: Callable[[], T | None], on_pause: Callable[[float], None] = lambda waited: None
) -> T:
    """Calls ``reader`` until it returns something, at growing intervals and without an end.

    Args:
        reader: Returns None for "not yet".
        on_pause: Called before each pause with the seconds waited so far; may raise.
    """
    start = clock.now()
    pause = _FIRST_PAUSE
    while (answer := reader()) is None:
        on_pause(clock.now() - start)
        clock.sleep(pause)
        pause = min(1.5 * pause, _LONGEST_PAUSE)
    return answer
