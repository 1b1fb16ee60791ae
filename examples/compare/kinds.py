"""Which kinds of models were best on other tasks, for short lists of candidates.

    python kinds.py          # writes optuna_dp/planning/short_lists.json; seconds

A kind is a public feature map, and whether there is a hidden layer. What a kind is worth on a task
is how many points it is behind the best configuration there, in the mean over the configurations
of that kind, at each of the task's three epsilons. Kinds that fewer than three tasks have are left
out.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
from bench import TEST
from landscape import FOLDER, Landscape
from task import HERE, Params, Task, from_file

expert = from_file(HERE / "arms" / "expert.py")
KNOWN = HERE.parents[1] / "optuna_dp" / "planning" / "short_lists.json"
Kind = tuple[str, bool]
PLACES = range(3)
# What the package calls these maps.
SHIPPED = {"squares too": "squares", "three bins": "bins", "mixed to few": "mixed"}
# Of a list: all maps side by side, and the best kinds.
KINDS = 4


def kind(params: Params) -> Kind:
    found: Kind = expert.kind(params)
    return found


@cache
def losses(name: str) -> dict[Kind, list[float]]:
    """Points behind the best configuration, by kind, at the task's epsilons."""
    land = Landscape.read(name, beyond=True)
    found: dict[Kind, list[float]] = defaultdict(list)
    for place in PLACES:
        means = 100.0 * land.at(land.whole[place], land.steps[0])[:, :, TEST].mean(axis=1)
        behind: dict[Kind, list[float]] = defaultdict(list)
        for params, mean in zip(land.configurations, means, strict=True):
            behind[kind(params)].append(float(means.max() - mean))
        for one, values in behind.items():
            found[one].append(float(np.mean(values)))
    return dict(found)


def names() -> list[str]:
    return sorted(path.stem for path in FOLDER.glob("*.npz"))


def others(name: str) -> list[str]:
    """All tasks but this one and those of the same records."""
    kin = {name}.union(*(group for group in expert.KIN if name in group))
    return [one for one in names() if one not in kin]


def ranked(tasks: Sequence[str], places: Sequence[int] = PLACES) -> list[tuple[Kind, float, int]]:
    """Kinds by their mean points behind the best, least first, and how many tasks have each."""
    known: dict[Kind, list[float]] = defaultdict(list)
    for name in tasks:
        for one, values in losses(name).items():
            known[one].append(float(np.mean([values[place] for place in places])))
    rows = [
        (one, float(np.mean(values)), len(values))
        for one, values in known.items()
        if len(values) >= expert.FEWEST
    ]
    return sorted(rows, key=lambda row: row[1])


def short_list(
    task: Task, guess: Params | None, places: Sequence[int] = PLACES
) -> list[list[Params]]:
    """The guess, all maps side by side, and the four kinds that were best on other tasks.

    Of each the configurations that it may be: what a kind does not say is drawn at random, as a
    sampler does. Kinds that the task does not have are passed over; those that no other task has
    come last.
    """
    found = [] if guess is None else [[guess]]
    found += [list(task.beyond)] if task.beyond else []
    length, space = len(found) + KINDS, task.configurations()
    known = [one for one, _, _ in ranked(others(task.name), places)]
    for one in dict.fromkeys([*known, *map(kind, space)]):
        those = [params for params in space if kind(params) == one and params != guess]
        if those and len(found) < length:
            found.append(those)
    return found


def place_of(task: Task, epsilon: float) -> int:
    """Where an epsilon stands among the three of a task."""
    return int(np.abs(np.log(np.array(task.epsilons) / epsilon)).argmin())


def record() -> dict[str, Any]:
    """What the package ships."""
    rows = [
        {
            "features": SHIPPED.get(features, features),
            "hidden": hidden,
            "points_behind": round(behind, 1),
            "tasks": count,
        }
        for (features, hidden), behind, count in ranked(names())
    ]
    return {"made_by": "python examples/compare/kinds.py", "kinds": rows}


def main() -> None:
    KNOWN.write_text(json.dumps(record(), indent=1) + "\n")
    print(KNOWN.read_text())


if __name__ == "__main__":
    main()
