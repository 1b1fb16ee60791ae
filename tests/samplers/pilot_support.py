"""Studies with pilots that many tests use."""

from __future__ import annotations

from typing import Any

import numpy as np
import optuna
from optuna.distributions import FloatDistribution
from support import exactly

import optuna_dp as odp
from optuna_dp.protocol.records import read_plan

PILOT = odp.gaussian(noise_multiplier=16.0)
X: dict[str, Any] = {"x": FloatDistribution(-1.0, 1.0)}


class Nearest:
    """A score model that is cheap: the mean score of the nearest points."""

    def __repr__(self) -> str:
        return "Nearest()"

    def fit(self, x: Any, y: Any) -> Any:
        return _Nearest(x, y)


class _Nearest:
    def __init__(self, x: Any, y: Any) -> None:
        self._x, self._y = x, y

    def predict(self, x: Any) -> tuple[Any, Any]:
        distance = np.abs(x[:, None, :] - self._x[None, :, :]).sum(axis=2)
        closest = distance <= distance.min(axis=1, keepdims=True) + 1e-12
        return (closest @ self._y) / closest.sum(axis=1), np.zeros(len(x))


def pilot_sampler(space: dict[str, Any] | None = None, **kwargs: Any) -> odp.PilotSampler:
    settings: dict[str, Any] = {
        "pilots": 3,
        "pilot_run": PILOT,
        "trials": exactly(4),
        "candidates": 32,
        "surrogate": Nearest(),
    }
    return odp.PilotSampler(space, **{**settings, **kwargs})


def slots_of(study: optuna.Study) -> int:
    plan, _ = read_plan(study._storage, study._study_id)
    assert plan is not None
    return plan.slots


def check_exactly(study: optuna.Study, pilots: int) -> None:
    """B pilots come first, T selection runs follow, nothing else has parameters."""
    slots = slots_of(study)
    trials = study.trials
    assert len(trials) >= slots >= pilots
    for trial in trials:
        assert trial.state.is_finished()
        assert bool(trial.params) == (trial.number < slots)
        assert odp.is_pilot(trial) == (trial.number < pilots)
