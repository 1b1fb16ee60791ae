"""A short list with the poor default in it."""

from bench import Bench, Outcome
from task import HERE, Task, from_file

import optuna_dp as odp

listed = from_file(HERE / "arms" / "short_list.py")


def plan(task: Task, epsilon: float) -> odp.BudgetPlan:
    return listed.planned(task, epsilon, task.poor)


def search(bench: Bench, plan: odp.BudgetPlan) -> Outcome:
    return listed.searched(bench, plan, bench.task.poor)
