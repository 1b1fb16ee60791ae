"""Successive halving with composed rungs: everything is charged for, nothing is secret."""

from dataclasses import replace
from typing import Any

from bench import Bench, Outcome, Selection
from dp_accounting import ExplicitBracketInterval, calibrate_dp_mechanism
from landscape import DELTA, bare_run
from task import Task

import optuna_dp as odp

WIDTHS = (8, 4, 2, 1)  # Settings on each rung; a rung trains each for 1 / width of the steps.


def rung(task: Task, noise: float, width: int) -> Any:
    run, score = bare_run(task, noise, max(task.steps // width, 1)), 8.0 * noise
    event = odp.compose(run.event, odp.scoring.score_event(score))
    return replace(run, score_noise_multiplier=score, event=event)


def plan(task: Task, epsilon: float) -> Selection:
    def whole(noise: float) -> Any:
        return odp.compose(*[rung(task, noise, w).event for w in WIDTHS for _ in range(w)])

    accountant = odp.accounting.SelectionAccountant
    between = ExplicitBracketInterval(0.1, 100.0)
    noise = calibrate_dp_mechanism(accountant, whole, epsilon, DELTA, between, tol=1e-3)
    return Selection(rung(task, noise, 1), None, odp.Guarantee(whole(noise)))


def search(bench: Bench, plan: Selection) -> Outcome:
    every, found = bench.task.configurations(), []
    drawn = bench.rng.choice(len(every), WIDTHS[0], replace=len(every) < WIDTHS[0])
    left = [every[i] for i in drawn]
    for width in WIDTHS:
        paid = rung(bench.task, plan.run.noise_multiplier, width)
        found = [(bench.run(params, paid), params) for params in left[:width]]
        scores = {model: bench.score(model, paid.score_noise_multiplier) for model, _ in found}
        left = [params for _, params in sorted(found, key=lambda one: -scores[one[0]])]
    return bench.outcome(found[0][0])
