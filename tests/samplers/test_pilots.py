"""Pilots: how many runs take place, and the contract of all samplers."""

from __future__ import annotations

import math
import multiprocessing
import pickle
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import optuna
import pytest
from optuna.samplers import RandomSampler
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend
from optuna.trial import TrialState
from pilot_support import PILOT, X, check_exactly, pilot_sampler, slots_of
from support import RUN, exactly, objective, study_of

import optuna_dp as odp
from optuna_dp.errors import (
    InvalidArgumentError,
    PlanError,
    ReleaseRefusedError,
    UnsupportedEventError,
)

# Exactly B + T runs.


@pytest.mark.parametrize("space", [X, None])
@pytest.mark.parametrize("n_jobs", [1, 4])
def test_exactly_b_plus_t_runs_take_place(space: Any, n_jobs: int) -> None:
    for batch in (1, 3) * 5:
        study = study_of(
            pilot_sampler(space, trials=odp.Geometric(mean=3), pilot_batch_size=batch)
        )
        study.optimize(objective, n_jobs=n_jobs)
        check_exactly(study, 3)


def test_few_arguments_are_needed() -> None:
    study = optuna.create_study(sampler=odp.PilotSampler(pilot_run=PILOT))
    study.optimize(lambda trial: trial.suggest_float("x", 0, 1) ** 2)
    check_exactly(study, 10)
    assert odp.release(study, RUN).params is not None or slots_of(study) == 10


def test_resuming_adds_no_run_and_failures_count() -> None:
    def fails(trial: optuna.Trial) -> float:
        value = objective(trial)
        if trial.number in (1, 4):
            raise RuntimeError("out of memory")
        return value

    study = study_of(pilot_sampler(X))
    for _ in range(4):
        study.optimize(fails, n_trials=2, catch=(RuntimeError,))
    study.optimize(fails)
    states = [t.state for t in study.trials]
    assert len(states) - states.count(TrialState.PRUNED) == 7
    assert states[1] == states[4] == TrialState.FAIL
    check_exactly(study, 3)


def test_a_law_that_gives_no_selection_run() -> None:
    study = study_of(pilot_sampler(X, trials=odp.Poisson(mean=1e-9), release_pilots=True))
    study.optimize(objective)
    release = odp.release(study, RUN)
    assert release.params is None
    assert len(release.attributes["pilots"]) == 3


def _work(path: str, name: str) -> None:
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    study = optuna.create_study(
        study_name=name,
        storage=JournalStorage(JournalFileBackend(path)),
        direction="maximize",
        sampler=pilot_sampler(X, pilot_batch_size=2, trials=odp.Geometric(mean=4)),
        load_if_exists=True,
    )
    study.optimize(objective)


def _processes(tmp_path: Path, processes: int, studies: int) -> None:
    path = str(tmp_path / "studies.log")
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(processes, mp_context=context) as pool:
        for i in range(studies):
            storage = JournalStorage(JournalFileBackend(path))
            optuna.create_study(study_name=str(i), storage=storage, direction="maximize")
            for job in [pool.submit(_work, path, str(i)) for _ in range(processes)]:
                job.result()
            study = optuna.load_study(study_name=str(i), storage=storage)
            check_exactly(study, 3)
            odp.release(study, RUN)


def test_two_processes_make_exactly_b_plus_t_runs(tmp_path: Path) -> None:
    _processes(tmp_path, 2, 2)


@pytest.mark.slow
def test_four_processes_make_exactly_b_plus_t_runs(tmp_path: Path) -> None:
    _processes(tmp_path, 4, 6)


def test_is_pilot_where_the_objective_asks() -> None:
    asked: list[bool] = []

    def asks(trial: optuna.Trial) -> float:
        asked.append(odp.is_pilot(trial))
        return objective(trial)

    study_of(pilot_sampler(X)).optimize(asks)
    assert asked == [True] * 3 + [False] * 4
    other = study_of(odp.RandTuneSampler(trials=exactly(2)))
    other.optimize(asks)
    assert asked[7:] == [False] * 2
    assert not odp.is_pilot(optuna.trial.FixedTrial({"x": 0.5}))


# The contract of all samplers.


def test_a_seeded_study_repeats_and_is_not_released() -> None:
    def run(n_jobs: int) -> list[dict[str, Any]]:
        study = study_of(pilot_sampler(X, trials=odp.Geometric(mean=4), seed=5))
        study.optimize(objective, n_jobs=n_jobs)
        with pytest.raises(ReleaseRefusedError, match="seed"):
            odp.release(study, RUN)
        return [t.params for t in study.trials if t.params]

    assert run(1) == run(1) == run(3)


def test_enqueued_trials_are_refused() -> None:
    study = study_of(pilot_sampler(X))
    study.enqueue_trial({"x": 0.5})
    with pytest.raises(PlanError, match="enqueued"):
        study.optimize(objective)


@pytest.mark.parametrize(
    "other",
    [
        {"pilots": 2},
        {"pilot_run": odp.gaussian(8.0)},
        {"sharpness": 1.0},
        {"uniform_share": 0.5},
        {"pilot_batch_size": 2},
        {"proposer": RandomSampler()},
        {"release_pilots": True},
        {"density_bounds": (0.75, 2.0)},
        {"trials": odp.Geometric(mean=9)},
    ],
)
def test_a_worker_with_another_plan_does_not_run(other: dict[str, Any]) -> None:
    study = study_of(pilot_sampler(X))
    study.optimize(objective, n_trials=1)
    study.sampler = pilot_sampler(X, **other)
    with pytest.raises(PlanError, match="configured differently"):
        study.optimize(objective, n_trials=1)
    study.sampler = pilot_sampler(X)
    study.optimize(objective)
    with pytest.raises(ReleaseRefusedError, match="configured differently"):
        odp.release(study, RUN)


def test_a_sampler_can_be_sent_to_other_processes() -> None:
    sampler = pickle.loads(pickle.dumps(pilot_sampler(X, proposer=RandomSampler())))
    study = study_of(sampler)
    study.optimize(objective)
    check_exactly(study, 3)


@pytest.mark.parametrize(
    ("argument", "value"),
    [
        ("pilots", 0),
        ("pilots", 2.5),
        ("pilot_run", 1.0),
        ("proposer", "tpe"),
        ("pilot_batch_size", 0),
        ("trials", 10),
        ("sharpness", -1.0),
        ("sharpness", math.nan),
        ("sharpness", math.inf),
        ("uniform_share", 1.5),
        ("candidates", 0),
        ("surrogate", "gp"),
        ("density_bounds", (2.0, 0.5)),
        ("batch_size", 0),
        ("release_pilots", 1),
        ("timeout", 0.0),
        ("seed", 1.5),
        ("search_space", {}),
    ],
)
def test_bad_arguments(argument: str, value: Any) -> None:
    with pytest.raises(InvalidArgumentError, match=argument):
        odp.PilotSampler(**{"pilot_run": PILOT, argument: value})


def test_an_event_no_accountant_supports() -> None:
    from dp_accounting import dp_event

    with pytest.raises(UnsupportedEventError):
        odp.PilotSampler(pilot_run=dp_event.UnsupportedDpEvent())
