"""One script for a laptop, Dask, Ray and Slurm.

    python tune.py                              # processes on this machine
    python tune.py dask tcp://SCHEDULER:8786    # a Dask cluster that is there
    python tune.py ray                          # the Ray cluster of RAY_ADDRESS, or one of its own
    python tune.py slurm                        # a Dask cluster of Slurm jobs (dask-jobqueue)

--storage URL keeps the study in a database; without it the study is kept in tuning.db, here.
"""

import argparse
from collections.abc import Iterator
from contextlib import contextmanager

import joblib
import optuna

import optuna_dp as odp
from optuna_dp import digits


@contextmanager
def engine(name: str, address: str | None, workers: int) -> Iterator[None]:
    """Tells joblib where workers are to run; nothing else here knows."""
    if name == "laptop":
        with joblib.parallel_config("loky"):
            yield
    elif name == "dask":
        from distributed import Client

        with Client(address), joblib.parallel_config("dask"):
            yield
    elif name == "slurm":
        from dask_jobqueue import SLURMCluster
        from distributed import Client

        # One worker per job: a job that is killed takes one run with it.
        cluster = SLURMCluster(cores=1, processes=1, memory="8GB", walltime="08:00:00")
        cluster.scale(jobs=workers)
        with cluster, Client(cluster) as client, joblib.parallel_config("dask"):
            client.wait_for_workers(workers)
            yield
    else:
        import ray
        from ray.util.joblib import register_ray

        ray.init(address)
        register_ray()
        with joblib.parallel_config("ray"):
            yield
        ray.shutdown()


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "engine", nargs="?", default="laptop", choices=["laptop", "dask", "ray", "slurm"]
    )
    parser.add_argument("address", nargs="?")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--storage", default="sqlite:///tuning.db")
    arguments = parser.parse_args()
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    plan = digits.budget(epsilon=3.0, pilots=(16, 4))

    def make_study() -> optuna.Study:
        return optuna.create_study(
            study_name="digits",
            storage=arguments.storage,
            load_if_exists=True,  # A second call goes on where the first was interrupted.
            direction="maximize",
            sampler=odp.BudgetSampler(plan),
        )

    with engine(arguments.engine, arguments.address, arguments.workers):
        study = odp.distributed.optimize(
            make_study,
            digits.BudgetObjective(),
            workers=arguments.workers,
            callbacks=[odp.PrivacyCallback()],
        )
    release = odp.release(study)
    print(f"chosen: {release.params}")
    print(f"epsilon of the whole search: {release.guarantee.epsilon(delta=1e-5):.3f}")


if __name__ == "__main__":
    main()
