"""What a run costs on an engine beside its training, against plain Optuna on the same engine.

    python overhead.py dask          # or ray, loky

The same objective (a sleep, as if the training were on another device), the same number of
runs and workers, the same served study in memory: once by ``odp.distributed.optimize``, once by
Optuna's RandomSampler in tasks on the same engine that take their share each. Seconds from the
first run's start to the last one's end, which leaves out how long workers take to start. Prints
JSON. With ``--seconds 0`` it is what the storage bears.
"""

from __future__ import annotations

import argparse
import json
import logging
import statistics
import time
from concurrent.futures import wait
from contextlib import nullcontext
from typing import Any

import cloudpickle
import optuna
from engines import running
from optuna.trial import TrialState

import optuna_dp as odp
from optuna_dp.distributed.engines import engine_here
from optuna_dp.distributed.storages import reachable

RUN = odp.gaussian(noise_multiplier=4.0)


def make_objective(seconds: float) -> Any:
    def objective(trial: optuna.Trial) -> float:
        import time

        x = trial.suggest_float("x", -1.0, 1.0)
        time.sleep(seconds)
        return -(x**2)

    return objective


def seconds_of(study: optuna.Study) -> float:
    done = [t for t in study.get_trials(deepcopy=False) if t.state == TrialState.COMPLETE]
    start = min(t.datetime_start for t in done if t.datetime_start)
    return (max(t.datetime_complete for t in done if t.datetime_complete) - start).total_seconds()


def ours(objective: Any, runs: int, workers: int) -> optuna.Study:
    # T is always this: for a benchmark only.
    law = odp.Poisson(mean=runs + 2000.0).capped(runs)
    return odp.distributed.optimize(
        lambda: optuna.create_study(sampler=odp.RandTuneSampler(trials=law)),
        objective,
        workers=workers,
    )


def plain(objective: Any, runs: int, workers: int) -> optuna.Study:
    study = optuna.create_study(sampler=optuna.samplers.RandomSampler())
    engine = engine_here(workers)
    assert engine is not None

    def task(ticket: bytes) -> None:
        import cloudpickle
        import optuna

        optuna.logging.set_verbosity(optuna.logging.ERROR)
        name, storage, objective, share = cloudpickle.loads(ticket)
        sampler = optuna.samplers.RandomSampler()
        mine = optuna.load_study(study_name=name, storage=storage, sampler=sampler)
        mine.optimize(objective, n_trials=share)

    with reachable(study._storage, engine) as storage:
        given = (study.study_name, storage, objective, -(-runs // workers))
        wait(engine.start_all(task, [cloudpickle.dumps(given)] * workers))
        engine.close()
    return study


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("engine", choices=["dask", "ray", "loky"])
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--runs", type=int, default=80)
    parser.add_argument("--seconds", type=float, default=0.1, help="of one training")
    parser.add_argument("--repeat", type=int, default=3)
    arguments = parser.parse_args()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    logging.getLogger("optuna_dp").setLevel(logging.ERROR)
    size = (make_objective(arguments.seconds), arguments.runs, arguments.workers)
    on = nullcontext() if arguments.engine == "loky" else running(arguments.engine, size[2])
    ratios = []
    with on:
        for number in range(arguments.repeat + 1):  # The first one is for warming up.
            measured = {}
            for way in (plain, ours)[:: -1 if number % 2 else 1]:
                start = time.perf_counter()
                study = way(*size)
                whole = time.perf_counter() - start
                measured[way.__name__] = seconds_of(study) * size[2] / size[1]
                measured[f"{way.__name__}, the whole call in seconds"] = whole
            if number:
                ratios.append(measured["ours"] / measured["plain"])
                shown = {key: round(value, 4) for key, value in measured.items()}
                print(json.dumps({"seconds of a worker per run": shown}), flush=True)
    print(
        json.dumps(
            {
                "engine": arguments.engine,
                "training in seconds": arguments.seconds,
                "per run, against plain Optuna": round(statistics.median(ratios), 3),
                "by round": [round(ratio, 3) for ratio in ratios],
            }
        )
    )


if __name__ == "__main__":
    main()
