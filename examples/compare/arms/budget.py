"""A budget whose first guess is good: pilots in the open, then one run."""

import optuna
from bench import Bench, Outcome, public
from task import Task

import optuna_dp as odp


def plan(task: Task, epsilon: float) -> odp.BudgetPlan:
    return odp.plan_budget(**public(task, epsilon))


def search(bench: Bench, plan: odp.BudgetPlan, first: str = "good") -> Outcome:
    sampler = odp.BudgetSampler(plan)
    study = optuna.create_study(direction="maximize", sampler=sampler)
    if first != "none":
        study.enqueue_trial(getattr(bench.task, first))
    study.optimize(bench.objective())
    return bench.released(study, plan.guarantee)
