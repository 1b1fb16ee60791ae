"""Load on one storage: many concurrent workers, one study of fast trials, against RandomSampler.

    python examples/benchmarks/storage_load.py                      # a PostgreSQL of its own
    python examples/benchmarks/storage_load.py --url mysql://...    # one of yours

Needs ``optuna-dp[test]`` for the PostgreSQL of its own (package pgserver). Prints JSON: trials per
second of each sampler and what was lost (nothing). ``storage_traffic.py`` counts the calls.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import random
import shutil
import statistics
import tempfile
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import optuna
from optuna.storages import BaseStorage, RDBStorage
from optuna.storages._cached_storage import _CachedStorage
from optuna.trial import TrialState

import optuna_dp as odp
from optuna_dp.study.trials import read_plan

SAMPLERS = ("RandomSampler", "RandTuneSampler")


def law_of(trials: int) -> odp.TrialCount:
    """T = trials, always: for a benchmark only, a fixed T has no guarantee worth having."""
    return odp.Poisson(mean=trials + 5000.0).capped(trials)


def sampler_of(name: str, trials: int) -> optuna.samplers.BaseSampler:
    if name == "RandomSampler":
        return optuna.samplers.RandomSampler()
    return odp.RandTuneSampler(trials=law_of(trials))


def open_storage(url: str) -> BaseStorage:
    return _CachedStorage(RDBStorage(url, engine_kwargs={"pool_size": 32}))


def objective(trial: optuna.Trial) -> float:
    return trial.suggest_float("x", -1.0, 1.0) ** 2


def work(
    url: str, study_name: str, sampler: str, trials: int, share: int, threads: int, gate: Any
) -> None:
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    random.seed()
    study = optuna.load_study(
        study_name=study_name, storage=open_storage(url), sampler=sampler_of(sampler, trials)
    )
    study.get_trials(deepcopy=False)  # The connection is made before the clock starts.
    gate.wait()
    # Optuna's sampler has no end of its own: each worker takes its share.
    study.optimize(
        objective, n_trials=share if sampler == "RandomSampler" else None, n_jobs=threads
    )


def measure(
    url: str, sampler: str, trials: int, processes: int, threads: int, context: Any
) -> dict[str, Any]:
    name = f"{sampler} {time.time()}"
    study = optuna.create_study(study_name=name, storage=open_storage(url), direction="maximize")
    gate = context.Barrier(processes + 1)
    share = -(-trials // processes)
    args = (url, name, sampler, trials, share, threads, gate)
    crew = [context.Process(target=work, args=args, daemon=True) for _ in range(processes)]
    for process in crew:
        process.start()
    gate.wait()
    start = time.perf_counter()
    for process in crew:
        process.join()
    seconds = time.perf_counter() - start
    found = study.get_trials(deepcopy=False)
    done = [t for t in found if t.state == TrialState.COMPLETE]
    result: dict[str, Any] = {
        "sampler": sampler,
        "seconds": round(seconds, 2),
        "trials per second": round(len(done) / seconds, 1),
        "completed": len(done),
        "beyond the last run": len(found) - len(done),
        "worker exit codes": sorted({process.exitcode for process in crew}),
    }
    if sampler != "RandomSampler":
        plan = read_plan(study)
        assert plan is not None
        extra = [t for t in found if t.number >= plan.slots and t.params]
        lost = set(range(plan.slots)) - {t.number for t in done}
        result |= {"lost": len(lost), "extra": len(extra)}
    return result


@contextmanager
def own_postgres() -> Iterator[str]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import pgserver
    directory = Path(tempfile.mkdtemp(prefix="odp-load-"))
    directory.chmod(0o755)
    server = pgserver.get_server(directory / "data", cleanup_mode="delete")
    try:
        server.psql("ALTER SYSTEM SET max_connections = 300;")
        pgserver.pg_ctl(
            ["-w", "-m", "fast", "restart"], pgdata=directory / "data", user=server.system_user
        )
        server.psql("CREATE DATABASE optuna;")
        yield server.get_uri("optuna").replace("postgresql://", "postgresql+psycopg://")
    finally:
        server.cleanup()
        shutil.rmtree(directory, ignore_errors=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--url", help="an Optuna storage URL; default: a PostgreSQL of its own")
    parser.add_argument("--trials", type=int, default=2000)
    parser.add_argument("--processes", type=int, default=8)
    parser.add_argument("--threads", type=int, default=8, help="per process")
    parser.add_argument("--repeat", type=int, default=1, help="rounds, samplers in turn")
    arguments = parser.parse_args()
    context = multiprocessing.get_context("spawn")
    optuna.logging.set_verbosity(optuna.logging.WARNING)

    def run(url: str) -> None:
        rates: dict[str, list[float]] = {name: [] for name in SAMPLERS}
        for _ in range(arguments.repeat):
            # Turned round in every other round: whoever comes second finds a fuller database.
            for name in SAMPLERS[:: -1 if len(rates["RandomSampler"]) % 2 else 1]:
                result = measure(
                    url, name, arguments.trials, arguments.processes, arguments.threads, context
                )
                rates[name].append(result["trials per second"])
                print(json.dumps(result), flush=True)
        base = rates["RandomSampler"]
        for name in SAMPLERS:
            pairs = [a / b for a, b in zip(rates[name], base, strict=True)]
            summary = {
                "sampler": name,
                "throughput against RandomSampler": round(statistics.median(pairs), 2),
                "by round": [round(pair, 2) for pair in pairs],
            }
            print(json.dumps(summary), flush=True)

    if arguments.url:
        run(arguments.url)
    else:
        with own_postgres() as url:
            run(url)


if __name__ == "__main__":
    main()
