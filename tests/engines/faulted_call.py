"""Calls of ``optuna_dp.distributed.optimize`` on a cluster that runs, with a fault in each."""

from __future__ import annotations

import contextlib
import os
import signal
from typing import Any

import optuna
from reliability.faulted_places import NAME, Place
from reliability.storages import open_storage

import optuna_dp as odp

from .cluster import WORKERS
from .driver import running


def objective_of(diary: str, fault: str, run: int, step: int, driver: int) -> Any:
    """An objective that notes each run, and lets a fault happen in one of them or after it."""

    def objective(trial: optuna.Trial) -> float:
        import os as system

        import sqlalchemy
        from reliability.workers import Fate, granted_to, make_mortal
        from support import tell

        notes = system.open(diary, system.O_WRONLY | system.O_CREAT | system.O_APPEND)

        def note(text: str) -> None:
            system.write(notes, f"{system.getpid()} {text}\n".encode())

        class Fault(Fate):
            def tick(self, before: bool) -> None:
                self.seen += before
                if self.seen == self.step and before == self.before:
                    self.happen()

            def happen(self) -> None:
                if fault == "kill":
                    system.kill(system.getpid(), 9)
                elif fault == "kill all":
                    with open(diary) as lines:
                        workers = {int(line.split()[0]) for line in lines if " began " in line}
                    for pid in of_cluster(workers) - {system.getpid()}:
                        system.kill(pid, 9)
                    system.kill(system.getpid(), 9)
                elif fault == "driver":
                    system.kill(driver, 9)
                elif fault == "ctrl-c":
                    system.kill(driver, 2)
                elif fault == "gone":
                    cause = sqlalchemy.exc.OperationalError("UPDATE", {}, Exception("gone away"))
                    error = optuna.exceptions.StorageInternalError("An exception is raised")
                    raise error from cause

        granted = granted_to(trial)
        if granted is not None:
            note(f"granted {granted}")
        x = trial.suggest_float("x", -1.0, 1.0)
        note(f"began {trial.number}")
        if trial.number == run:
            fate = Fault(step)
            if step:
                make_mortal(trial.study._storage, fate, lambda text: None)
            elif fault != "gone":  # An objective's own errors are its own.
                fate.happen()
        score: float = tell(trial, -((x - 0.3) ** 2))
        system.close(notes)
        return score

    def of_cluster(pids: set[int]) -> set[int]:
        """Those of these processes that are still this cluster's."""
        found = set()
        mark = f"ODP_CLUSTER={os.environ['ODP_CLUSTER']}".encode()
        for pid in pids:
            with contextlib.suppress(OSError), open(f"/proc/{pid}/environ", "rb") as environment:
                if mark in environment.read().split(b"\0"):
                    found.add(pid)
        return found

    return objective


def make_call(
    place: Place,
    sampler: optuna.samplers.BaseSampler,
    diary: str,
    fault: str,
    run: int,
    step: int,
) -> None:
    """Calls ``optimize`` on the cluster of a place.

    The fault happens in the worker that begins run ``run``, at the ``step``-th call of its storage
    from then on; at step 0 within the run.

    Args:
        place: The study's storage, and the cluster.
        sampler: The study's sampler.
        diary: The file of a ``reliability.workers.Diary``.
        fault: "kill" (the worker), "kill all" (all workers), "driver" (this process), "ctrl-c",
            "gone" (the worker's storage) or "none".
        run: The number of a run.
        step: How many calls of its storage later.
    """
    # What a shell starts in the background ignores Ctrl-C, and so do its children.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    assert place.engine is not None
    engine, address = place.engine

    def make_study() -> optuna.Study:
        storage = open_storage(place.at_worker)
        return optuna.load_study(study_name=NAME, storage=storage, sampler=sampler)

    objective = objective_of(diary, fault, run, step, os.getpid())
    with running(engine, WORKERS, address):
        odp.distributed.optimize(make_study, objective, workers=WORKERS)
