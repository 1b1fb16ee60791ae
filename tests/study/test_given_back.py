"""A study's first run that fails in its own set-up costs nothing; every other failure counts."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import optuna
import pytest
from optuna.storages import BaseStorage, InMemoryStorage, JournalStorage, RDBStorage
from optuna.storages.journal import JournalFileBackend
from optuna.trial import Trial, TrialState
from support import exactly, logged, study_of

import optuna_dp as odp
from optuna_dp.errors import InvalidArgumentError

RECORDS, CLASSES, T = 60, 2, 4
rng = np.random.default_rng(0)
X = rng.normal(size=(RECORDS, 3))
Y = (X[:, 0] > 0).astype(int)
PLAN = odp.plan_budget(epsilon=8.0, records=RECORDS, batch_size=20, epochs=1, pilots=T - 1)
RUN = odp.RunPlan(
    records=RECORDS, batch_size=20, steps=2, noise_multiplier=4.0, score_noise_multiplier=8.0
)
SPACE = {"noise_per_weight": optuna.distributions.FloatDistribution(0.1, 1.0)}
SAMPLERS: dict[str, Callable[[], Any]] = {
    "budget": lambda: odp.BudgetSampler(PLAN),
    "joint budget": lambda: odp.BudgetSampler(PLAN, search_space=SPACE),
    "rand_tune": lambda: odp.RandTuneSampler(trials=exactly(T), run=RUN),
    "dp_hypo": lambda: odp.DPHyPOSampler(SPACE, trials=exactly(T), run=RUN),
}
STORAGES: dict[str, Callable[[Path], BaseStorage]] = {
    "memory": lambda folder: InMemoryStorage(),
    "journal": lambda folder: JournalStorage(JournalFileBackend(str(folder / "study.log"))),
    "sqlite": lambda folder: RDBStorage(f"sqlite:///{folder}/study.db"),
}


def trains(records: Any = (X, Y), features: int = 3, **arguments: Any) -> Callable[[Trial], float]:
    def objective(trial: Trial) -> float:
        run = odp.start_run(trial)
        trial.suggest_float("noise_per_weight", 0.1, 1.0)
        model = odp.SoftmaxRegression(features, CLASSES)
        return odp.train(run, model, records, score="accuracy", **arguments).score

    return objective


good = trains()
MISTAKES = {
    "argument": trains(clipping_norm=-1.0),
    "name": trains(criterion=None),
    "shape": trains(features=5),
    "records": trains(records=X.tolist()),
}


def fails(study: optuna.Study, objective: Callable[[Trial], float], **options: Any) -> Exception:
    with pytest.raises(Exception) as caught:  # noqa: PT011  # Whatever the mistake raises.
        study.optimize(objective, **options)
    return caught.value


def states(study: optuna.Study) -> list[TrialState]:
    return [trial.state for trial in study.trials if trial.params]


@pytest.mark.parametrize("mistake", MISTAKES)
@pytest.mark.parametrize("sampler", SAMPLERS)
def test_a_first_mistake_costs_no_run(mistake: str, sampler: str) -> None:
    study = study_of(SAMPLERS[sampler]())
    for _ in range(2):
        assert isinstance(fails(study, MISTAKES[mistake]), InvalidArgumentError)
    study.optimize(good, callbacks=[odp.PrivacyCallback()])
    assert states(study) == T * [TrialState.COMPLETE]
    odp.release(study)


@pytest.mark.parametrize("storage", STORAGES)
def test_another_worker_may_go_on(storage: str, tmp_path: Path) -> None:
    place = STORAGES[storage](tmp_path)
    study = study_of(SAMPLERS["rand_tune"](), storage=place, study_name="s")
    fails(study, MISTAKES["shape"])
    params = study.trials[0].params
    other = optuna.load_study(study_name="s", storage=place, sampler=SAMPLERS["rand_tune"]())
    other.optimize(good)
    assert states(other) == T * [TrialState.COMPLETE]
    assert other.trials[0].params == params
    odp.release(other)


@pytest.mark.parametrize("sampler", ["budget", "rand_tune"])
def test_an_error_after_the_training_counts(sampler: str) -> None:
    def objective(trial: Trial) -> float:
        good(trial)
        trains(clipping_norm=-1.0)(trial)
        raise AssertionError

    study = study_of(SAMPLERS[sampler]())
    fails(study, objective)
    assert states(study) == [TrialState.FAIL]


def test_an_error_of_the_objective_s_own_counts_and_a_new_study_is_advised() -> None:
    def objective(trial: Trial) -> float:
        odp.start_run(trial)
        return 1.0 / trial.suggest_categorical("zero", [0])

    for sampler in ("budget", "rand_tune"):
        study = study_of(SAMPLERS[sampler]())
        with logged() as lines:
            fails(study, objective)
        assert states(study) == [TrialState.FAIL]
        assert sum("new study is better" in line for line in lines) == 1


def test_what_may_depend_on_records_counts() -> None:
    plan = odp.plan_budget(
        epsilon=8.0, records=RECORDS, batch_size=20, epochs=1, pilots=T - 1, score="disjoint"
    )
    study = study_of(odp.BudgetSampler(plan))
    copies = X.copy(), Y.copy()
    fails(study, trains(score_records=copies, score_size=RECORDS))
    assert states(study) == [TrialState.FAIL]


def test_a_mistake_that_is_handed_on_as_another_error_counts() -> None:
    def objective(trial: Trial) -> float:
        try:
            return MISTAKES["argument"](trial)
        except InvalidArgumentError as error:
            raise RuntimeError from error

    study = study_of(SAMPLERS["budget"]())
    fails(study, objective)
    assert states(study) == [TrialState.FAIL]


def test_a_later_mistake_counts() -> None:
    study = study_of(SAMPLERS["budget"]())
    study.optimize(good, n_trials=1)
    fails(study, MISTAKES["argument"])
    assert states(study) == [TrialState.COMPLETE, TrialState.FAIL]


def test_a_mistake_that_is_to_be_caught_counts() -> None:
    study = study_of(SAMPLERS["rand_tune"]())
    study.optimize(MISTAKES["argument"], catch=(InvalidArgumentError,), n_trials=2)
    assert states(study) == 2 * [TrialState.FAIL]


def test_a_run_that_another_may_wait_for_counts() -> None:
    """Two threads begin; neither is left waiting for a run that nobody is at."""
    both_began = threading.Barrier(2)

    def objective(trial: Trial) -> float:
        both_began.wait(timeout=60)
        return MISTAKES["argument"](trial)

    study = study_of(SAMPLERS["rand_tune"]())
    with contextlib.suppress(InvalidArgumentError):  # Optuna drops errors of its last threads.
        study.optimize(objective, n_jobs=2, n_trials=2)
    assert states(study) == 2 * [TrialState.FAIL]


def test_no_study_but_the_user_s_is_logged() -> None:
    study = study_of(SAMPLERS["budget"](), study_name="mine")
    with logged("optuna") as lines:
        study.optimize(good)
    assert not [line for line in lines if "new study" in line]
    assert [line.split(": ")[1] for line in lines if "begins" in line] == [
        *(f"Pilot {number} of 3 begins" for number in (1, 2, 3)),
        "The last run begins",
    ]
