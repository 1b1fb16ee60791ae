"""One run of a configuration drawn at random."""

from bench import Bench, Outcome, public
from task import Task

import optuna_dp as odp


def plan(task: Task, epsilon: float) -> odp.BudgetPlan:
    return odp.plan_budget(**public(task, epsilon), pilots=0, score_final=False)


def search(bench: Bench, plan: odp.BudgetPlan) -> Outcome:
    return bench.outcome(bench.run(bench.draw(1)[0], plan.final))
