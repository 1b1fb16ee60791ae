"""Propose-test: as ``noisy_max.py``, with the doubling loop of the papers over a list."""

from functools import cache
from typing import Any

import optuna
from bench import DELTA, Bench, Composed, Outcome
from candidates import parts
from landscape import bare_run
from scipy.optimize import brentq
from task import HERE, Task, from_file

import optuna_dp as odp
from optuna_dp.mechanisms.doubling import DoublingPlan

noisy_max = from_file(HERE / "arms" / "noisy_max.py")
GRANULARITY = 0.05


@cache
def loop(epsilon: float) -> DoublingPlan:
    """The loop that costs the same share of epsilon as the choice of noisy max."""

    def beyond(each: float) -> float:
        event = DoublingPlan(each, GRANULARITY).event()
        return odp.Guarantee(event).epsilon(DELTA) - noisy_max.SHARE * epsilon

    return DoublingPlan(brentq(beyond, 1e-4, epsilon), GRANULARITY)


def plan(task: Task, epsilon: float) -> Composed | None:
    if epsilon < max(task.epsilons):
        return None
    event = loop(epsilon).event()
    return Composed.planned(epsilon, lambda noise: [bare_run(task, noise, task.steps)], event)


def sampler(bench: Bench, event: Any) -> optuna.samplers.BaseSampler:
    return odp.ProposeTestSampler(
        candidates=[{"place": i} for i in range(len(bench.task.configurations()))],
        n_partitions=parts(bench.task),
        epsilon=loop(bench.epsilon).epsilon,
        granularity=GRANULARITY,
    )


def search(bench: Bench, plan: Composed) -> Outcome:
    return noisy_max.search(bench, plan, sampler)
