"""Small studies with averaged utilities."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import optuna
import pytest
from optuna.distributions import FloatDistribution
from optuna.trial import Trial

import optuna_dp as odp
from optuna_dp.study.entries import CHOICE

K = 20_000
SPACE = {"x": FloatDistribution(0.0, 1.0, step=0.1)}
GRID = [round(0.1 * i, 10) for i in range(11)]

# So many partitions that the noise hides nothing.
NOISY_MAX = {"n_partitions": K, "epsilon": 1.0}
LOOP = {"n_partitions": K, "epsilon": 0.2, "granularity": 0.1, "resolve": 0.2}

MAKERS: dict[str, Callable[..., Any]] = {
    "noisy_max": lambda *a, **kw: odp.NoisyMaxSampler(*a, **{**NOISY_MAX, **kw}),
    "propose_test": lambda *a, **kw: odp.ProposeTestSampler(*a, **{**LOOP, **kw}),
}

BOTH = pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)


def mean_utility(trial: Trial) -> float:
    """1 at x = 0.4, falling on both sides."""
    return 1.0 - abs(trial.suggest_float("x", 0.0, 1.0, step=0.1) - 0.4)


def run(sampler: Any, objective: Any = mean_utility, **kwargs: Any) -> optuna.Study:
    direction = kwargs.pop("direction", "maximize")
    study = optuna.create_study(direction=direction, sampler=sampler)
    study.optimize(objective, **kwargs)
    return study


def evaluated(study: optuna.Study) -> list[optuna.trial.FrozenTrial]:
    return [trial for trial in study.trials if trial.params]


def choice_trials(study: optuna.Study) -> list[optuna.trial.FrozenTrial]:
    """The trials that hold a private choice."""
    return [t for t in study.trials if CHOICE.key in t.system_attrs]
