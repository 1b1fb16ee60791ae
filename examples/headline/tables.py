"""The tables of docs/explanation/what-tuning-costs.md, as Markdown::

python examples/headline/tables.py
"""

from __future__ import annotations

import argparse
import csv
import json
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
from plans import ARMS, CELLS, LARGER
from scipy import stats

HERE = Path(__file__).parent
WORDS = {"digits": "digits", "breast_cancer": "cancer", "flights": "flights"}
# What the others are compared with: one run with the same batch.
RECOMMENDED = "one run, rehearsal"
UNTUNED = "usual defaults, SGD"

Cell = tuple[str, float]
Floats = np.ndarray[Any, Any]
# Test accuracy, training accuracy and number of runs, by (data, epsilon, arm) and repetition.
Runs = dict[tuple[str, float, str], dict[int, tuple[float, float, int]]]


def read_runs(results: Path) -> Runs:
    found: Runs = defaultdict(dict)
    with (results / "runs.csv").open(newline="") as file:
        for row in csv.DictReader(file):
            place = row["data"], float(row["epsilon"]), row["arm"]
            found[place][int(row["repetition"])] = (
                float(row["accuracy"]),
                float(row["train_accuracy"]),
                int(row["runs"]),
            )
    return dict(found)


def cells(runs: Runs) -> list[Cell]:
    return [cell for cell in CELLS if (*cell, UNTUNED) in runs]


def accuracies(runs: Runs, cell: Cell, arm: str) -> Floats | None:
    """In per cent by repetition, (repetitions,); None where an arm was not run."""
    found = runs.get((*cell, arm))
    return None if not found else 100.0 * np.array([found[i][0] for i in sorted(found)])


def interval(values: Floats) -> tuple[float, float]:
    """Mean and half-width of its 95 % interval (Student's t)."""
    n = len(values)
    if n < 2:
        return float(values.mean()), float("inf")
    half = stats.t.ppf(0.975, n - 1) * values.std(ddof=1) / np.sqrt(n)
    return float(values.mean()), float(half)


def difference(runs: Runs, cell: Cell, arm: str, reference: str) -> tuple[float, float] | None:
    """Mean of (arm - reference) within repetitions, and its half-width."""
    here, there = (runs.get((*cell, name), {}) for name in (arm, reference))
    shared = sorted(here.keys() & there.keys())
    if not shared:
        return None
    return interval(100.0 * np.array([here[i][0] - there[i][0] for i in shared]))


def reference(arm: str) -> str:
    """One run with the batch of the arm."""
    return f"{RECOMMENDED}, {LARGER}" if arm.endswith(LARGER) else RECOMMENDED


def table(head: list[str], rows: list[list[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"


def by_cell(title: str, where: list[Cell], rows: dict[str, list[str]]) -> None:
    head = ["arm", *(f"{WORDS[name]}, {epsilon:g}" for name, epsilon in where)]
    print(title + "\n")
    print(table(head, [[arm, *row] for arm, row in rows.items() if any(row)]))


def print_results(runs: Runs, where: list[Cell]) -> None:
    def each(show: Any) -> dict[str, list[str]]:
        return {arm: [show(cell, arm) for cell in where] for arm in ARMS}

    def mean(cell: Cell, arm: str) -> str:
        values = accuracies(runs, cell, arm)
        return "" if values is None else f"{values.mean():.1f}"

    def with_interval(cell: Cell, arm: str) -> str:
        values = accuracies(runs, cell, arm)
        return "" if values is None else "{:.1f} ± {:.1f}".format(*interval(values))

    def ahead(cell: Cell, arm: str) -> str:
        found = difference(runs, cell, arm, reference(arm))
        return "" if arm == reference(arm) or found is None else "{:+.1f} ± {:.1f}".format(*found)

    def larger(cell: Cell, arm: str) -> str:
        found = difference(runs, cell, f"{arm}, {LARGER}", arm)
        return "" if found is None else "{:+.1f} ± {:.1f}".format(*found)

    def gap(cell: Cell, arm: str) -> str:
        found = runs.get((*cell, arm))
        if not found:
            return ""
        return f"{100 * np.mean([train - test for test, train, _ in found.values()]):+.1f}"

    by_cell("Accuracy in per cent", where, each(mean))
    by_cell("Accuracy in per cent, with 95 % intervals", where, each(with_interval))
    by_cell(f"Difference to '{RECOMMENDED}' with the same batch, in points", where, each(ahead))
    by_cell("Difference of the larger batch to the usual one, in points", where, each(larger))
    by_cell("Training accuracy less test accuracy, in points", where, each(gap))


def print_history(results: Path, where: list[Cell]) -> None:
    """What the arms of an earlier experiment came to, of which only means are left."""
    found: dict[str, dict[Cell, str]] = defaultdict(dict)
    with (results / "history.csv").open(newline="") as file:
        for row in csv.DictReader(file):
            place = row["data"], float(row["epsilon"])
            found[row["arm"]][place] = f"{float(row['mean']):.1f}"
    rows = {arm: [kept.get(cell, "") for cell in where] for arm, kept in found.items()}
    by_cell("Earlier: two hyperparameters from a wide space, at the usual batch", where, rows)


def print_costs(results: Path, where: list[Cell]) -> None:
    plans = json.loads((results / "plans.json").read_text())

    def plan(cell: Cell, arm: str) -> dict[str, Any] | None:
        found: dict[str, Any] | None = plans.get(f"{cell[0]}, epsilon {cell[1]:g}, {arm}")
        return found

    def noise(cell: Cell, arm: str) -> str:
        found = plan(cell, arm)
        if found is None or not found["noise"]:
            return ""
        score = "" if found["score_noise"] is None else f" / {found['score_noise']:.1f}"
        return f"{found['noise']:.2f}{score}"

    def batch(cell: Cell, arm: str) -> str:
        found = plan(cell, arm)
        return "" if found is None else f"{found['batch']:g}, {found['steps']}"

    def epsilon(cell: Cell, arm: str) -> str:
        found = plan(cell, arm)
        return "" if found is None or found["epsilon"] is None else f"{found['epsilon']:.3f}"

    by_cell(
        "Noise multiplier of the released model's training / of its score",
        where,
        {arm: [noise(cell, arm) for cell in where] for arm in ARMS},
    )
    by_cell(
        "Batch and steps of the released model's training",
        where,
        {arm: [batch(cell, arm) for cell in where] for arm in ("free choice", "free choice, 4 x")},
    )
    by_cell(
        "Epsilon of everything released, by this package's accounting",
        where,
        {arm: [epsilon(cell, arm) for cell in where] for arm in ARMS},
    )
    names = list(dict.fromkeys(name for name, _ in where))
    rows = []
    # The favored batch is a little smaller where epsilon is, so that the work depends on it.
    largest = {name: max(cell for cell in where if cell[0] == name) for name in names}
    for arm in ARMS:
        found = [plan(largest[name], arm) for name in names]
        one = next((kept for kept in found if kept is not None), None)
        if one is not None:
            work = ["" if kept is None else f"{kept['work']:.3g}" for kept in found]
            rows.append([arm, f"{one['runs']:g}", *work])
    print("Private trainings on average; gradients of examples in units of one training\n")
    print(table(["arm", "trainings", *(f"work, {WORDS[name]}" for name in names)], rows))


def tables(results: Path) -> None:
    runs = read_runs(results)
    where = cells(runs)
    print_results(runs, where)
    print_costs(results, where)
    print_history(HERE, where)
    for name in dict.fromkeys(name for name, _ in where):
        counts = {len(found) for (data, _, _), found in runs.items() if data == name}
        print(f"Repetitions, {name}: {min(counts)} to {max(counts)}.")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--results", type=Path, default=HERE)
    tables(parser.parse_args().results)
