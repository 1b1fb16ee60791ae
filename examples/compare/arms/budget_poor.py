"""A budget whose first guess is poor."""

from bench import Bench, Outcome
from task import HERE, from_file

import optuna_dp as odp

budget = from_file(HERE / "arms" / "budget.py")
plan = budget.plan


def search(bench: Bench, plan: odp.BudgetPlan) -> Outcome:
    return budget.searched(bench, plan, bench.task.poor)
