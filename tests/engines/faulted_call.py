"""One call of ``optuna_dp.distributed.optimize`` on a cluster that runs, with a drawn fault.

python -m engines.faulted_call ENGINE ADDRESS STORAGE SAMPLER DIARY FAULT RUN STEP

The fault happens in the worker that begins run RUN, at the STEP-th call of its storage from then
on; at step 0 within the run. The diary is that of ``reliability.workers.Diary``.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
from pathlib import Path
from typing import Any

import optuna
from reliability.faulted_places import NAME
from reliability.faulted_studies import LAW, error_note
from reliability.storages import open_storage
from reliability.workers import SAMPLERS

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


def main() -> None:
    # What a shell starts in the background ignores Ctrl-C, and so do its children.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    parser = argparse.ArgumentParser()
    for name in ("engine", "address", "storage", "sampler", "diary", "fault"):
        parser.add_argument(name)
    for name in ("run", "step"):
        parser.add_argument(name, type=int)
    given = parser.parse_args()
    optuna.logging.set_verbosity(optuna.logging.ERROR)

    def make_study() -> optuna.Study:
        return optuna.load_study(
            study_name=NAME,
            storage=open_storage(given.storage),
            sampler=SAMPLERS[given.sampler](LAW),
        )

    objective = objective_of(given.diary, given.fault, given.run, given.step, os.getpid())
    try:
        with running(given.engine, WORKERS, given.address):
            odp.distributed.optimize(make_study, objective, workers=WORKERS)
    except KeyboardInterrupt:
        pass
    except BaseException as error:
        with Path(given.diary).open("a") as notes:
            notes.write(f"{os.getpid()} {error_note(error)}\n")


if __name__ == "__main__":
    main()
