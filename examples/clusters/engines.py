"""Clusters on this machine, for the scripts beside this one."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import joblib


@contextmanager
def running(engine: str, workers: int) -> Iterator[Callable[[], None]]:
    """Starts a Dask or a Ray of that many workers; within, joblib is configured for it.

    Yields a function that waits until as many are there: those that died are started again.
    """
    if engine == "dask":
        import dask
        from distributed import Client, LocalCluster

        # After these seconds Dask gives up for good a worker that is not there: also one that has
        # been back meanwhile, and was lost again. In a crew that loses somebody all the time
        # nobody is left in the end.
        dask.config.set({"distributed.deploy.lost-worker-timeout": "1 day"})
        with (
            LocalCluster(
                n_workers=workers, threads_per_worker=1, dashboard_address=None
            ) as cluster,
            Client(cluster) as client,
            joblib.parallel_config("dask", client=client),
        ):
            yield lambda: client.wait_for_workers(workers, timeout=300)
        return
    import ray
    from ray.util.joblib import register_ray

    # Ray's workers are as nice as can be, and starve on a machine that does anything else.
    os.environ.update(
        RAY_worker_niceness="0", RAY_USAGE_STATS_ENABLED="0", RAY_raylet_start_wait_time_s="300"
    )
    ray.init(num_cpus=workers, include_dashboard=False, log_to_driver=False)
    register_ray()
    try:
        with joblib.parallel_config("ray"):
            yield lambda: None  # Ray starts a process whenever there is a task for one.
    finally:
        ray.shutdown()
