"""What a trial costs when a study has grown: after 500, 2,000 and 8,000 others.

Each study runs from its beginning, by ``study.optimize`` of a function that does nothing. What is
printed is the median over blocks of 25 trials after so many, in milliseconds of the processor, and
the last number over the first. Beside them Optuna's own sampler of the same kind::

    python examples/benchmarks/growth.py                       # in memory, six minutes
    python examples/benchmarks/growth.py --place sqlite        # longer
    python examples/benchmarks/growth.py --quick               # seconds

Pilots are measured twice: with a random proposer, and with the default one, which is TPE and is
itself linear in the number of pilots.
"""

from __future__ import annotations

import argparse
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
SIZES = (500, 2000, 8000)


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


Case = tuple[Callable[[], Any], Callable[[], list[Any]], int]


def cases(most: int) -> dict[str, Case]:
    """A sampler, its callbacks, and the most trials that it is measured with, by name."""
    random, tpe = optuna.samplers.RandomSampler, optuna.samplers.TPESampler
    with_callback = lambda: [odp.PrivacyCallback(RUN)]  # noqa: E731
    budget, thousand = plan(min(most + 200, 8200)), plan(1000)
    return {
        "RandomSampler": (random, list, most),
        "RandTune": (lambda: odp.RandTuneSampler(trials=MANY), list, most),
        "RandTune, callback": (
            lambda: odp.RandTuneSampler(trials=MANY),
            with_callback,
            most,
        ),
        "pilots, random, callback": (
            lambda: odp.BudgetSampler(budget, search_space=SPACE, proposer=random()),
            lambda: [odp.PrivacyCallback()],
            most,
        ),
        "1,000 pilots, default": (
            lambda: odp.BudgetSampler(thousand, search_space=SPACE),
            lambda: [odp.PrivacyCallback()],
            900,
        ),
        "TPESampler, random for 500": (lambda: tpe(n_startup_trials=500), list, 900),
        "DP-HyPO, callback": (
            lambda: odp.DPHyPOSampler(SPACE, trials=MANY),
            with_callback,
            min(most, 2000),
        ),
        "TPESampler": (tpe, list, min(most, 2000)),
    }


def milliseconds(study: optuna.Study, callbacks: list[Any], trials: int) -> float:
    """Processor time of each of so many trials."""
    start = time.process_time()
    study.optimize(objective, n_trials=trials, callbacks=callbacks)
    return 1e3 * (time.process_time() - start) / trials


def grown(case: Case, storage: Any, sizes: tuple[int, ...], blocks: int) -> dict[int, float]:
    """Milliseconds of a trial after so many others."""
    make, callbacks, most = case
    study = optuna.create_study(sampler=make(), storage=storage)
    found, called = {}, callbacks()
    wanted = [size for size in sizes if size <= most] or [sizes[0]]
    if wanted[-1] < most < sizes[-1]:
        wanted.append(most)
    for size in wanted:
        study.optimize(objective, n_trials=size - len(study.trials), callbacks=called)
        found[size] = statistics.median(milliseconds(study, called, 25) for _ in range(blocks))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="few trials, for checking")
    parser.add_argument("--place", choices=("memory", "sqlite", "url"), default="memory")
    parser.add_argument("--url", help="storage for --place url: a new database")
    parser.add_argument("--cases", nargs="+", help="beginnings of the names of cases")
    options = parser.parse_args()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    warnings.simplefilter("ignore")
    sizes = (50, 100) if options.quick else SIZES
    print(f"{'milliseconds of the processor':32}" + "".join(f"{s:>9}" for s in sizes) + "  ratio")
    for name, case in cases(sizes[-1]).items():
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
