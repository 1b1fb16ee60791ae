"""Small studies with a budget, whose runs the software held, compared, or did not see."""

from __future__ import annotations

from typing import Any

import numpy as np
import optuna
from support import recorded, study_of

import optuna_dp as odp

RNG = np.random.default_rng(0)
X = RNG.normal(size=(500, 5))
Y = (X[:, 0] > 0).astype(int)
TRAINED, SCORED = (X[:400], Y[:400]), (X[400:], Y[400:])
# One step on all records is a Gaussian mechanism, whose cost takes no time to compute.
STEP: Any = {"records": 400, "batch_size": 400}
PLAN = odp.plan_budget(epsilon=3.0, **STEP, epochs=1, pilots=2)
DISJOINT = odp.plan_budget(epsilon=3.0, **STEP, epochs=1, pilots=2, score="disjoint")
STEPS_OF_DP_SGD: Any = {"noise_multiplier": 4.0, "sample_rate": 0.25, "steps": 2}
RUN: Any = {**STEP, "steps": 1, "noise_multiplier": 4.0, "score_noise_multiplier": 20.0}


def trains(trial: optuna.Trial) -> float:
    """Trains and scores by the software, on disjoint records where the plan says so."""
    run = odp.start_run(trial)
    trial.suggest_float("a", 0, 1)
    others: dict[str, Any] = {}
    if run.scored_on == "disjoint":
        others = {"score_records": SCORED, "score_size": 100}
    score = odp.train(run, odp.SoftmaxRegression(5, 2), TRAINED, score="accuracy", **others).score
    assert score is not None
    return score


def compares(trial: optuna.Trial) -> float:
    """Has a loop of its own, and hands in what it wrote down."""
    run = odp.start_run(trial)
    trial.suggest_float("a", 0, 1)
    noise, rate, steps = run.noise_multiplier, run.sample_rate, run.steps
    run.spent(recorded(odp.dp_sgd(noise_multiplier=noise, sample_rate=rate or 1.0, steps=steps)))
    size = 100 if run.scored_on == "disjoint" else None
    return run.score(np.ones(size or 400), size=size)


def shows_nothing(trial: optuna.Trial) -> float:
    odp.start_run(trial)
    return trial.suggest_float("a", 0, 1)


def released(
    objective: Any, plan: odp.BudgetPlan = PLAN, described: int | None = None, **options: Any
) -> odp.Release:
    study = study_of(odp.BudgetSampler(plan))
    if described is not None:
        odp.describe(study, records=described)
    study.optimize(objective)
    return odp.release(study, **options)
