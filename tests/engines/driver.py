"""A process that makes a call on an engine of its own, and may be killed with it.

python -m engines.driver ENGINE URL DIARY [RUN]: run number RUN kills this process, engine and all.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import joblib
import optuna

import optuna_dp as odp

from .studies import Diary, objective_of, study_maker

WORKERS = 8


@contextmanager
def running(engine: str, workers: int = WORKERS) -> Iterator[Any]:
    """A cluster on this machine, for which joblib is configured within; yields its client."""
    if engine == "dask":
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
            yield client
        return
    import ray

    # Ray's workers are as nice as can be, and starve on a machine that does anything else.
    os.environ.update(RAY_worker_niceness="0", RAY_USAGE_STATS_ENABLED="0")
    ray.init(num_cpus=workers, include_dashboard=False, log_to_driver=False)
    from ray.util.joblib import register_ray

    register_ray()
    try:
        with joblib.parallel_config("ray"):
            yield None
    finally:
        ray.shutdown()


def main(engine: str, url: str, diary: str, kills_me: str = "-1") -> None:
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    run, me = objective_of(Diary(Path(diary))), os.getpid()

    def objective(trial: optuna.Trial) -> float:
        import os as system

        value = run(trial)
        if trial.number == int(kills_me):
            system.kill(me, 9)
            while system.path.exists(f"/proc/{me}"):  # Not reaped yet.
                system.kill(system.getpid(), 9)
        return value

    with running(engine, 4):
        odp.distributed.optimize(study_maker(storage=url), objective, workers=4)


if __name__ == "__main__":
    main(*sys.argv[1:])
