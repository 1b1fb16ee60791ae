"""DP-HyPO: 10 secret runs on average, which learn within density bounds; history bound."""

import optuna
from bench import Bench, Outcome, Selection
from task import Task

import optuna_dp as odp

BOUNDS = (0.75, 2.0)


def plan(task: Task, epsilon: float) -> Selection:
    return Selection.planned(task, epsilon, odp.Geometric(10), BOUNDS)


def search(bench: Bench, plan: Selection) -> Outcome:
    sampler = odp.DPHyPOSampler(
        dict(bench.task.space),
        trials=plan.trials,
        density_bounds=BOUNDS,
        startup_runs=0,
        run=plan.run.event,
    )
    study = optuna.create_study(direction="maximize", sampler=sampler)
    study.optimize(bench.objective(plan.run), callbacks=[odp.PrivacyCallback()])
    return bench.released(study, plan.guarantee)
