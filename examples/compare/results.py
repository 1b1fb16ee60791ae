"""Tables and the figure of what ``run.py`` found.

python results.py        # results.md, compared.svg, the tables of docs/explanation/searches.md
"""

from __future__ import annotations

import csv
from collections import defaultdict
from pathlib import Path

import numpy as np
from landscape import FOLDER, MEASURES, Landscape
from scipy import stats

# Test scores by (task, epsilon) and arm, by repetition.
Found = dict[tuple[str, str], dict[str, dict[int, float]]]


def read(path: Path) -> Found:
    found: Found = defaultdict(lambda: defaultdict(dict))
    with path.open(newline="") as file:
        for row in csv.DictReader(file):
            cell = found[row["task"], row["epsilon"]]
            cell[row["arm"]][int(row["repetition"])] = 100.0 * float(row["test"])
    return found


def interval(values: np.ndarray) -> tuple[float, float]:
    """Mean and half-width of its 95 % interval (Student's t)."""
    n = len(values)
    if n < 2:
        return float(values.mean()), float("inf")
    half = stats.t.ppf(0.975, n - 1) * values.std(ddof=1) / np.sqrt(n)
    return float(values.mean()), float(half)


def paired(here: dict[int, float], there: dict[int, float]) -> tuple[float, float]:
    """Mean difference within repetitions, and its half-width."""
    shared = sorted(here.keys() & there.keys())
    return interval(np.array([here[i] - there[i] for i in shared]))


def table(path: Path, arms: list[str]) -> str:
    """Markdown: means, and differences to the first arm, in points."""
    lines = ["| task, epsilon | " + " | ".join(arms) + " |", "|---" * (len(arms) + 1) + "|"]
    for (task, epsilon), cell in read(path).items():
        first = cell.get(arms[0])
        parts = []
        for arm in arms:
            if arm not in cell:
                parts.append("")
                continue
            shown = f"{np.mean(list(cell[arm].values())):.1f}"
            if first is not None and arm != arms[0]:
                shown += " ({:+.1f} ± {:.1f})".format(*paired(cell[arm], first))
            parts.append(shown)
        lines.append(f"| {task}, {epsilon} | " + " | ".join(parts) + " |")
    return "\n".join(lines)


def figure(path: Path, arms: list[str], to: Path) -> None:
    """Draws differences to the first arm with their intervals; needs matplotlib."""
    try:
        import matplotlib.pyplot as plt
    except ImportError:
        print("Without matplotlib there is no figure.")
        return
    cells = read(path)
    shown, axis = plt.subplots(figsize=(7.0, 1.0 + 0.3 * len(cells)))
    for place, arm in enumerate(arms[1:]):
        rows = [
            (i, *paired(cell[arm], cell[arms[0]]))
            for i, cell in enumerate(cells.values())
            if arm in cell and arms[0] in cell
        ]
        if rows:
            at, means, halves = (np.array(column) for column in zip(*rows, strict=True))
            at = at + 0.6 * ((place + 0.5) / max(len(arms) - 1, 1) - 0.5)
            axis.errorbar(means, at, xerr=halves, fmt="o", ms=3, label=arm)
    axis.axvline(0.0, color="gray", lw=0.8)
    axis.set_yticks(range(len(cells)), [f"{task}, {epsilon}" for task, epsilon in cells])
    axis.set_xlabel(f"points of test score beyond {arms[0]}")
    axis.invert_yaxis()
    axis.legend()
    shown.tight_layout()
    shown.savefig(to, metadata={"Date": None} if to.suffix == ".svg" else None)
    plt.close(shown)


HERE = Path(__file__).parent
STYLE = HERE.parents[1] / "docs" / "figures.mplstyle"
PAGE_ARMS = ("one_good", "one_poor", "one_random", "expert", "budget", "budget_poor")
PAGE_ARMS += (
    "budget_none",
    "budget_expert",
    "randtune",
    "randtune30",
    "dp_hypo",
    "noisy_max",
    "propose_test",
    "free_choice",
)
RIVALS = ("randtune", "randtune30", "dp_hypo", "noisy_max", "propose_test", "expert")


SMALL = {"digits": 1348, "breast_cancer": 427, "diabetes": 332, "progress": 332, "wine": 134}
# Where a task's epsilon stands among its three.
PLACES = {"0.1": 0, "0.3": 1, "1": 0, "3": 1, "8": 2}


def group(task: str, epsilon: str) -> tuple[bool, int]:
    """Whether a task is small, and the place of an epsilon."""
    small = task in SMALL
    return small, PLACES[epsilon] if small or epsilon != "1" else 2


def summary(path: Path) -> str:
    """Markdown: mean differences to one run at a good default, by size and epsilon."""
    groups = [(small, place) for small in (True, False) for place in range(3)]
    heads = [f"small, {e}" for e in ("1", "3", "8")] + [f"large, {e}" for e in ("0.1", "0.3", "1")]
    lines = ["| arm | " + " | ".join(heads) + " |", "|---" * 7 + "|"]
    cells = read(path)
    for arm in PAGE_ARMS[1:]:
        parts = []
        for one in groups:
            pairs = [
                paired(cell[arm], cell["one_good"])
                for at, cell in cells.items()
                if group(*at) == one and arm in cell
            ]
            half = np.sqrt(sum(half**2 for _, half in pairs)) / max(len(pairs), 1)
            shown = f"{np.mean([mean for mean, _ in pairs]):+.1f}±{half:.1f}" if pairs else ""
            parts.append(shown)
        lines.append(f"| {arm} | " + " | ".join(parts) + " |")
    return "\n".join(lines)


def standings(path: Path) -> str:
    """Markdown: in how many cells a rival is behind a budget, and ahead, beyond the interval."""
    arms = ("budget_none", "budget", "budget_poor", "budget_expert")
    lines = ["| rival | cells | " + " | ".join(f"behind, ahead of {a}" for a in arms) + " |"]
    lines.append("|---" * 6 + "|")
    for rival in RIVALS:
        cells = [cell for cell in read(path).values() if rival in cell]
        parts = [rival, str(len(cells))]
        for arm in arms:
            found = [paired(cell[rival], cell[arm]) for cell in cells]
            behind = sum(mean + half < 0.0 for mean, half in found)
            ahead = sum(mean - half > 0.0 for mean, half in found)
            parts.append(f"{behind}, {ahead}")
        lines.append("| " + " | ".join(parts) + " |")
    return "\n".join(lines)


def falls_short(path: Path) -> list[str]:
    """What was asked of a budget and does not hold, cell by cell."""
    lines = []
    for (task, epsilon), cell in read(path).items():
        mean = {arm: float(np.mean(list(runs.values()))) for arm, runs in cell.items()}
        small, large = task in SMALL, SMALL.get(task, 20_000) * float(epsilon)

        def say(text: str, where: str = f"{task}, {epsilon}") -> None:
            lines.append(f"* {where}: {text}")

        lost = mean["one_good"] - mean["budget"]
        if lost > (1.5 if small and epsilon == "1" else 1.0):
            say(f"{lost:.1f} behind one_good")
        gain, possible_gain = (
            mean[arm] - mean["one_poor"] for arm in ("budget_poor", "free_choice")
        )
        if possible_gain >= 8.0 and gain < 5.0:
            known = "" if large >= 3000 else " (few records)"
            say(f"{gain:.1f} gained on one_poor, of {possible_gain:.1f}{known}")
        for rival in RIVALS[:-1]:  # "expert" knows the other tasks
            if rival not in cell:
                continue
            ahead, half = paired(cell["budget_none"], cell[rival])
            if ahead + half < 0.0:
                say(f"{rival} ahead by {-ahead:.1f} ± {half:.1f}")
        random = mean["one_random"]
        possible_gain = mean["free_choice"] - random
        way = (mean["budget_none"] - random) / possible_gain
        # Free choice by the score of the records trained on may be no better than chance.
        asked = epsilon == ("3" if small else "1") and possible_gain >= 1.0
        if asked and way < (0.7 if small else 0.85):
            say(f"{way:.2f} of the way to free_choice")
    return lines


def most_work(path: Path, arm: str) -> float:
    """The dearest search of an arm, in trainings."""
    with path.open(newline="") as file:
        return max(float(row["work"]) for row in csv.DictReader(file) if row["arm"] == arm)


def remembered() -> str:
    """How far scores on the training's records are above those of the test."""
    parts = []
    for path in sorted(FOLDER.glob("*.npz")):
        land = Landscape.read(path.stem)
        runs = land.at(land.whole.min(), land.steps[0]).mean(axis=(0, 1))
        gap = runs[MEASURES.index("score")] - runs[MEASURES.index("test")]
        parts.append(f"{path.stem} {100.0 * gap:.1f}")
    return "Training score less test score at the largest epsilon: " + ", ".join(parts)


def main() -> None:
    path = HERE / "searches.csv"
    page = "# Searches, cell by cell\n\n`python examples/compare/results.py` wrote this page from "
    page += "`searches.csv`; [what it says](../explanation/searches.md).\n\n"
    (HERE / "results.md").write_text(page + table(path, list(PAGE_ARMS)) + "\n")
    figure(path, ["one_good", "budget", "budget_poor", "randtune30"], HERE / "compared.svg")
    shown = (summary(path), standings(path), "\n".join(falls_short(path)), remembered())
    for part in shown:
        print(part + "\n")
    print(f"A budget's search took at most {most_work(path, 'budget'):.1f} trainings.")


if __name__ == "__main__":
    main()
