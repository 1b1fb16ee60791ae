"""What PrivacyCallback adds to a run: the same study with it and without it, in turns.

Each turn runs a block of trials that do nothing in a study with the callback and in one without,
and takes the difference per run, so that a busy machine slows both alike; what is printed is the
median of those differences, in milliseconds of the clock and of the processor::

    python examples/benchmarks/callback_speed.py            # four minutes
    python examples/benchmarks/callback_speed.py --quick    # seconds

``TMPDIR=/dev/shm`` keeps waits for the disk out of it. The number of runs is that of those which
have ended before the first block; no study comes to its last run.
"""

from __future__ import annotations

import argparse
import importlib.util
import statistics
import tempfile
import time
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import optuna

import optuna_dp as odp

RUN = odp.dp_sgd(noise_multiplier=1.0, sample_rate=256 / 60000, steps=2344)
BUDGET = odp.plan_budget(
    epsilon=3.0,
    run=lambda noise, steps: odp.gaussian(noise),
    steps=1,
    pilots=1500,
    noise_increase=2.0,
)
EXTRAS = ("optuna_dashboard", "plotly", "matplotlib", "torch")


def objective(trial: optuna.Trial) -> float:
    if isinstance(trial.study.sampler, odp.BudgetSampler):
        odp.start_run(trial)  # The callback refuses runs that never asked.
    return trial.suggest_float("x", 0, 1) + trial.suggest_float("y", 0, 1)


def samplers() -> dict[str, Any]:
    many = odp.Geometric(mean=1e9)
    space = {name: optuna.distributions.FloatDistribution(0, 1) for name in ("x", "y")}
    return {
        "RandTune": lambda: odp.RandTuneSampler(trials=many, run=RUN),
        "DP-HyPO": lambda: odp.DPHyPOSampler(space, trials=many, run=RUN),
        "pilots of a budget": lambda: odp.BudgetSampler(
            BUDGET, search_space=space, proposer=optuna.samplers.RandomSampler()
        ),
    }


def block(study: optuna.Study, callbacks: Sequence[Any], runs: int) -> tuple[float, float]:
    """Milliseconds per run of a block of runs: by the clock, and of the processor."""
    clock, cpu = time.perf_counter(), time.process_time()
    study.optimize(objective, n_trials=runs, callbacks=list(callbacks))
    return (
        1e3 * (time.perf_counter() - clock) / runs,
        1e3 * (time.process_time() - cpu) / runs,
    )


def added(name: str, places: tuple[Any, ...], sizes: Sequence[int], turns: int, runs: int) -> None:
    """Prints what the callback adds after each number of runs that have ended."""
    callback = odp.PrivacyCallback()
    plain, with_it = (
        optuna.create_study(sampler=samplers()[name](), storage=place) for place in places
    )
    block(plain, [], 1)
    block(with_it, [callback], 1)
    for size in sizes:
        for study, callbacks in ((plain, []), (with_it, [callback])):
            block(study, callbacks, size - len(study.trials))
        pairs = [(block(plain, [], runs), block(with_it, [callback], runs)) for _ in range(turns)]
        clock, cpu = (statistics.median(b[k] - a[k] for a, b in pairs) for k in (0, 1))
        without = [statistics.median(a[k] for a, _ in pairs) for k in (0, 1)]
        print(f"{size:>8} {without[0]:>10.2f} {without[1]:>8.2f} {clock:>10.2f} {cpu:>8.2f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="few turns, for checking")
    options = parser.parse_args()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    warnings.simplefilter("ignore")
    sizes, turns, runs = ((10, 50), 5, 5) if options.quick else ((10, 100, 1000), 14, 6)
    there = [name for name in EXTRAS if importlib.util.find_spec(name) is not None]
    print(f"can be imported: {', '.join(there) or 'no extra'}; milliseconds per run")
    for name in samplers():
        for kind in ("SQLite", "in memory"):
            print(f"\n{name}, {kind}")
            print(f"{'runs':>8} {'without':>10} {'cpu':>8} {'added':>10} {'cpu':>8}")
            with tempfile.TemporaryDirectory() as folder:
                places = tuple(
                    f"sqlite:///{Path(folder) / place}.db" if kind == "SQLite" else None
                    for place in ("without", "with")
                )
                added(name, places, sizes, turns, runs)


if __name__ == "__main__":
    main()
