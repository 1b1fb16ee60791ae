"""Jobs shared between processes: all of them done, failures heard of, nobody left behind."""

from __future__ import annotations

import multiprocessing
import os
import threading
from collections.abc import Iterator
from contextlib import closing

import joblib
import pytest
import threadpoolctl

from optuna_dp.planning.shared_work import shared


def _others() -> list[str]:
    names = [process.name for process in multiprocessing.active_children()]
    return [name for name in names if "Loky" in name]


def _size(job: int) -> float:
    return float(job)


def test_all_jobs_are_done_by_any_number_of_processes() -> None:
    def do(job: int) -> Iterator[tuple[int, int, int]]:
        for part in range(3):
            yield job, part, os.getpid()

    expected = [(job, part) for job in range(40) for part in range(3)]
    alone = list(shared(do, range(40), 1, _size))
    assert [found[:2] for found in alone] == expected
    several = list(shared(do, range(40), 2, _size))
    assert sorted(found[:2] for found in several) == expected
    assert {found[2] for found in alone} == {os.getpid()}


def test_this_process_takes_the_dearest_that_the_others_have_not() -> None:
    here = os.getpid()

    def do(job: int) -> list[tuple[int, int]]:
        if os.getpid() != here:
            # The other one was given 8, and is at it for longer than any test.
            threading.Event().wait(3600.0)
        return [(job, os.getpid())]

    with closing(shared(do, range(9), 2, _size)) as found:
        assert [next(found) for _ in range(3)] == [(7, here), (6, here), (5, here)]


def test_a_failure_elsewhere_is_raised_here_and_ends_the_others() -> None:
    here = os.getpid()

    def do(job: int) -> list[int]:
        if os.getpid() != here:
            raise ZeroDivisionError(f"job {job}")
        return [job]

    with pytest.raises(ZeroDivisionError, match="job 9"):
        list(shared(do, range(10), 2, _size))
    assert list(shared(lambda job: [job], range(3), 1, _size)) == [0, 1, 2]


def test_what_cannot_be_sent_is_heard_of() -> None:
    lock = threading.Lock()

    def do(job: int) -> list[object]:
        return [job, lock]

    with pytest.raises(Exception, match="pickle"):
        list(shared(do, range(4), 2, _size))


def test_whoever_leaves_early_leaves_nobody_at_work() -> None:
    def do(job: int) -> Iterator[int]:
        yield os.getpid()
        if job == 9:
            # Far longer than any test.
            threading.Event().wait(3600.0)

    for _ in range(5):
        with closing(shared(do, range(10), 2, _size)) as found:
            assert next(found) == os.getpid()
            assert _others()
        assert not _others()
    assert len(list(shared(lambda job: [job], range(5), 2, _size))) == 5
    assert not _others()


def test_processes_of_the_caller_are_left_alone() -> None:
    with joblib.Parallel(n_jobs=2, backend="loky") as theirs:
        before = set(theirs([joblib.delayed(os.getpid)() for _ in range(20)]))
        list(shared(lambda job: [job], range(5), 2, _size))
        after = set(theirs([joblib.delayed(os.getpid)() for _ in range(20)]))
    assert before & after


@pytest.mark.parametrize("processes", [1, 2])
def test_linear_algebra_has_one_thread_meanwhile(processes: int) -> None:
    import numpy as np

    np.linalg.solve(np.eye(3), np.ones(3))

    def threads() -> list[int]:
        return [library["num_threads"] for library in threadpoolctl.threadpool_info()]

    before = threads()
    with closing(shared(lambda job: [job], range(3), processes, _size)) as found:
        next(found)
        assert set(threads()) <= {1}
    assert threads() == before
