"""Reports of Optuna's users, each as a test of its kind: what went wrong there must not cost here.

Each test names the report and the kind of its fault. A report is cited as OWNER/REPOSITORY#NUMBER.
"""

from __future__ import annotations

import math
from collections import Counter
from pathlib import Path
from typing import Any

import optuna
import pytest
from optuna.trial import Trial, TrialState
from refusals import refuses
from support import RUN, ask, exactly, study_of, tell

import optuna_dp as odp

SPACE = {"x": optuna.distributions.FloatDistribution(0.0, 1.0)}
STORAGES = pytest.mark.parametrize("kind", ["memory", "sqlite"])


def storage_at(kind: str, folder: Path) -> str | None:
    return None if kind == "memory" else f"sqlite:///{folder}/s.db"


def plan(pilots: int) -> odp.BudgetPlan:
    return odp.plan_budget(
        epsilon=8.0, run=lambda noise, steps: odp.gaussian(noise), steps=1, pilots=pilots
    )


def noted(calls: list[int]) -> Any:
    """An objective that notes the number of each run."""

    def objective(trial: Trial) -> float:
        ask(trial)
        calls.append(trial.number)
        score: float = tell(trial, trial.suggest_float("x", 0.0, 1.0))
        return score

    return objective


@pytest.mark.slow
@STORAGES
def test_enqueued_pilots_that_several_threads_take_run_once_each(
    kind: str, tmp_path: Path
) -> None:
    """optuna/optuna#4621 and #4002: workers race for enqueued trials."""
    calls: list[int] = []
    study = study_of(odp.BudgetSampler(plan(8)), storage=storage_at(kind, tmp_path))
    for i in range(8):
        study.enqueue_trial({"x": i / 8})
    study.optimize(noted(calls), n_jobs=4)
    assert sorted(Counter(calls).values()) == [1] * 9
    assert {t.params["x"] for t in study.trials[:8]} == {i / 8 for i in range(8)}
    assert len(odp.release(study).pilots) == 8


@pytest.mark.slow
@STORAGES
def test_a_score_that_is_nan_is_a_failed_run_and_never_wins(kind: str, tmp_path: Path) -> None:
    """optuna/optuna#3205 and #3132: a value of nan ends differently by storage and by way."""
    study = study_of(
        odp.RandTuneSampler(trials=exactly(4), run=RUN), storage=storage_at(kind, tmp_path)
    )
    told = study.ask()
    told.suggest_float("x", 0.0, 1.0)
    with pytest.warns(UserWarning, match="nan"):
        study.tell(told, math.nan)
    study.optimize(lambda t: math.nan if t.number == 1 else t.suggest_float("x", 0.0, 1.0))
    assert [t.state for t in study.trials] == [TrialState.FAIL] * 2 + [TrialState.COMPLETE] * 2
    release = odp.release(study, failures="chance", vouched="a test")
    assert release.value == max(t.value for t in study.trials[2:])


@STORAGES
def test_a_pruned_run_that_reported_the_best_value_does_not_win(kind: str, tmp_path: Path) -> None:
    """optuna/optuna#3542 and optuna/optuna-dashboard#852: a pruned trial's value is its last."""
    study = study_of(
        odp.RandTuneSampler(trials=exactly(4), run=RUN),
        storage=storage_at(kind, tmp_path),
        pruner=optuna.pruners.ThresholdPruner(upper=1e6),
    )

    def objective(trial: Trial) -> float:
        x = trial.suggest_float("x", 0.0, 1.0)
        trial.report(1e9 if trial.number == 1 else x, step=0)
        if trial.should_prune():
            raise optuna.TrialPruned
        return x

    study.optimize(objective)
    assert study.trials[1].state == TrialState.PRUNED
    release = odp.release(study, failures="chance", vouched="a test")
    assert release.value is not None
    assert release.value <= 1.0


@STORAGES
def test_a_choice_that_is_nan_is_refused_at_the_first_suggest(kind: str, tmp_path: Path) -> None:
    """optuna/optuna#3567: nan is not equal to itself, so ranges with it seem to change."""
    study = study_of(
        odp.RandTuneSampler(trials=exactly(6), run=RUN), storage=storage_at(kind, tmp_path)
    )

    def objective(trial: Trial) -> float:
        return float(math.isnan(trial.suggest_categorical("c", [math.nan, 1.0])))

    with refuses("choices of 'c'"):
        study.optimize(objective, callbacks=[odp.PrivacyCallback()])
    assert [t.params for t in study.trials] == [{}]


@STORAGES
def test_an_interrupted_run_counts_and_leaves_no_trial_running(kind: str, tmp_path: Path) -> None:
    """optuna/optuna#3336, #913: Ctrl-C leaves a trial running for ever."""
    study = study_of(
        odp.RandTuneSampler(trials=exactly(4), run=RUN), storage=storage_at(kind, tmp_path)
    )

    def objective(trial: Trial) -> float:
        x = trial.suggest_float("x", 0.0, 1.0)
        if trial.number == 1:
            raise KeyboardInterrupt
        return x

    with pytest.raises(KeyboardInterrupt):
        study.optimize(objective)
    assert odp.recover(study) == []
    study.optimize(objective)
    assert len(study.trials) == 4
    odp.release(study, failures="chance", vouched="a test")


def test_threads_with_one_seed_draw_different_parameters() -> None:
    """optuna/optuna#4412 and #692: parallel workers with one seed propose the same."""
    study = study_of(odp.RandTuneSampler(trials=exactly(12), seed=1, run=RUN))
    study.optimize(lambda t: t.suggest_float("x", 0.0, 1.0), n_jobs=4)
    draws = [t.params["x"] for t in study.trials if t.params]  # None of trials beyond the last.
    assert len(draws) == len(set(draws)) == 12
    again = [study_of(odp.RandTuneSampler(trials=exactly(12), seed=1, run=RUN)) for _ in range(2)]
    for repeated in again:
        repeated.optimize(lambda t: t.suggest_float("x", 0.0, 1.0))
    assert [t.params for t in again[0].trials] == [t.params for t in again[1].trials]


def test_a_grid_that_is_exhausted_or_enqueued_ends_no_study_of_ours() -> None:
    """optuna/optuna#6073: GridSampler counts enqueued points again, and stops the study."""
    calls: list[int] = []
    grid = optuna.samplers.GridSampler({"x": [0.25, 0.75]})
    study = study_of(odp.BudgetSampler(plan(5), proposer=grid, search_space=SPACE))
    study.enqueue_trial({"x": 0.25})
    study.optimize(noted(calls))
    assert calls == list(range(6))
    assert len(odp.release(study).pilots) == 5


def test_three_hundred_parameters_are_released_whole() -> None:
    """optuna/optuna#3151 and #2572: hundreds of hyperparameters slow a study down or stop it."""
    study = study_of(odp.RandTuneSampler(trials=exactly(3), run=RUN))
    names = {f"b{i}" for i in range(300)}
    study.optimize(lambda t: float(sum(t.suggest_int(name, 0, 1) for name in sorted(names))))
    release = odp.release(study, vouched="a test")
    assert set(release.params) == names
    assert release.value == max(t.value for t in study.trials)
