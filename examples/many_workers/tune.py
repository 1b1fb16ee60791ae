"""One script for every worker: create the study once, work, release.

    python tune.py create STORAGE
    python tune.py work STORAGE      # as many as you like, wherever you like
    python tune.py release STORAGE

STORAGE is a database URL, ``grpc://HOST:PORT`` of a proxy, or a path of a journal file.
"""

import argparse
import os
import signal
import warnings

import optuna
from optuna.storages import BaseStorage, GrpcStorageProxy, JournalStorage, RDBStorage
from optuna.storages.journal import JournalFileBackend

import optuna_dp as odp
from optuna_dp import digits

STUDY = "digits"


def open_storage(where: str) -> BaseStorage:
    if where.startswith("grpc://"):
        host, _, port = where.removeprefix("grpc://").partition(":")
        proxy = GrpcStorageProxy(host=host, port=int(port))
        proxy.wait_server_ready(timeout=60)
        return proxy
    if "://" not in where:
        return JournalStorage(JournalFileBackend(where))
    if where.startswith("sqlite:"):
        return RDBStorage(where, engine_kwargs={"connect_args": {"timeout": 60}})
    return RDBStorage(where, engine_kwargs={"pool_pre_ping": True})


def work(storage: BaseStorage, *, dies: bool) -> None:
    plan = digits.budget(epsilon=3.0, pilots=(16, 4))  # the same in all workers
    study = optuna.load_study(study_name=STUDY, storage=storage, sampler=odp.BudgetSampler(plan))
    train_and_score = digits.BudgetObjective()
    runs = []

    def objective(trial: optuna.Trial) -> float:
        score = train_and_score(trial)
        if dies:  # what the out-of-memory killer does
            os.kill(os.getpid(), signal.SIGKILL)
        runs.append(trial.number)
        return score

    study.optimize(objective, callbacks=[odp.PrivacyCallback()])
    print(f"worker {os.getpid()} has ended: {len(runs)} runs")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("command", choices=["create", "work", "release"])
    parser.add_argument("storage")
    parser.add_argument("--dies", action="store_true", help="killed in its first run")
    arguments = parser.parse_args()
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
    storage = open_storage(arguments.storage)

    if arguments.command == "create":
        optuna.create_study(study_name=STUDY, storage=storage, direction="maximize")
        print(f"created: {STUDY}")
    elif arguments.command == "work":
        work(storage, dies=arguments.dies)
    else:
        release = odp.release(optuna.load_study(study_name=STUDY, storage=storage))
        print(f"chosen: {release.params}")
        print(f"score: {release.value}")
        print(f"epsilon: {release.guarantee.epsilon(delta=1e-5):.3f}")


if __name__ == "__main__":
    main()
