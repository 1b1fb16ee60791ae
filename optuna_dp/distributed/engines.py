"""Engines: they start workers, and say when one has died.

joblib is asked which engine is configured, and with what; the worker tasks then go to that engine
directly. joblib's own ``Parallel`` would not do: when one task is lost it gives up all of them,
and on most engines kills them, so that one dead worker would cost every run that is under way.
"""

from __future__ import annotations

import os
import socket
import threading
import time
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any
from urllib.parse import urlsplit

from joblib import parallel as joblib_parallel

from optuna_dp.errors import InvalidArgumentError

Task = Callable[[bytes], Any]

# Seconds between two looks at whether whoever called a worker is still there.
_LOOK_EVERY = 1.0
# Seconds that an engine is given to end its workers.
_ENDS_WITHIN = 30.0


class Engine(ABC):
    """Runs tasks elsewhere.

    Attributes:
        name: What joblib calls it.
    """

    name: str

    def start_all(self, task: Task, tickets: Sequence[bytes]) -> list[Future[Any]]:
        """Starts a task for each ticket; the n-th is place n."""
        return [self.start(place, task, ticket) for place, ticket in enumerate(tickets)]

    @abstractmethod
    def start(self, place: int, task: Task, ticket: bytes) -> Future[Any]:
        """Starts one task. Its future fails when, and only when, its worker has died."""

    @abstractmethod
    def host(self) -> str:
        """Returns the address under which workers reach this machine."""

    def cannot_end_one(self) -> str:
        """Returns why one worker cannot be ended without the others; empty if it can."""
        return ""

    @abstractmethod
    def close(self) -> bool:
        """Ends what is still under way; returns whether no task is alive any more."""


class Loky(Engine):
    """Processes on this machine: an executor for each place, since a broken one loses all."""

    name = "loky"

    def __init__(self, backend: Any, workers: int) -> None:
        self._environment = backend._prepare_worker_env(n_jobs=workers)
        options = getattr(backend, "backend_kwargs", {})
        initializer = options.get("initializer"), options.get("initargs", ())
        self._first = (os.getpid(), *initializer)
        self._executors: dict[int, Any] = {}

    def start(self, place: int, task: Task, ticket: bytes) -> Future[Any]:
        executor = self._executors.get(place)
        if executor is None or executor._flags.broken is not None:
            # Start-up time: only where processes are started.
            from joblib.externals.loky import ProcessPoolExecutor

            executor = ProcessPoolExecutor(
                1, env=self._environment, initializer=_ends_with_parent, initargs=self._first
            )
            self._executors[place] = executor
        future: Future[Any] = executor.submit(task, ticket)
        return future

    def host(self) -> str:
        return "127.0.0.1"

    def close(self) -> bool:
        for executor in self._executors.values():
            executor.shutdown(wait=True, kill_workers=True)
        self._executors.clear()
        return True


class Dask(Engine):
    """The workers of a Dask cluster."""

    name = "dask"

    def __init__(self, backend: Any) -> None:
        self.client = backend.client
        self._options = dict(backend.submit_kwargs)
        self._under_way: dict[Future[Any], Any] = {}

    def start(self, place: int, task: Task, ticket: bytes) -> Future[Any]:
        future: Future[Any] = Future()
        key = f"optuna-dp-{task.__name__}-{uuid.uuid4().hex}"
        dask_future = self.client.submit(
            _ends_when_cancelled, task, ticket, key=key, pure=False, **self._options
        )
        self._under_way[future] = dask_future

        def ended(dask_result: Any) -> None:
            self._under_way.pop(future, None)
            if dask_result.status == "finished":
                try:
                    future.set_result(dask_result.result(timeout=60))
                except BaseException as error:  # Lost between its end and now.
                    future.set_exception(error)
            elif dask_result.status == "error":
                future.set_exception(dask_result.exception())
            else:
                future.set_exception(
                    RuntimeError(f"Dask says that the task is {dask_result.status}")
                )

        dask_future.add_done_callback(ended)
        return future

    def host(self) -> str:
        return _address_towards(self.client.scheduler.address)

    def cannot_end_one(self) -> str:
        for address, threads in self.client.nthreads().items():
            if threads > 1 or address.startswith("inproc"):
                return "threads of one process cannot be ended (dask worker --nthreads 1)"
        return ""

    def close(self) -> bool:
        """See :class:`Engine`. Dask cannot end a task that has begun, so its worker is restarted.

        Only the nannies that Dask starts beside its workers can do that.
        """
        open_futures = {dask_future.key: dask_future for dask_future in self._under_way.values()}
        if not open_futures:
            return True
        try:
            # Before they are cancelled, which would have them forgotten.
            places = [
                at
                for at, keys in self.client.processing().items()
                if open_futures.keys() & {*keys}
            ]
            self.client.cancel([*open_futures.values()], force=True)
            outcomes = self.client.restart_workers(places, timeout=_ENDS_WITHIN) if places else {}
        except Exception:  # No nannies; the scheduler has died; workers were interrupted too.
            time.sleep(2 * _LOOK_EVERY)
            return False
        return "timed out" not in outcomes.values()


class Ray(Engine):
    """The workers of a Ray cluster."""

    name = "ray"

    def __init__(self, backend: Any) -> None:
        self._options = dict(backend.ray_remote_args or {})
        self._under_way: dict[Future[Any], Any] = {}

    def start(self, place: int, task: Task, ticket: bytes) -> Future[Any]:
        import ray  # an extra

        options = {"max_retries": 0, "name": f"optuna-dp-{task.__name__}", **self._options}
        reference = ray.remote(task).options(**options).remote(ticket)
        future: Future[Any] = reference.future()
        self._under_way[future] = reference
        return future

    def host(self) -> str:
        import ray  # an extra

        if not ray.is_initialized():
            ray.init()
        address = os.environ.get("RAY_ADDRESS", "")
        if address.startswith("ray://"):  # This process is no node of the cluster.
            return _address_towards(address)
        return str(ray.util.get_node_ip_address())

    def close(self) -> bool:
        import ray  # an extra

        open_references = [
            reference for future, reference in self._under_way.items() if not future.done()
        ]
        try:
            for reference in open_references:
                ray.cancel(reference, force=True)
            _, alive = (
                ray.wait(open_references, num_returns=len(open_references), timeout=_ENDS_WITHIN)
                if open_references
                else ([], [])
            )
        except Exception:  # Ray has died, or was shut down.
            return False
        return not alive


def engine_here(workers: int) -> Engine | None:
    """Returns the engine that joblib is configured for; None for threads of this process.

    Raises:
        InvalidArgumentError: If it is another, on which a dead worker may never be noticed.
    """
    backend, _ = joblib_parallel.get_active_backend()
    kind = type(backend).__name__  # Names: Dask's and Ray's classes come with extras.
    if kind in ("ThreadingBackend", "SequentialBackend"):
        return None
    if kind == "LokyBackend":
        return Loky(backend, workers)
    if kind == "DaskDistributedBackend":
        return Dask(backend)
    if kind == "RayBackend":
        return Ray(backend)
    raise InvalidArgumentError(
        "joblib backend",
        kind,
        "joblib does not say which of its workers has died",
        'Use joblib.parallel_config("loky"), "threading", "dask" or "ray".',
    )


def _ends_with_parent(parent: int, initializer: Any, initargs: Any) -> None:
    """Runs first in a process of loky's, which would wait for ever for a parent that has died."""

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(_LOOK_EVERY)
        os._exit(1)

    threading.Thread(target=watch, name="optuna-dp-parent", daemon=True).start()
    if initializer is not None:
        initializer(*initargs)


def _ends_when_cancelled(task: Task, ticket: bytes) -> Any:
    """Runs on a worker of Dask's: ends its process if nobody waits for the task any more.

    Dask cancels the tasks of a client that has gone, and leaves those that have begun running. A
    worker without a nanny would not be started again, and may be a thread of the client's process.
    """
    from distributed import get_worker  # an extra

    worker, ended = get_worker(), threading.Event()
    key = worker.get_current_task()

    def watch() -> None:
        while not ended.wait(_LOOK_EVERY):
            task_state = worker.state.tasks.get(key)
            is_cancelled = task_state is None or task_state.state == "cancelled"
            # After Ctrl-C the process would wait for this task.
            if is_cancelled or not threading.main_thread().is_alive():
                os._exit(1)

    if worker.nanny is not None:
        threading.Thread(target=watch, name="optuna-dp-client", daemon=True).start()
    try:
        return task(ticket)
    finally:
        ended.set()


def _address_towards(url: str) -> str:
    """Returns this machine's address on the way to another; nothing is sent."""
    parts = urlsplit(url)
    if parts.scheme == "inproc" or parts.hostname is None:
        return "127.0.0.1"
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as way:
        way.connect((parts.hostname, parts.port or 1))
        host: str = way.getsockname()[0]
        return host
