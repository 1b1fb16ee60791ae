"""What is asked on the way may be answered in any way: no guarantee gets smaller for it."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import optuna
import pytest
from support import RUN, exactly, finished_study, study_of

import optuna_dp as odp
from optuna_dp import asides
from optuna_dp.accounting.event_json import canonical_key
from optuna_dp.accounting.run_profile import _pair_cached
from optuna_dp.errors import ReleaseRefusedError


@pytest.fixture
def answers() -> Iterator[dict[str, Any]]:
    """The functions that are asked; put back afterwards."""
    before = dict(asides._functions)
    yield asides._functions
    asides._functions.clear()
    asides._functions.update(before)


def test_a_release_does_not_wait_for_what_the_reminders_say(answers: dict[str, Any]) -> None:
    study = finished_study()
    answers["reminders of a release"] = lambda evidence: "nonsense"
    release = odp.release(study, RUN)
    assert odp.release(study, RUN).to_json() == release.to_json()


# What a fine grid says of it is above the truth by less than 1e-4.
COMPOSED = odp.compose(odp.laplace(2.0), odp.laplace(3.0), odp.gaussian(2.0))
GRIDS = [1e-3, 0.01, 0.37, 2.0, 50.0, 1e9, 0.0, -1.0, float("inf"), float("nan")]


@pytest.mark.parametrize("interval", GRIDS, ids=map(repr, GRIDS))
def test_no_grid_makes_a_composition_cheaper(answers: dict[str, Any], interval: float) -> None:
    def epsilon(answer: float) -> float:
        answers["grid of a composition"] = lambda *question: answer
        _pair_cached.cache_clear()
        return float(_pair_cached(canonical_key(COMPOSED), "add_or_remove_one").epsilon(1e-5))

    assert epsilon(interval) >= epsilon(1e-4) - 1e-4
    _pair_cached.cache_clear()


POINTS = [
    [0.0],
    [3.0],
    [0.0, 0.1, 600.0],
    [0.5, 700.0, 1e9, math.nan],
    list(np.linspace(0.0, 2.0, 9)),
]


@pytest.mark.parametrize("points", POINTS, ids=map(repr, POINTS))
def test_no_points_make_a_composition_cheaper(answers: dict[str, Any], points: Any) -> None:
    _pair_cached.cache_clear()
    usual = _pair_cached(canonical_key(COMPOSED), "add_or_remove_one")
    _pair_cached.cache_clear()
    answers["points of a profile"] = lambda *question: points
    found = _pair_cached(canonical_key(COMPOSED), "add_or_remove_one")
    _pair_cached.cache_clear()
    at = np.linspace(0.0, 4.0, 50)
    for one, other in ((found, usual), (found.reversed(), usual.reversed())):
        assert np.all(one.delta(at) >= other.delta(at) - 1e-4)


@pytest.mark.parametrize("points", [[], [1.0, 0.0], [-1.0, 1.0], [math.nan]])
def test_what_are_no_points_is_refused(answers: dict[str, Any], points: Any) -> None:
    _pair_cached.cache_clear()
    answers["points of a profile"] = lambda *question: points
    with pytest.raises(odp.errors.InvalidArgumentError):
        _pair_cached(canonical_key(COMPOSED), "add_or_remove_one")


def test_a_run_that_was_retried_is_refused_whoever_let_it() -> None:
    study = study_of(odp.RandTuneSampler(trials=exactly(2)))
    study.optimize(lambda trial: trial.suggest_float("x", 0, 1), n_trials=1)
    retried = optuna.trial.create_trial(
        state=optuna.trial.TrialState.WAITING,
        system_attrs={"failed_trial": 0, "fixed_params": {"x": 0.5}},
    )
    study.add_trial(retried)
    with pytest.raises(odp.errors.PlanError, match="enqueued or copied"):
        study.optimize(lambda trial: trial.suggest_float("x", 0, 1))
    with pytest.raises(ReleaseRefusedError, match="enqueued"):
        odp.release(study, RUN)
