"""Pruning never compares trials, and a study left with Optuna's default says so once."""

from __future__ import annotations

import warnings
from typing import Any

import optuna
import pytest
from optuna.pruners import (
    BasePruner,
    HyperbandPruner,
    MedianPruner,
    NopPruner,
    PatientPruner,
    PercentilePruner,
    SuccessiveHalvingPruner,
    ThresholdPruner,
    WilcoxonPruner,
)
from optuna.trial import FrozenTrial, TrialState
from refusals import refuses
from support import RUN, exactly, finished_study, logged

import optuna_dp as odp
from optuna_dp.study.entries import PRUNED_BY

with warnings.catch_warnings():
    warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
    CROSS_TRIAL: list[BasePruner] = [
        MedianPruner(n_startup_trials=0),
        PercentilePruner(50.0, n_startup_trials=0),
        SuccessiveHalvingPruner(min_resource=1),
        HyperbandPruner(min_resource=1, max_resource=3),
        WilcoxonPruner(n_startup_steps=0),
        PatientPruner(MedianPruner(), patience=0),
    ]
    WITHIN_TRIAL: list[BasePruner] = [
        NopPruner(),
        ThresholdPruner(upper=1e9),
        PatientPruner(None, patience=1),
        PatientPruner(ThresholdPruner(upper=1e9), patience=1),
    ]


def declines(trial: optuna.Trial) -> float:
    """Every run is worse than the one before, from the first step on."""
    trial.suggest_float("x", 0.0, 1.0)
    for step in range(1, 6):
        trial.report(-float(trial.number) - step, step)
        if trial.should_prune():
            raise optuna.TrialPruned
    return -float(trial.number)


def names(pruner: BasePruner) -> str:
    return type(pruner).__name__


@pytest.mark.promise("a pruner that compares trials")
@pytest.mark.parametrize("pruner", CROSS_TRIAL, ids=names)
def test_a_pruner_that_compares_trials_never_prunes_and_says_so_once(pruner: BasePruner) -> None:
    with logged() as lines:
        study = finished_study(
            odp.RandTuneSampler(trials=exactly(8), run=RUN), declines, pruner=pruner
        )
    assert [t.state for t in study.trials] == [TrialState.COMPLETE] * 8
    said = [line for line in lines if "prune" in line]
    assert len(said) == 1
    assert type(pruner).__name__ in said[0]
    odp.release(study, vouched="a test")


def test_optunas_default_is_silent_if_nobody_asks() -> None:
    with logged() as lines:
        finished_study()
    assert not [line for line in lines if "prune" in line]


def test_the_default_would_prune_here() -> None:
    """The check above could not fail otherwise."""
    study = optuna.create_study(
        direction="maximize",
        sampler=optuna.samplers.RandomSampler(),
        pruner=MedianPruner(n_startup_trials=0),
    )
    study.optimize(declines, n_trials=8)
    assert TrialState.PRUNED in [t.state for t in study.trials]


@pytest.mark.parametrize("pruner", CROSS_TRIAL, ids=names)
def test_wrapping_a_pruner_that_compares_trials_is_refused(pruner: BasePruner) -> None:
    with refuses("pruner"):
        odp.WithinTrialPruner(pruner)


def test_something_that_is_no_pruner_is_refused() -> None:
    with refuses("pruner"):
        odp.WithinTrialPruner("median")  # type: ignore[arg-type]


@pytest.mark.parametrize("pruner", WITHIN_TRIAL, ids=names)
@pytest.mark.parametrize("wrap", [True, False])
@pytest.mark.filterwarnings("ignore::optuna.exceptions.ExperimentalWarning")
def test_pruners_that_look_at_one_trial_work_as_they_are(pruner: BasePruner, wrap: bool) -> None:
    used = odp.WithinTrialPruner(pruner) if wrap else pruner
    study = finished_study(odp.RandTuneSampler(trials=exactly(3), run=RUN), declines, pruner=used)
    pruned = [t for t in study.trials if t.state == TrialState.PRUNED]
    assert len(pruned) == (3 if type(pruner) is PatientPruner and _is_bare(pruner) else 0)
    assert all(t.system_attrs[PRUNED_BY.key] for t in pruned)
    release = odp.release(study, vouched="a test")
    assert (release.params is None) == (len(pruned) == 3)


def _is_bare(pruner: PatientPruner) -> bool:
    return pruner._wrapped_pruner is None


@pytest.mark.promise("a pruner that compares trials")
def test_a_pruner_of_ones_own_sees_one_trial_only() -> None:
    seen: list[Any] = []

    class Nosy(BasePruner):
        def prune(self, study: Any, trial: FrozenTrial) -> bool:
            seen.append([t.number for t in study.trials])
            seen.append([t.number for t in study.get_trials(deepcopy=False)])
            with pytest.raises(AttributeError):
                _ = study.best_value
            with pytest.raises(AttributeError):
                _ = study._storage
            return trial.number == 1

    study = finished_study(
        odp.RandTuneSampler(trials=exactly(3), run=RUN),
        declines,
        pruner=odp.WithinTrialPruner(Nosy()),
    )
    assert all(len(numbers) == 1 for numbers in seen)
    assert [t.state for t in study.trials].count(TrialState.PRUNED) == 1
    odp.release(study, vouched="a test")


def test_a_pruner_of_ones_own_that_is_not_wrapped_does_not_prune() -> None:
    class Always(BasePruner):
        def prune(self, study: Any, trial: FrozenTrial) -> bool:
            return True

    study = finished_study(
        odp.RandTuneSampler(trials=exactly(3), run=RUN), declines, pruner=Always()
    )
    assert [t.state for t in study.trials] == [TrialState.COMPLETE] * 3
