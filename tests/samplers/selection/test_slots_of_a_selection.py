"""Just T trials of a private selection are runs: one fewer or more would be another law."""

from __future__ import annotations

import optuna
import pytest
from support import exactly, study_of

import optuna_dp as odp
from optuna_dp.study.trials import began


@pytest.mark.parametrize("count", [1, 3])
def test_the_loop_ends_with_the_last_run_and_calls_the_objective_for_each(count: int) -> None:
    study = study_of(odp.RandTuneSampler(trials=exactly(count)))
    calls: list[int] = []

    def objective(trial: optuna.Trial) -> float:
        calls.append(trial.number)
        return trial.suggest_float("x", 0.0, 1.0)

    study.optimize(objective)
    assert calls == list(range(count))
    assert len(study.trials) == count


def test_a_trial_after_the_last_run_is_none_even_if_it_draws_nothing() -> None:
    study = study_of(odp.RandTuneSampler(trials=exactly(3)))
    calls: list[int] = []

    def objective(trial: optuna.Trial) -> float:
        calls.append(trial.number)
        return 0.5

    for _ in range(5):
        study.optimize(objective, n_trials=1)
    assert calls == [0, 1, 2]
    assert [began(trial) for trial in study.trials] == [True] * 3 + [False] * 2
