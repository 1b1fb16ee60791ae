"""Noisy max: trainings without privacy on parts, a private choice for a quarter, then one run.

Only at a task's largest epsilon: at smaller ones the noise of the choice hides everything.
"""

import warnings
from typing import Any

import optuna
from bench import Bench, Composed, Outcome
from candidates import parts
from landscape import bare_run
from task import Task

import optuna_dp as odp

SHARE = 0.25


def plan(task: Task, epsilon: float) -> Composed | None:
    if epsilon < max(task.epsilons):
        return None
    choice = odp.bounded_range(SHARE * epsilon)
    return Composed.planned(epsilon, lambda noise: [bare_run(task, noise, task.steps)], choice)


def sampler(bench: Bench, event: Any) -> optuna.samplers.BaseSampler:
    return odp.NoisyMaxSampler(
        candidates=[{"place": i} for i in range(len(bench.task.configurations()))],
        n_partitions=parts(bench.task),
        epsilon=SHARE * bench.epsilon,
        training=event,
    )


def search(bench: Bench, plan: Composed, sampler: Any = sampler) -> Outcome:
    found, (run,) = bench.utilities(plan.runs[0]), plan.runs
    every = bench.task.configurations()

    def objective(trial: optuna.Trial) -> float:
        place = trial.suggest_int("place", 0, len(every) - 1)
        return odp.report_utilities(trial, found[place].tolist())

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that the noise hides much is what is measured
        chooses = sampler(bench, run.event)
    study = optuna.create_study(direction="maximize", sampler=chooses)
    study.optimize(objective)
    choice = odp.release(study)
    # Propose-test may end without a choice; any other then, as there is no guess.
    chosen = bench.draw(1)[0] if choice.params is None else every[choice.params["place"]]
    model = bench.run(chosen, run)
    bench.check(choice.with_training(run.event, artifact=str(model).encode()), plan.guarantee)
    return bench.outcome(model)
