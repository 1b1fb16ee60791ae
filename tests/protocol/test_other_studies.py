"""Studies of other samplers are Optuna's own, whatever this process does with optuna-dp."""

from __future__ import annotations

import subprocess
import sys

import optuna
import pytest

# Optuna's own methods, and the functions that a failing objective passes, before and after.
SCRIPT = """
import traceback, optuna
from optuna.study import Study

optuna.logging.set_verbosity(optuna.logging.ERROR)

def fails(trial):
    raise ZeroDivisionError

def passed():
    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=0))
    methods = [getattr(study, name).__func__ for name in ("ask", "optimize", "add_trial")]
    on_the_class = [getattr(Study, name) for name in ("ask", "optimize", "add_trial")]
    try:
        study.optimize(fails, n_trials=1)
    except ZeroDivisionError as error:
        frames = [frame.f_code for frame, _ in traceback.walk_tb(error.__traceback__)]
    return methods, on_the_class, frames

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
