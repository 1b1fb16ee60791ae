"""A process that makes a call on an engine, and may be killed or interrupted meanwhile.

python -m engines.driver ENGINE FOLDER [--seconds SECONDS] [--address CLUSTER]
"""

from __future__ import annotations

import argparse
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import optuna
from support import RUN, exactly

import optuna_dp as odp

from .studies import Diary, journal_study, objective_of

WORKERS = 3
RUNS = 40


@contextmanager
def running(engine: str, address: str = "") -> Iterator[str]:
    """An engine on this machine, or the one that runs at an address; yields its address."""
    if engine == "dask":
        import dask
        from distributed import Client, LocalCluster

        # On a busy machine workers may take longer to be back than Dask waits for them.
        dask.config.set({"distributed.deploy.lost-worker-timeout": "1 day"})
        if address:
            with Client(address):
                yield address
            return
        with (
            LocalCluster(
                n_workers=WORKERS, threads_per_worker=1, dashboard_address=None
            ) as cluster,
            Client(cluster),
        ):
            yield cluster.scheduler_address
    elif engine == "ray":
        import ray

        # Ray's workers are as nice as can be, and starve on a machine that does anything else.
        os.environ.update(RAY_worker_niceness="0", RAY_USAGE_STATS_ENABLED="0")
        # Its workers import the tests.
        os.environ["PYTHONPATH"] = os.pathsep.join(
            [str(Path(__file__).resolve().parents[1]), os.environ.get("PYTHONPATH", "")]
        )
        new = {} if address else {"num_cpus": WORKERS, "include_dashboard": False}
        started = ray.init(address=address or None, log_to_driver=False, **new)
        try:
            yield started.address_info["address"]
        finally:
            ray.shutdown()
    else:
        yield ""


def main() -> None:
    # What a shell starts in the background ignores Ctrl-C, and so do its children.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    parser = argparse.ArgumentParser()
    parser.add_argument("engine")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seconds", type=float, default=0.0, help="of each run")
    parser.add_argument("--address", default="", help="of a cluster that runs")
    given = parser.parse_args()
    with running(given.engine, given.address):
        odp.distributed.optimize(
            journal_study(given.folder, odp.RandTuneSampler(trials=exactly(RUNS), run=RUN)),
            objective_of(Diary(given.folder / "diary"), seconds=given.seconds),
            workers=WORKERS,
            engine=given.engine,
        )


if __name__ == "__main__":
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    main()
