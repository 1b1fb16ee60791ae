"""Studies of other samplers are Optuna's own, whatever this process does with optuna-dp."""

from __future__ import annotations

import subprocess
import sys

import optuna
import pytest

import optuna_dp as odp

# Optuna's own methods, and the functions that a failing objective passes, before and after.
SCRIPT = """
import traceback, optuna

optuna.logging.set_verbosity(optuna.logging.ERROR)

def fails(trial):
    raise ZeroDivisionError

def passed():
    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=0))
    methods = [getattr(study, name).__func__ for name in ("ask", "optimize", "add_trial")]
    try:
        study.optimize(fails, n_trials=1)
    except ZeroDivisionError as error:
        frames = [frame.f_code for frame, _ in traceback.walk_tb(error.__traceback__)]
    return methods, frames

def touches():
    import optuna_dp as odp
    for name in odp.__all__:
        getattr(odp, name)
    yield "every name"
    study = optuna.create_study(sampler=odp.RandTuneSampler(trials=odp.Geometric(mean=2)))
    study.optimize(lambda trial: trial.suggest_float("x", 0, 1))
    yield "a study"

before = passed()
for what in touches():
    assert passed() == before, what
"""


@pytest.mark.slow
def test_a_study_of_another_sampler_runs_the_same_functions() -> None:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_a_study_of_another_sampler_takes_copies_of_failed_trials() -> None:
    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=0))
    failed = {"failed_trial": 0, "retry_history": [0]}
    study.add_trial(optuna.create_trial(value=1.0, system_attrs=failed))
    assert len(study.trials) == 1


def test_a_library_that_wraps_the_methods_of_studies_keeps_ours(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Automatic logging does so: it takes the function from the class, and calls it."""
    plan = odp.plan_budget(epsilon=3.0, run=lambda noise, steps: odp.gaussian(noise), steps=1)
    study = optuna.create_study(sampler=odp.BudgetSampler(plan))
    began: list[int] = []
    optimize = optuna.study.Study.optimize
    monkeypatch.setattr(
        optuna.study.Study, "optimize", lambda *args, **kwargs: optimize(*args, **kwargs)
    )

    def objective(trial: optuna.Trial) -> float:
        began.append(trial.number)
        return 0.0

    study.optimize(objective, n_trials=plan.pilots + 4, n_jobs=2)
    assert len(began) == plan.pilots + 1
