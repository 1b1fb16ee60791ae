"""Expert: one run of what was best on the other tasks, as far as names say the same there.

What is compared between tasks is the feature map and whether there is a hidden layer. A choice is
worth its mean distance from the best of each other task, at the largest, middle or smallest
epsilon as here; of configurations that are worth the same the first is taken. Tasks of the same
records are left out besides the task itself.
"""

from functools import cache

import numpy as np
from bench import TEST, Bench, Outcome, public
from landscape import FOLDER, Landscape
from task import Params, Task

import optuna_dp as odp

SAME = {"everything": "raw"}
KIN = ({"diabetes", "progress"}, {"flights", "origins"})
FEWEST = 3


def kind(params: Params) -> tuple[str, bool]:
    return SAME.get(params["features"], params["features"]), params["width"] > 0


@cache
def losses(name: str, place: int) -> dict[tuple[str, bool], float]:
    """Points behind the best of a task, by kind, at its epsilon of this place."""
    land = Landscape.read(name)
    means = land.at(land.whole[place], land.steps[0])[:, :, TEST].mean(axis=1)
    kinds = [kind(params) for params in land.configurations]
    behind = means.max() - means
    return {
        one: float(np.mean([b for b, k in zip(behind, kinds, strict=True) if k == one]))
        for one in set(kinds)
    }


def best(task: Task, epsilon: float) -> Params:
    kin = {task.name}.union(*(group for group in KIN if task.name in group))
    others = sorted({path.stem for path in FOLDER.glob("*.npz")} - kin)
    place = int(np.abs(np.log(np.array(task.epsilons) / epsilon)).argmin())
    tables = [losses(name, place) for name in others]

    def behind(params: Params) -> float:
        known = [table[kind(params)] for table in tables if kind(params) in table]
        return float(np.mean(known)) if len(known) >= FEWEST else np.inf

    return min(task.configurations(), key=behind)


def plan(task: Task, epsilon: float) -> odp.BudgetPlan:
    return odp.plan_budget(**public(task, epsilon), pilots=0, score_final=False)


def search(bench: Bench, plan: odp.BudgetPlan) -> Outcome:
    return bench.outcome(bench.run(best(bench.task, bench.epsilon), plan.final))
