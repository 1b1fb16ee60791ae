"""Means in single precision are refused where from_means refuses them: at release too."""

from __future__ import annotations

from typing import Any

import numpy as np
import optuna
import pytest

import optuna_dp as odp
from optuna_dp.errors import ReleaseRefusedError


def released(mean_of: Any) -> odp.Release:
    space = {"x": optuna.distributions.FloatDistribution(0, 1, step=0.25)}
    sampler = odp.NoisyMaxSampler(space, n_partitions=500, epsilon=1.0)
    study = optuna.create_study(direction="maximize", sampler=sampler)
    scores = np.random.default_rng(0).random(500) / 3

    def objective(trial: optuna.Trial) -> Any:
        return mean_of(scores + trial.suggest_float("x", 0, 1, step=0.25) / 3)

    study.optimize(objective)
    return odp.release(study)


def test_means_in_single_precision_are_refused() -> None:
    with pytest.raises(ReleaseRefusedError):
        released(lambda scores: np.mean(scores, dtype=np.float32))
    with pytest.raises(ReleaseRefusedError):
        released(lambda scores: float(scores.astype(np.float32).mean()))


@pytest.mark.parametrize(
    "mean_of",
    [
        lambda scores: float(np.mean(scores)),
        lambda scores: float(np.mean(scores > 0.3)),
        lambda scores: float(np.mean(scores > 0.3) > 0.5),
        lambda scores: round(float(np.mean(scores)) * 64) / 64,
    ],
    ids=["any", "shares", "yes or no", "round"],
)
def test_means_in_double_precision_are_not(mean_of: Any) -> None:
    assert released(mean_of).params is not None
