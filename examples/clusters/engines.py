"""Clusters on this machine, for the scripts beside this one."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

import joblib


@contextmanager
def running(engine: str, workers: int) -> Iterator[None]:
    """Starts a Dask or a Ray of that many workers; within, joblib is configured for it."""
    if engine == "dask":
        from distributed import Client, LocalCluster

        with (
            LocalCluster(
                n_workers=workers, threads_per_worker=1, dashboard_address=None
            ) as cluster,
            Client(cluster) as client,
            joblib.parallel_config("dask", client=client),
        ):
            yield
        return
    import ray
    from ray.util.joblib import register_ray

    # Ray's workers are as nice as can be, and starve on a machine that does anything else.
    os.environ.update(RAY_worker_niceness="0", RAY_USAGE_STATS_ENABLED="0")
    ray.init(num_cpus=workers, include_dashboard=False, log_to_driver=False)
    register_ray()
    try:
        with joblib.parallel_config("ray"):
            yield
    finally:
        ray.shutdown()
