"""Real runs by several worker processes: runs per second, and what the bookkeeping adds to a run.

    python examples/benchmarks/workers_scale.py
    python examples/benchmarks/workers_scale.py --storage postgresql --workers 1 2 4 --runs 40

Each worker trains the digits demo with DP-SGD (``optuna_dp.digits``), all in one study with a
fixed number of runs (for measuring only: it has no guarantee worth having). Prints one JSON
line per storage and number of workers. ``run CPU`` is what one training took; ``added CPU`` what a
worker took beside its trainings, in all. On a busy machine seconds say little and CPU times more.
Needs ``optuna-dp[test]`` for the PostgreSQL.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import tempfile
import time
from pathlib import Path
from typing import Any

import optuna
from optuna.storages import BaseStorage, JournalStorage
from optuna.storages.journal import JournalFileBackend
from storage_load import law_of, own_postgres
from storage_load import open_storage as open_database

import optuna_dp as odp
from optuna_dp import digits


def open_storage(where: str) -> BaseStorage:
    if "://" in where:
        return open_database(where)
    return JournalStorage(JournalFileBackend(where))


def work(where: str, runs: int, gate: Any, answers: Any) -> None:
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    sampler = odp.RandTuneSampler(trials=law_of(runs), run=digits.cost_of_one_run())
    study = optuna.load_study(study_name="digits", storage=open_storage(where), sampler=sampler)
    callback = odp.PrivacyCallback()
    study.get_trials(deepcopy=False)  # The connection is made before the clock starts,
    digits.load()  # and the data are read.
    training = [0.0, 0.0]

    def objective(trial: optuna.Trial) -> float:
        start = time.process_time()
        score = digits.objective(trial)  # beyond the last run, it ends here
        training[0] += 1
        training[1] += time.process_time() - start
        return score

    gate.wait()
    start = time.process_time()
    study.optimize(objective, callbacks=[callback])
    answers.put((*training, time.process_time() - start))


def measure(where: str, workers: int, runs: int) -> dict[str, Any]:
    optuna.create_study(study_name="digits", storage=open_storage(where), direction="maximize")
    context = multiprocessing.get_context("spawn")
    gate, answers = context.Barrier(workers + 1), context.Queue()
    crew = [
        context.Process(target=work, args=(where, runs, gate, answers), daemon=True)
        for _ in range(workers)
    ]
    for process in crew:
        process.start()
    gate.wait()
    start = time.perf_counter()
    found = [answers.get() for _ in crew]
    seconds = time.perf_counter() - start
    for process in crew:
        process.join()
    made, training, total = (sum(part) for part in zip(*found, strict=True))
    assert made == runs
    return {
        "workers": workers,
        "runs": runs,
        "runs per second": round(runs / seconds, 2),
        "run CPU ms": round(1e3 * training / runs, 1),
        "added CPU s per worker": round((total - training) / workers, 2),
        "load average": round(os.getloadavg()[0], 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--storage", nargs="+", default=["journal", "postgresql"])
    parser.add_argument("--workers", nargs="+", type=int, default=[1, 2, 4])
    parser.add_argument("--runs", type=int, default=40)
    arguments = parser.parse_args()
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    for kind in arguments.storage:
        for workers in arguments.workers:
            if kind == "journal":
                with tempfile.TemporaryDirectory() as folder:
                    found = measure(str(Path(folder) / "tuning.log"), workers, arguments.runs)
            else:
                with own_postgres() as url:
                    found = measure(url, workers, arguments.runs)
            print(json.dumps({"storage": kind, **found}), flush=True)


if __name__ == "__main__":
    main()
