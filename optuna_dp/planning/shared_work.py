"""Jobs shared between this process and others.

This process works as well: the others spend their first second and more on imports, and it has
made these already.
"""

from __future__ import annotations

import queue
import time
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import Future
from typing import Any, TypeVar

import joblib
from joblib.externals.loky import ProcessPoolExecutor
from threadpoolctl import threadpool_limits

Job = TypeVar("Job")
Result = TypeVar("Result")

# One thread each, or they wait for each other's.
_ONE_THREAD = {
    f"{library}_NUM_THREADS": "1" for library in ("OMP", "OPENBLAS", "MKL", "BLIS", "NUMEXPR")
}


def shared(
    do: Callable[[Job], Iterable[Result]],
    jobs: Sequence[Job],
    n_jobs: int,
    effort: Callable[[Job], float],
) -> Generator[Result, None, None]:
    """Yields what comes of all jobs, in whatever order.

    What comes of a job done here is yielded at once, of another one's when this process has a
    moment. The other processes are ended with it, also if it is left early or a job fails.

    Args:
        do: Must give the same in any process.
        jobs: With one process their order is kept.
        n_jobs: How many processes work, this one included; -1 for one per core.
        effort: How long a job takes beside others, roughly: only the order depends on it.
    """
    with joblib.parallel_config("loky"):
        workers = min(joblib.effective_n_jobs(n_jobs), len(jobs))
    with threadpool_limits(1):
        if workers <= 1:
            for job in jobs:
                yield from do(job)
        else:
            # The dearest first, so that no process is left alone with one at the end.
            yield from _among_several(do, sorted(jobs, key=effort, reverse=True), workers)


def _among_several(
    do: Callable[[Job], Iterable[Result]], jobs: Sequence[Job], workers: int
) -> Iterator[Result]:
    # Its own, since it is ended: joblib's may be at work for the caller.
    others = ProcessPoolExecutor(max_workers=workers - 1, env=_ONE_THREAD)
    waiting = deque(jobs)
    done: queue.SimpleQueue[Future[list[Result]]] = queue.SimpleQueue()
    open_jobs = len(jobs)
    given: list[Future[list[Result]]] = []

    def give() -> None:
        try:
            job = waiting.popleft()
        except IndexError:
            return
        try:
            given.append(others.submit(_listed, do, job))
            given[-1].add_done_callback(taken)
        except Exception as error:
            # Nobody would hear of it here.
            failed: Future[list[Result]] = Future()
            failed.set_exception(error)
            done.put(failed)

    def taken(finished: Future[list[Result]]) -> None:
        # In a thread of the executor: the other process does not wait for this one's job.
        done.put(finished)
        if not finished.cancelled() and finished.exception() is None:
            give()

    try:
        for _ in range(workers - 1):
            give()
        while open_jobs > 0:
            try:
                job = waiting.popleft()
            except IndexError:
                yield from done.get().result()
                open_jobs -= 1
                continue
            for result in do(job):
                yield result
                while not done.empty():
                    yield from done.get().result()
                    open_jobs -= 1
            open_jobs -= 1
    finally:
        if open_jobs > 0:
            waiting.clear()
            # The executor loses its way if it is ended with a job in hand that no process has.
            while not all(future.running() or future.done() for future in given):
                time.sleep(1e-3)
        # They hold what they imported, and take a while to end by themselves.
        others.shutdown(kill_workers=True)


def _listed(do: Callable[[Any], Iterable[Any]], job: Any) -> list[Any]:
    return list(do(job))
