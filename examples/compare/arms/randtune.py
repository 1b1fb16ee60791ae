"""RandTune: the best of a secret number of runs, 10 on average, drawn at random."""

import optuna
from bench import Bench, Outcome, Selection
from task import Task

import optuna_dp as odp


def plan(task: Task, epsilon: float, mean: int = 10) -> Selection:
    return Selection.planned(task, epsilon, odp.Geometric(mean), (1.0, 1.0))


def search(bench: Bench, plan: Selection) -> Outcome:
    sampler = odp.RandTuneSampler(trials=plan.trials, run=plan.run.event)
    study = optuna.create_study(direction="maximize", sampler=sampler)
    study.optimize(bench.objective(plan.run), callbacks=[odp.PrivacyCallback()])
    return bench.released(study, plan.guarantee)
