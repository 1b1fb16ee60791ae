"""What a trial costs does not grow with the study: nothing that has ended is looked at again."""

from __future__ import annotations

from typing import Any

import optuna
import pytest
from optuna.distributions import FloatDistribution

import optuna_dp as odp
from optuna_dp.priors import history
from optuna_dp.study import proposals
from optuna_dp.study.trials import trials_of

SPACE: dict[str, Any] = {"x": FloatDistribution(0.0, 1.0)}


def counted(monkeypatch: pytest.MonkeyPatch, module: Any, name: str, size: Any) -> list[int]:
    """Replaces a function by itself, with a list of how much each call was given."""
    found: list[int] = []
    function = getattr(module, name)

    def counting(*args: Any, **kwargs: Any) -> Any:
        found.append(size(*args))
        return function(*args, **kwargs)

    monkeypatch.setattr(module, name, counting)
    return found


def objective(trial: optuna.Trial) -> float:
    if isinstance(trial.study.sampler, odp.BudgetSampler):
        odp.start_run(trial)
    return trial.suggest_float("x", 0.0, 1.0)


@pytest.mark.slow
def test_a_proposer_is_shown_each_pilot_once(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = odp.plan_budget(
        epsilon=3.0, run=lambda noise, steps: odp.gaussian(noise), steps=1, pilots=40
    )
    sampler = odp.BudgetSampler(plan, proposer=optuna.samplers.RandomSampler(), search_space=SPACE)
    shown = counted(monkeypatch, proposals, "timeless_trial", lambda: 1)
    study = optuna.create_study(sampler=sampler)
    study.optimize(objective, n_trials=40)
    assert len(shown) == 39


@pytest.mark.slow
def test_the_default_proposer_compares_ranges_of_each_pilot_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plan = odp.plan_budget(
        epsilon=3.0, run=lambda noise, steps: odp.gaussian(noise), steps=1, pilots=60
    )
    study = optuna.create_study(sampler=odp.BudgetSampler(plan, search_space=SPACE))
    study.optimize(objective, n_trials=30)  # at random
    compared = counted(monkeypatch, FloatDistribution, "__eq__", lambda *ranges: 1)
    study.optimize(objective, n_trials=30)
    assert len(compared) <= 10 * 30


def test_points_of_a_run_are_encoded_once(monkeypatch: pytest.MonkeyPatch) -> None:
    encoded = counted(monkeypatch, history, "encode_params", lambda space, params: len(params))
    sampler = odp.DPHyPOSampler(SPACE, trials=odp.Poisson(mean=500.0))
    study = optuna.create_study(sampler=sampler)
    study.optimize(objective, n_trials=30)
    assert sum(encoded) == 29


def test_a_history_that_is_not_the_one_before_is_read_anew() -> None:
    outcomes = history.GrowingHistory(lambda trial: history.RunOutcome(trial.params, trial.value))
    studies = [optuna.create_study(), optuna.create_study()]
    for study in studies:
        study.optimize(objective, n_trials=5)
    for study, count in ((studies[0], 3), (studies[0], 5), (studies[1], 5), (studies[0], 2)):
        trials = trials_of(study)[:count]
        found = outcomes.of(trials, SPACE)
        assert [outcome.params for outcome in found] == [trial.params for trial in trials]
        assert found.encoded_in(SPACE)[:, 0].tolist() == [t.params["x"] for t in trials]
