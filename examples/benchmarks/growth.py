"""What a trial costs when a study has grown: after 500, 2,000 and 8,000 others.

Each study runs from its beginning, by ``study.optimize`` of a function that does nothing. What is
printed is the median over blocks of 20 trials after so many, in milliseconds of the processor, and
the last number over the first. Beside them Optuna's own sampler of the same kind::

    python examples/benchmarks/growth.py                       # in memory, six minutes
    python examples/benchmarks/growth.py --place sqlite        # longer
    python examples/benchmarks/growth.py --quick               # seconds

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
from collections.abc import Callable
from pathlib import Path
from typing import Any

import optuna
from optuna.distributions import FloatDistribution

import optuna_dp as odp

RUN = odp.gaussian(4.0)
MANY = odp.Geometric(mean=1e9)
SPACE: dict[str, Any] = {name: FloatDistribution(0, 1) for name in ("x", "y")}
SIZES, OF_PILOTS = (500, 2000, 8000), (100, 450, 900)


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


def grown(case: Case, storage: Any, sizes: tuple[int, ...], blocks: int) -> dict[int, float]:
    """Milliseconds of a trial after so many others."""
    make, callbacks, own_sizes = case
    study = optuna.create_study(sampler=make(), storage=storage)
    found, called = {}, callbacks()
    for size in sizes or own_sizes:
        if size > len(study.trials):
            study.optimize(objective, n_trials=size - len(study.trials), callbacks=called)
        found[size] = statistics.median(milliseconds(study, called, 20) for _ in range(blocks))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="few trials, for checking")
    parser.add_argument("--place", choices=("memory", "sqlite", "url"), default="memory")
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
        with tempfile.TemporaryDirectory() as folder:
            places = {"memory": None, "sqlite": f"sqlite:///{Path(folder) / 's.db'}"}
            found = grown(case, places.get(options.place, options.url), sizes, 4)
        numbers = list(found.values())
        shown = "".join(f"{f'{size}: {ms:.2f}':>15}" for size, ms in found.items())
        print(f"{name:32}{shown}  ratio {numbers[-1] / numbers[0]:.2f}", flush=True)


if __name__ == "__main__":
    main()
