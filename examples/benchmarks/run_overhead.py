"""What a run costs beside its training, on an engine, and what an empty joblib task costs there.

    python examples/benchmarks/run_overhead.py loky
    python examples/benchmarks/run_overhead.py loky --beside ../another/checkout

Two workers, a study in memory, an objective that returns at once. Each measurement is two
processes, with few runs and with many: the difference of their processor times, of the workers
too, divided by the difference of runs, has no start-up in it and hardly depends on what else the
machine does. The time that passes does; it is that of the last three quarters of the runs.
Measurements are taken in turn. With ``--beside``, another source tree's as well.
"""

from __future__ import annotations

import argparse
import os
import resource
import statistics
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parents[2]


def empty(engine: str, runs: int) -> None:
    import joblib
    from joblib.externals.loky import get_reusable_executor

    with joblib.parallel_config(engine):
        joblib.Parallel(n_jobs=2, batch_size=1)(joblib.delayed(int)() for _ in range(runs))
    if engine == "loky":
        get_reusable_executor().shutdown(wait=True)  # Only who has ended is counted.


def study(engine: str, runs: int) -> None:
    import joblib
    import optuna

    import optuna_dp as odp

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    # T is always this: for a benchmark only.
    sampler = odp.RandTuneSampler(trials=odp.Poisson(mean=runs + 2000.0).capped(runs))
    with joblib.parallel_config(engine):
        found = odp.distributed.optimize(
            lambda: optuna.create_study(sampler=sampler),
            lambda trial: trial.suggest_float("x", -1.0, 1.0),
            workers=2,
        )
    times = sorted(
        (t.datetime_start.timestamp(), t.datetime_complete.timestamp())
        for t in found.trials
        if t.params and t.datetime_start and t.datetime_complete
    )
    late = times[len(times) // 4 :]
    print((max(end for _, end in late) - late[0][0]) / len(late))


def spent(source: str, what: str, engine: str, runs: int) -> tuple[float, float]:
    """Returns the processor's seconds of a process and its workers, and seconds that passed."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    out = subprocess.run(
        [sys.executable, "-W", "ignore", __file__, engine, "--part", what, "--runs", str(runs)],
        env={**os.environ, "PYTHONPATH": source, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=True,
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return cpu, float(out.stdout or "nan")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("engine", choices=["loky", "threading"])
    parser.add_argument("--beside", type=Path, help="another source tree")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--runs", type=int, default=300)
    parser.add_argument("--part", choices=["empty", "study"], help="for the program's own use")
    given = parser.parse_args()
    if given.part:
        (empty if given.part == "empty" else study)(given.engine, given.runs)
        return
    arms = {"an empty joblib task": (str(HERE), "empty"), "a run": (str(HERE), "study")}
    if given.beside:
        arms[f"a run, {given.beside}"] = (str(given.beside.resolve()), "study")
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in arms}
    few = given.runs // 6
    for number in range(given.rounds):
        for name in list(arms)[:: -1 if number % 2 else 1]:
            source, what = arms[name]
            (low, _), (high, passed) = (
                spent(source, what, given.engine, runs) for runs in (few, given.runs)
            )
            found[name].append((1000 * (high - low) / (given.runs - few), 1000 * passed))
    for name, rounds in found.items():
        cpu, passed = (statistics.median(column) for column in zip(*rounds, strict=True))
        print(f"{name}: {cpu:.2f} ms of the processor, {passed:.2f} ms passed")


if __name__ == "__main__":
    main()
