"""An engine whose workers are threads of this process, and may die."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from concurrent.futures import Future
from typing import Any

from optuna_dp.distributed.workers import Engine, Failure, work


class Death(BaseException):
    """Raised by an objective, it is the death of the worker: nothing is told to anybody."""


class Threads(Engine):
    """Starts a thread for each worker; restarts those that die, if told so."""

    def __init__(self, workers: int, options: dict[str, Any]) -> None:
        self._restarts = options.get("restarts", 0)

    def start(self, packed: Mapping[str, bytes], place: str) -> Future[Failure | None]:
        future: Future[Failure | None] = Future()

        def run() -> None:
            for _ in range(1 + self._restarts):
                result = work(packed, place)
                if result is None or result.kind != "Death":
                    future.set_result(result)
                    return
            future.set_exception(RuntimeError("the machine is gone"))

        threading.Thread(target=run, daemon=True).start()
        return future

    def end(self) -> bool:
        return False
