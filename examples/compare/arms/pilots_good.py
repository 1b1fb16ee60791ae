"""A budget with pilots whatever they see, and a good first guess."""

from bench import public
from task import HERE, Task, from_file

import optuna_dp as odp

search = from_file(HERE / "arms" / "budget.py").search


def plan(task: Task, epsilon: float) -> odp.BudgetPlan:
    # Who gives the noise increase asks for pilots; this is the default one.
    increase = 1.08 if epsilon >= 2.0 else 1.15
    return odp.plan_budget(**public(task, epsilon), noise_increase=increase)
