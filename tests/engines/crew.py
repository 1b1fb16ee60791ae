"""An engine of threads in this process whose workers can be made to die, or to seem dead."""

from __future__ import annotations

import threading
from concurrent.futures import Future
from typing import Any

from optuna_dp.distributed.engines import Engine, Task


class WorkerDied(Exception):
    """What this engine says of a worker that has died."""


class Crew(Engine):
    """Threads; a worker that "dies" never goes on, unless it is woken.

    Args:
        restarts: Start a lost task again, as Dask does, before its future says anything.
    """

    name = "crew"

    def __init__(self, *, restarts: bool = False) -> None:
        self.restarts = restarts
        self.started: list[tuple[str, int]] = []
        self.woken = threading.Event()
        self._threads: list[threading.Thread] = []
        self._mine = threading.local()

    def start(self, place: int, task: Task, ticket: bytes) -> Future[Any]:
        future: Future[Any] = Future()
        self._spawn(future, place, task, ticket)
        return future

    def _spawn(self, future: Future[Any], place: int, task: Task, ticket: bytes) -> None:
        self.started.append((task.__name__, place))

        def lost() -> None:
            if self.restarts:
                self.restarts = False
                self._spawn(future, place, task, ticket)
            else:
                future.set_exception(WorkerDied("the machine is gone"))

        def run() -> None:
            self._mine.lost = lost
            try:
                result = task(ticket)
            except BaseException as error:
                result = error
            if not getattr(self._mine, "dead", False):
                future.set_result(result)

        thread = threading.Thread(target=run, daemon=True)
        self._threads.append(thread)
        thread.start()

    def die(self) -> None:
        """Called by a worker: it is lost to the engine, and goes on only when woken."""
        self._mine.dead = True
        self._mine.lost()
        self.woken.wait()

    def host(self) -> str:
        return "127.0.0.1"

    def close(self) -> bool:
        return False

    def wake_the_dead(self) -> None:
        """Lets lost workers go on until they end."""
        self.woken.set()
        for thread in self._threads:
            thread.join()
