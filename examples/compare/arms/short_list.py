"""A short list: the good default, all maps side by side, and four kinds from other tasks."""

from dataclasses import replace

import optuna
from bench import Bench, Outcome, public
from kinds import place_of, short_list
from landscape import JOINED
from optuna.distributions import CategoricalDistribution
from task import Params, Task

import optuna_dp as odp


def lists(task: Task, epsilon: float, guess: Params | None) -> list[list[Params]]:
    return short_list(task, guess, (place_of(task, epsilon),))


def plan(task: Task, epsilon: float) -> odp.BudgetPlan:
    return planned(task, epsilon, task.good)


def planned(task: Task, epsilon: float, guess: Params | None) -> odp.BudgetPlan:
    count = len(lists(task, epsilon, guess))
    return odp.plan_budget(**public(task, epsilon), candidates=count)


def searched(bench: Bench, plan: odp.BudgetPlan, guess: Params | None) -> Outcome:
    # What a kind leaves open is drawn: one configuration of each.
    candidates = [
        those[int(bench.rng.integers(len(those)))]
        for those in lists(bench.task, bench.epsilon, guess)
    ]
    names = dict(bench.task.space)
    features = names["features"]
    assert isinstance(features, CategoricalDistribution)
    names["features"] = CategoricalDistribution((*features.choices, JOINED))
    wider = replace(bench, task=replace(bench.task, space=names))
    sampler = odp.BudgetSampler(plan, candidates=candidates)
    study = optuna.create_study(direction="maximize", sampler=sampler)
    study.optimize(wider.objective())
    return wider.released(study, plan.guarantee)


def search(bench: Bench, plan: odp.BudgetPlan) -> Outcome:
    return searched(bench, plan, bench.task.good)
