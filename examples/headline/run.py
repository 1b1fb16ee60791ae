"""What tuning costs in practice: real DP-SGD, every arm at the same total (epsilon, 1e-5).

::

    python examples/headline/run.py                    # 22 repetitions; resumes where it stopped
    python examples/headline/run.py --repetitions 100  # goes on from there
    python examples/headline/run.py --quick --results FOLDER
    python examples/headline/figures.py                # figure and tables

``plans.json`` has the noise and the guarantee of every arm, ``runs.csv`` a line per search. Each
repetition has a split of its own, the same for all arms; all other randomness is the operating
system's, so a second experiment gives other numbers within the intervals.
"""

from __future__ import annotations

import argparse
import csv
import time
from collections.abc import Iterator
from pathlib import Path

import optuna
from arms import Bench, run_arm
from plans import ARMS, EPSILONS, Plan, key, plan_all
from tasks import NAMES, size_of, split

HERE = Path(__file__).parent
FIELDS = ("data", "epsilon", "repetition", "arm", "accuracy", "runs", "rate", "norm")
Search = tuple[str, float, int, str]
Params = dict[str, float]


def finished(path: Path) -> dict[Search, Params]:
    """What was chosen, by (data, epsilon, repetition, arm); makes the file if there is none."""
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(",".join(FIELDS) + "\n")
        return {}
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    return {
        (r["data"], float(r["epsilon"]), int(r["repetition"]), r["arm"]): {
            "learning_rate": float(r["rate"]),
            "clipping_norm": float(r["norm"]),
        }
        for r in rows
    }


def group(
    name: str, epsilon: float, repetition: int, plans: dict[str, Plan], done: dict[Search, Params]
) -> Iterator[str]:
    """One repetition of the arms that are not done, as lines of the file."""
    noise = plans[key(name, epsilon, "no tuning, all records")].noise
    bench = Bench(size_of(name), split(name, repetition), noise)
    chosen: dict[str, Params] = {}
    for arm in ARMS:
        if (name, epsilon, repetition, arm) in done:
            chosen[arm] = done[name, epsilon, repetition, arm]
            continue
        found = run_arm(arm, bench, plans[key(name, epsilon, arm)], epsilon, chosen)
        chosen[arm] = params = found.params
        yield (
            f'{name},{epsilon:g},{repetition},"{arm}",{found.accuracy:.4f},{found.runs},'
            f"{params['learning_rate']:.3g},{params['clipping_norm']:.3g}\n"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repetitions", type=int, default=22)
    parser.add_argument("--quick", action="store_true", help="one repetition of one group")
    parser.add_argument("--results", type=Path, default=HERE)
    options = parser.parse_args()
    if options.quick and options.results == HERE:
        parser.error("--quick needs --results, so that it does not mix with the full results")
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    names, epsilons = (("breast_cancer",), (3.0,)) if options.quick else (NAMES, EPSILONS)
    options.results.mkdir(parents=True, exist_ok=True)
    runs = options.results / "runs.csv"
    done = finished(runs)
    plans = plan_all(names, epsilons, options.results / "plans.json")
    for repetition in range(1 if options.quick else options.repetitions):
        start = time.process_time()
        for name in names:
            for epsilon in epsilons:
                lines = "".join(group(name, epsilon, repetition, plans, done))
                with runs.open("a") as file:
                    file.write(lines)
        print(f"repetition {repetition}: {time.process_time() - start:.0f} s", flush=True)


if __name__ == "__main__":
    main()
