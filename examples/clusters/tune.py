"""One script for this machine, Dask, Ray and Slurm.

    python tune.py                              # processes on this machine
    python tune.py dask tcp://SCHEDULER:8786    # a Dask cluster that is there
    python tune.py dask                         # one on this machine, made for the call
    python tune.py ray                          # the Ray cluster of RAY_ADDRESS, or one of its own
    python tune.py slurm                        # a Dask cluster of Slurm jobs (dask-jobqueue)

--storage URL keeps the study in a database, which several machines need. Without it the study is
kept in the journal tuning.log, here.
"""

import argparse
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import optuna
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend

import optuna_dp as odp
from optuna_dp import digits


@contextmanager
def running(where: str, address: str | None, workers: int) -> Iterator[str]:
    """Connects to a cluster, or starts one; yields the name of the engine."""
    if where == "dask":
        from distributed import Client

        # One thread for each worker: threads of one process die together.
        on_this_machine = {"n_workers": workers, "threads_per_worker": 1}
        with Client(address) if address else Client(**on_this_machine):
            yield "dask"
    elif where == "slurm":
        from dask_jobqueue import SLURMCluster
        from distributed import Client

        # One worker per job: a job that is killed takes one run with it.
        cluster = SLURMCluster(cores=1, processes=1, memory="8GB", walltime="08:00:00")
        cluster.scale(jobs=workers)
        with cluster, Client(cluster) as client:
            client.wait_for_workers(workers)
            yield "dask"
    elif where == "ray":
        import ray

        ray.init(address)
        yield "ray"
        ray.shutdown()
    else:
        yield "processes"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    choices = ["processes", "dask", "ray", "slurm"]
    parser.add_argument("where", nargs="?", default="processes", choices=choices)
    parser.add_argument("address", nargs="?")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--storage", help="the URL of a database")
    arguments = parser.parse_args()
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    journal = JournalFileBackend(str(Path("tuning.log").resolve()))
    study = optuna.create_study(
        study_name="digits",
        storage=arguments.storage or JournalStorage(journal),
        load_if_exists=True,  # A second call goes on where the first was interrupted.
        direction="maximize",
        # Four workers can be busy with pilots. All calls for a study need the same number.
        sampler=odp.BudgetSampler(digits.budget(epsilon=3.0, pilots=(16, 4)), pilot_batch_size=4),
    )
    with running(arguments.where, arguments.address, arguments.workers) as engine:
        odp.distributed.optimize(
            study,
            digits.BudgetObjective(),
            workers=arguments.workers,
            engine=engine,
            callbacks=[odp.PrivacyCallback()],
        )
    release = odp.release(study)
    print(f"chosen: {release.params}")
    print(f"epsilon of the whole search: {release.guarantee.epsilon(delta=1e-5):.3f}")


if __name__ == "__main__":
    main()
