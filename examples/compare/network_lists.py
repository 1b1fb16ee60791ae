"""Short lists and their rivals on three tasks of real networks, all of them trained by odp.train.

    python network_lists.py      # network_lists.json, and tables of docs/explanation/searches.md

As ``lists.py``, but the lists are those that ``odp.short_list`` proposes for fine-tuning, images
and tables. They were fixed before these tasks were made, so every task here judges them.
"""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import lists
import numpy as np
from landscape import NETWORK_TASKS, Landscape, stored_name
from results import interval
from task import HERE, Array, Params, from_file

RESULTS = HERE / "network_lists.json"


def files() -> list[str]:
    return [str(path) for path in sorted(NETWORK_TASKS.glob("*.py"))]


class Cell(lists.Cell):
    """One task at one epsilon, with the list that the package proposes."""

    @property
    def name(self) -> str:
        return str(NETWORK_TASKS / f"{self.task.name}.py")

    def candidates(self, guess: Params | None) -> list[list[Params]]:
        proposed = from_file(Path(self.name)).listed()
        first = [] if guess is None else [[guess]]
        return [*first, *([params] for params in proposed if params != guess)]

    def single_runs(self, alone: Array) -> dict[str, float]:
        return {
            "one run: poor default": alone[self.land.place(self.task.poor)],
            "one run: first of the list": alone[self.at(self.candidates(None)[0])].mean(),
        }


def summary(rows: list[dict[str, Any]]) -> str:
    """Markdown: points beyond one run at the good default, by task and epsilon."""
    heads = [f"{row['task']}, {row['epsilon']:g}" for row in rows]
    lines = ["| arm | " + " | ".join(heads) + " | mean |", "|---" * (len(heads) + 2) + "|"]
    for arm in rows[0]["points"]:
        values = [row["points"][arm] for row in rows]
        parts = " | ".join(f"{value:+.1f}" for value in values)
        lines.append(f"| {arm} | {parts} | {sum(values) / len(values):+.2f} |")
    return "\n".join(lines)


def with_the_twelve(rows: list[dict[str, Any]]) -> str:
    """Markdown: means over the twelve tasks and these three, with intervals over all fifteen."""
    twelve = json.loads(lists.RESULTS.read_text())["cells"]
    lines = ["| arm | twelve tasks | these three | all fifteen |", "|---" * 4 + "|"]
    for arm in rows[0]["points"]:
        if arm not in twelve[0]["points"]:
            continue
        means = [by_task(cells, arm) for cells in (twelve, rows, [*twelve, *rows])]
        center, half = interval(means[2])
        lines.append(
            f"| {arm} | {means[0].mean():+.2f} | {means[1].mean():+.2f} | "
            f"{center:+.2f} ± {half:.1f} |"
        )
    return "\n".join(lines)


def by_task(rows: list[dict[str, Any]], arm: str) -> Array:
    """Means over the epsilons of each task, (tasks,)."""
    names = sorted({row["task"] for row in rows})
    return np.array(
        [np.mean([row["points"][arm] for row in rows if row["task"] == name]) for name in names]
    )


def pages(rows: list[dict[str, Any]]) -> list[str]:
    return [summary(rows), with_the_twelve(rows)]


def main() -> None:
    rows, start = [], time.process_time()
    for name in files():
        task = from_file(Path(name)).task()
        land = Landscape.read(stored_name(name), beyond=True)
        for place, epsilon in enumerate(task.epsilons):
            points = Cell(task, land, epsilon).outcomes()
            row = {"task": task.name, "epsilon": epsilon, "place": place, "records": task.records}
            rows.append(row | {"points": {arm: round(v, 3) for arm, v in points.items()}})
            print(task.name, epsilon, f"{time.process_time() - start:.0f} s", flush=True)
    found = {"made_by": "python examples/compare/network_lists.py", "cells": rows}
    RESULTS.write_text(json.dumps(found, indent=0) + "\n")
    print("\n\n".join(pages(rows)))


if __name__ == "__main__":
    main()
