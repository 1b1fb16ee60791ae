"""Draws the experiment from its result files; prints the tables as Markdown::

python examples/headline/figures.py             # docs/_static/headline.svg, and the tables
python examples/headline/figures.py --tables    # tables only; needs no matplotlib
"""

from __future__ import annotations

import argparse
import csv
import hashlib
import json
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats

HERE = Path(__file__).parent
STATIC = HERE.parents[1] / "docs" / "_static"
NAMES = {"digits": "digits", "breast_cancer": "breast cancer"}
EPSILONS = (1.0, 3.0, 8.0)
COLOURS = {
    "no tuning": "#8c8c8c",
    "no tuning, all records": "#4d4d4d",
    "grid, composed": "#C44E52",
    "RandTune, RDP": "#DD8452",
    "RandTune": "#4C72B0",
    "RandTune, 30 runs": "#64B5CD",
    "DP-HyPO": "#8172B3",
    "pilots": "#55A868",
    "propose-test, all records": "#937860",
    "noisy max, all records": "#DA8BC3",
    "noisy max": "#8C3F73",
}
CEILINGS = {"free choice": ":", "no privacy": "-"}
REFERENCE = "RandTune"

Cell = tuple[str, float]
Runs = dict[tuple[str, float, str], dict[int, tuple[float, int]]]


def digest(results: Path) -> str:
    """What the figure says it was drawn from."""
    return "runs.csv " + hashlib.sha256((results / "runs.csv").read_bytes()).hexdigest()


def read_runs(results: Path) -> Runs:
    """Accuracy and number of runs by (data, epsilon, arm) and repetition."""
    found: Runs = defaultdict(dict)
    with (results / "runs.csv").open(newline="") as file:
        for row in csv.DictReader(file):
            place = row["data"], float(row["epsilon"]), row["arm"]
            found[place][int(row["repetition"])] = float(row["accuracy"]), int(row["runs"])
    return dict(found)


def cells(runs: Runs) -> list[Cell]:
    return [(n, e) for n in NAMES for e in EPSILONS if (n, e, REFERENCE) in runs]


def accuracies(runs: Runs, cell: Cell, arm: str) -> np.ndarray[Any, Any]:
    """By repetition, (repetitions,)."""
    found = runs[(*cell, arm)]
    return np.array([found[i][0] for i in sorted(found)])


def interval(values: np.ndarray[Any, Any]) -> tuple[float, float]:
    """Mean and half-width of its 95 % interval (Student's t)."""
    n = len(values)
    if n < 2:
        return float(values.mean()), float("inf")
    half = stats.t.ppf(0.975, n - 1) * values.std(ddof=1) / np.sqrt(n)
    return float(values.mean()), float(half)


def table(head: list[str], rows: list[list[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"


def short(cell: Cell) -> str:
    return f"{NAMES[cell[0]]}, {cell[1]:g}"


def tables(results: Path) -> None:
    runs = read_runs(results)
    where = cells(runs)
    arms = [*COLOURS, *CEILINGS]
    head = ["arm", *(short(cell) for cell in where)]

    print("Accuracy in per cent\n")
    means = {
        (cell, arm): interval(100 * accuracies(runs, cell, arm)) for cell in where for arm in arms
    }
    print(table(head, [[arm, *(f"{means[c, arm][0]:.1f}" for c in where)] for arm in arms]))

    print("Accuracy in per cent, with 95 % intervals\n")
    rows = [
        [arm, *("{:.1f} ± {:.1f}".format(*means[cell, arm]) for cell in where)] for arm in arms
    ]
    print(table(head, rows))

    print(f"Difference to {REFERENCE} in points, same repetitions\n")
    rows = []
    for arm in arms:
        if arm == REFERENCE:
            continue
        row = [arm]
        for cell in where:
            reference = accuracies(runs, cell, REFERENCE)
            mean, half = interval(100 * (accuracies(runs, cell, arm) - reference))
            row.append(f"{mean:+.1f} ± {half:.1f}")
        rows.append(row)
    print(table(head, rows))

    plans = json.loads((results / "plans.json").read_text())

    def plan(cell: Cell, arm: str) -> dict[str, Any]:
        return dict(plans[f"{cell[0]}, epsilon {cell[1]:g}, {arm}"])

    print("Noise multiplier of a training / of a score; runs on average\n")
    rows = []
    for arm in [*COLOURS, "free choice"]:
        row = [arm]
        for cell in where:
            found = plan(cell, arm)
            score = "" if found["score_noise"] is None else f" / {found['score_noise']:.1f}"
            row.append(f"{found['noise']:.2f}{score}")
        rows.append([*row, f"{plan(where[0], arm)['runs']:g}"])
    print(table([*head, "runs"], rows))

    print("Epsilon of everything released, by this package's accounting\n")
    rows = [
        [arm, *(f"{plan(cell, arm)['epsilon']:.3f}" for cell in where)]
        for arm in [*COLOURS, "free choice"]
    ]
    print(table(head, rows))

    counts = [len(runs[(*cell, arm)]) for cell in where for arm in arms]
    print(f"Repetitions: {min(counts)} to {max(counts)}.")
    took = [n for cell in where for _, n in runs[(*cell, REFERENCE)].values()]
    print(f"Runs that {REFERENCE} took: {np.mean(took):.1f} on average, {max(took)} at most.")


def figure(results: Path, static: Path) -> None:
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = "optuna-dp"
    import matplotlib.pyplot as plt

    runs = read_runs(results)
    where = cells(runs)
    names = [name for name in NAMES if any(cell[0] == name for cell in where)]
    drawn, axes = plt.subplots(1, len(names), figsize=(5.6 * len(names), 5.0), squeeze=False)
    for axis, name in zip(axes[0], names, strict=True):
        here = [cell for cell in where if cell[0] == name]
        for i, (arm, colour) in enumerate(COLOURS.items()):
            shift = (i - (len(COLOURS) - 1) / 2) * 0.07
            found = [interval(100 * accuracies(runs, cell, arm)) for cell in here]
            axis.errorbar(
                [place + shift for place in range(len(here))],
                [mean for mean, _ in found],
                [half if np.isfinite(half) else 0.0 for _, half in found],
                fmt="o",
                markersize=4,
                color=colour,
                label=arm,
                capsize=2,
            )
        for arm, style in CEILINGS.items():
            for place, cell in enumerate(here):
                level = interval(100 * accuracies(runs, cell, arm))[0]
                axis.hlines(
                    level,
                    place - 0.42,
                    place + 0.42,
                    color="black",
                    linestyle=style,
                    linewidth=1,
                    label=f"{arm} (not private)" if place == 0 else None,
                )
        axis.set_title(NAMES[name])
        axis.set_xticks(range(len(here)), [f"{cell[1]:g}" for cell in here])
        axis.set_xlabel("total epsilon (delta 1e-5)")
        axis.set_ylabel("test accuracy of the released model, per cent")
    handles, labels = axes[0][0].get_legend_handles_labels()
    drawn.legend(handles, labels, loc="lower center", ncols=5, fontsize=8, frameon=False)
    drawn.tight_layout(rect=(0, 0.12, 1, 1))
    static.mkdir(parents=True, exist_ok=True)
    made_of = {"Date": None, "Description": digest(results)}
    drawn.savefig(static / "headline.svg", metadata=made_of)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tables", action="store_true", help="print the tables only")
    parser.add_argument("--results", type=Path, default=HERE)
    parser.add_argument("--static", type=Path, default=STATIC, help="where the figure goes")
    options = parser.parse_args()
    tables(options.results)
    if not options.tables:
        figure(options.results, options.static)


if __name__ == "__main__":
    main()
