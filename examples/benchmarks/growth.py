"""What a trial costs when a study has grown: after 500, 2,000, 8,000 and 10,000 others.

Each study runs by ``study.optimize`` of a function that does nothing. What is printed is the
median over blocks of 20 trials after so many, in milliseconds of the processor, and the ratio of
each number to the first. Beside them Optuna's own sampler of the same kind. On a database a study
would take hours to get there. So it runs in memory first, and the
database is given copies of its trials between the measurements::

    python examples/benchmarks/growth.py                       # in memory, two minutes
    python examples/benchmarks/growth.py --place sqlite        # and in SQLite
    python examples/benchmarks/growth.py --place postgresql    # and in a PostgreSQL of its own
    python examples/benchmarks/growth.py --quick               # seconds

The processor's time is that of this process: a server's is its own.

Pilots are measured twice: with a random proposer, and with the default one, which is TPE and is
itself linear in the number of pilots.
"""

from __future__ import annotations

import argparse
import logging
import statistics
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import optuna
from optuna.distributions import FloatDistribution
from storage_load import own_postgres

import optuna_dp as odp

RUN = odp.gaussian(4.0)
MANY = odp.Geometric(mean=1e9)
SPACE: dict[str, Any] = {name: FloatDistribution(0, 1) for name in ("x", "y")}
SIZES, OF_PILOTS = (500, 2000, 8000, 10_000), (100, 500, 900)
BLOCK = 20  # trials that one time is of


def plan(pilots: int) -> Any:
    return odp.plan_budget(
        epsilon=3.0,
        run=lambda noise, steps: odp.gaussian(noise),
        steps=1,
        pilots=pilots,
        noise_increase=10.0,
    )


def objective(trial: optuna.Trial) -> float:
    if isinstance(trial.study.sampler, odp.BudgetSampler):
        odp.fidelity(trial)
    return trial.suggest_float("x", 0, 1) + trial.suggest_float("y", 0, 1)


Case = tuple[Callable[[], Any], Callable[[], list[Any]], tuple[int, ...]]


def cases() -> dict[str, Case]:
    """A sampler, its callbacks, and after how many trials one is timed, by name."""
    random, tpe = optuna.samplers.RandomSampler, optuna.samplers.TPESampler
    thousand = plan(1000)
    return {
        "RandomSampler": (random, list, SIZES),
        "RandTune": (lambda: odp.RandTuneSampler(trials=MANY), list, SIZES),
        "RandTune, callback": (
            lambda: odp.RandTuneSampler(trials=MANY),
            lambda: [odp.PrivacyCallback(RUN)],
            SIZES,
        ),
        "1,000 pilots, random": (
            lambda: odp.BudgetSampler(thousand, search_space=SPACE, proposer=random()),
            lambda: [odp.PrivacyCallback()],
            OF_PILOTS,
        ),
        "1,000 pilots, default": (
            lambda: odp.BudgetSampler(thousand, search_space=SPACE),
            lambda: [odp.PrivacyCallback()],
            OF_PILOTS,
        ),
        "TPESampler, random for 500": (lambda: tpe(n_startup_trials=500), list, OF_PILOTS),
        "DP-HyPO": (lambda: odp.DPHyPOSampler(SPACE, trials=MANY), list, (50, 300, 2000)),
        "TPESampler": (tpe, list, (50, 300, 2000)),
    }


def milliseconds(study: optuna.Study, callbacks: list[Any], trials: int) -> float:
    """Processor time of each of so many trials."""
    start = time.process_time()
    study.optimize(objective, n_trials=trials, callbacks=callbacks)
    return 1e3 * (time.process_time() - start) / trials


def extended(study: optuna.Study, source: optuna.Study, trials: int) -> None:
    """Gives a study copies of another one's trials, after as many as it has, up to so many."""
    storage, study_id = study._storage, study._study_id
    attributes = source._storage.get_study_system_attrs(source._study_id)
    for key, value in attributes.items():
        storage.set_study_system_attr(study_id, key, value)
    for trial in source.get_trials(deepcopy=False)[len(study.trials) : trials]:
        storage.create_new_trial(study_id, template_trial=trial)


def grown(case: Case, storage: Any, sizes: tuple[int, ...], blocks: int) -> dict[int, float]:
    """Milliseconds of a trial after so many others."""
    make, callbacks, own_sizes = case
    sizes = sizes or own_sizes
    study = optuna.create_study(sampler=make(), storage=storage)
    source = study if storage is None else optuna.create_study(sampler=make())
    found, called, of_source = {}, callbacks(), callbacks()
    for size in sizes:
        missing = size - len(source.trials)
        if missing > 0:
            source.optimize(objective, n_trials=missing, callbacks=of_source)
        if source is not study:
            extended(study, source, size)
            study.optimize(objective, n_trials=2, callbacks=called)  # It reads them all, once.
        found[size] = statistics.median(milliseconds(study, called, BLOCK) for _ in range(blocks))
    return found


@contextmanager
def storage_at(place: str, url: str | None) -> Iterator[str | None]:
    """The URL of a new storage; None in memory."""
    if place == "sqlite":
        with tempfile.TemporaryDirectory() as folder:
            yield f"sqlite:///{Path(folder) / 's.db'}"
    elif place == "postgresql":
        with own_postgres() as own:
            yield own
    else:
        yield url


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="few trials, for checking")
    parser.add_argument(
        "--place", choices=("memory", "sqlite", "postgresql", "url"), default="memory"
    )
    parser.add_argument("--url", help="storage for --place url: a new database")
    parser.add_argument("--sizes", nargs="+", type=int, help="after how many trials to time one")
    parser.add_argument("--cases", nargs="+", help="beginnings of the names of cases")
    options = parser.parse_args()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    logging.getLogger("optuna_dp").setLevel(logging.ERROR)
    warnings.simplefilter("ignore")
    sizes = (50, 100) if options.quick else tuple(options.sizes or ())
    print("milliseconds of the processor, after so many trials")
    for name, case in cases().items():
        if options.cases and not name.startswith(tuple(options.cases)):
            continue
        with storage_at(options.place, options.url) as storage:
            found = grown(case, storage, sizes, 10 if options.place == "memory" else 4)
        first = next(iter(found.values()))
        shown = "".join(
            f"{f'{size}: {ms:.2f} ({ms / first:.2f})':>22}" for size, ms in found.items()
        )
        print(f"{name:28}{shown}", flush=True)


if __name__ == "__main__":
    main()
