"""Successive halving with composed rungs: everything is charged for, nothing is secret."""

from bench import Bench, Composed, Outcome, scored
from task import Task

WIDTHS = (8, 4, 2, 1)  # Settings on each rung; a rung trains each for 1 / width of the steps.


def plan(task: Task, epsilon: float) -> Composed:
    def runs(noise: float) -> list:
        every = [width for width in WIDTHS for _ in range(width)]
        return [scored(task, noise, task.steps // width, 8.0 * noise) for width in every]

    return Composed.planned(epsilon, runs)


def search(bench: Bench, plan: Composed) -> Outcome:
    left, paid = bench.draw(WIDTHS[0]), iter(plan.runs)
    for width in WIDTHS:
        tried = [bench.tried(params, next(paid)) for params in left[:width]]
        tried.sort(key=lambda one: one.score, reverse=True)
        left = [one.params for one in tried]
    return bench.outcome(tried[0].model)
