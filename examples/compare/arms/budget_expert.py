"""A budget whose first guess is that of the expert."""

from bench import Bench, Outcome
from task import HERE, from_file

import optuna_dp as odp

budget, expert = (from_file(HERE / "arms" / f"{arm}.py") for arm in ("budget", "expert"))
plan = budget.plan


def search(bench: Bench, plan: odp.BudgetPlan) -> Outcome:
    return budget.searched(bench, plan, expert.best(bench.task, bench.epsilon))
