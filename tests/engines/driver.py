"""A process that makes a call on an engine of its own, in which something may be killed.

python -m engines.driver ENGINE STORAGE DIARY [--kills RUN driver|worker|PID] [--hangs RUN]
    [--keeps-the-lock] [--run-timeout SECONDS] [--workers NUMBER] [--address CLUSTER]
"""

from __future__ import annotations

import argparse
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import joblib
import optuna
from reliability.storages import open_storage

import optuna_dp as odp

from .studies import Diary, objective_of, study_maker

WORKERS = 8


@contextmanager
def running(engine: str, workers: int = WORKERS, address: str = "") -> Iterator[Any]:
    """An engine on this machine, for which joblib is configured within; yields its address.

    With an address, the one that runs there.
    """
    if address and engine == "dask":
        from distributed import Client

        with Client(address) as client, joblib.parallel_config("dask", client=client):
            yield address
    elif engine == "dask":
        import dask
        from distributed import Client, LocalCluster

        # Eight workers may take longer to be back than Dask waits before it gives one up.
        dask.config.set({"distributed.deploy.lost-worker-timeout": "1 day"})
        with (
            LocalCluster(
                n_workers=workers, threads_per_worker=1, dashboard_address=None
            ) as cluster,
            Client(cluster) as client,
            joblib.parallel_config("dask", client=client),
        ):
            yield cluster.scheduler_address
    elif engine == "ray":
        import ray
        from ray.util.joblib import register_ray

        # Ray's workers are as nice as can be, and starve on a machine that does anything else.
        os.environ.update(RAY_worker_niceness="0", RAY_USAGE_STATS_ENABLED="0")
        # Its workers import the tests' storages.
        os.environ["PYTHONPATH"] = str(Path(__file__).resolve().parents[1])
        new = {} if address else {"num_cpus": workers, "include_dashboard": False}
        found = ray.init(address=address or None, log_to_driver=False, **new)
        register_ray()
        try:
            with joblib.parallel_config("ray"):
                yield found.address_info["address"]
        finally:
            ray.shutdown()
    else:
        with joblib.parallel_config(engine):
            yield None


def main() -> None:
    # What a shell starts in the background ignores Ctrl-C, and so do its children.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    parser = argparse.ArgumentParser()
    parser.add_argument("engine")
    parser.add_argument("storage")
    parser.add_argument("diary", type=Path)
    parser.add_argument("--kills", nargs=2, metavar=("RUN", "WHOM"), default=("-1", ""))
    parser.add_argument("--hangs", type=int, default=-1)
    parser.add_argument("--keeps-the-lock", action="store_true", help="the hanging run, Python's")
    parser.add_argument("--run-timeout", type=float)
    parser.add_argument("--address", default="", help="of a cluster that runs")
    parser.add_argument("--workers", type=int, default=4)
    given = parser.parse_args()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    run, me, hangs = objective_of(Diary(given.diary)), os.getpid(), given.hangs
    kills, whom = int(given.kills[0]), given.kills[1]
    keeps, continues = given.keeps_the_lock, str(given.diary) + ".continue"

    def objective(trial: optuna.Trial) -> float:
        import ctypes
        import os as system
        import time

        value = run(trial)
        if trial.number == hangs and keeps:
            ctypes.PyDLL(None).sleep(3600)  # In C, and no other thread of Python's goes on.
        if trial.number == kills:
            victims = {"driver": me, "worker": system.getpid()}
            system.kill(victims[whom] if whom in victims else int(whom), 9)
        while (trial.number == kills and whom == "driver") or trial.number == hangs:
            time.sleep(0.01)
            if system.path.exists(continues):
                break
        return value

    with running(given.engine, given.workers, given.address):
        odp.distributed.optimize(
            study_maker(storage=open_storage(given.storage)),
            objective,
            workers=given.workers,
            run_timeout=given.run_timeout,
        )


if __name__ == "__main__":
    main()
