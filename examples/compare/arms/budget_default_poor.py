"""The default plan, whatever it is, with a poor first guess and no list."""

from bench import public
from task import HERE, Task, from_file

import optuna_dp as odp

search = from_file(HERE / "arms" / "budget_poor.py").search


def plan(task: Task, epsilon: float) -> odp.BudgetPlan:
    return odp.plan_budget(**public(task, epsilon))
