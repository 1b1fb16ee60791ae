"""A finished private study of each kind."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import optuna
from support import RUN, asking, exactly, study_of

import optuna_dp as odp

RUNS = 5
PLAN = odp.plan_budget(epsilon=3.0, records=1355, batch_size=64, epochs=10, pilots=(3, 1))
CANDIDATES = [{"x": 0.1}, {"x": 0.5}, {"x": 0.9}]


def _mean_utility(trial: optuna.Trial) -> float:
    # 0.79, 0.95, 0.79: no threshold that the loop proposes is within 30 scales of the noise.
    return 0.95 - (trial.suggest_float("x", 0.0, 1.0) - 0.5) ** 2


def dp_hypo(**kwargs: Any) -> optuna.Study:
    sampler = odp.DPHyPOSampler(trials=exactly(RUNS), run=RUN)
    study = study_of(sampler, **kwargs)
    callbacks: list[Any] = [odp.PrivacyCallback(), odp.dashboard.DashboardCallback()]
    study.optimize(lambda trial: trial.suggest_float("x", 0, 1), callbacks=callbacks)
    return study


def budget(**kwargs: Any) -> optuna.Study:
    study = study_of(odp.BudgetSampler(PLAN), **kwargs)
    callbacks: list[Any] = [odp.PrivacyCallback(), odp.dashboard.DashboardCallback()]
    study.optimize(asking(lambda trial: trial.suggest_float("x", 0, 1)), callbacks=callbacks)
    return study


def propose_test(**kwargs: Any) -> optuna.Study:
    sampler = odp.ProposeTestSampler(
        candidates=CANDIDATES, n_partitions=3000, epsilon=1.0, granularity=0.1, resolve=0.2
    )
    return _choose(study_of(sampler, **kwargs), _mean_utility)


def noisy_max(**kwargs: Any) -> optuna.Study:
    sampler = odp.NoisyMaxSampler(candidates=CANDIDATES, n_partitions=1000, epsilon=2.0)
    return _choose(study_of(sampler, **kwargs), _mean_utility)


KINDS: dict[str, Callable[..., optuna.Study]] = {
    "dp_hypo": dp_hypo,
    "budget": budget,
    "propose_test": propose_test,
    "noisy_max": noisy_max,
}


def _choose(study: optuna.Study, objective: Callable[[optuna.Trial], float]) -> optuna.Study:
    study.optimize(objective, callbacks=[odp.dashboard.DashboardCallback()])
    return study
