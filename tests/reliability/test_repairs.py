"""Sound studies that were lost in version 0.1.0, and can be repaired."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import optuna
import pytest
import sqlalchemy
from optuna.storages import InMemoryStorage, JournalStorage, RDBStorage
from optuna.storages.journal import JournalFileBackend
from optuna.trial import TrialState
from refusals import refuses
from samplers.budget.budget_support import budget
from support import RUN, exactly, logged, objective, study_of

import optuna_dp as odp
from optuna_dp.errors import ReleaseRefusedError, UnfinishedStudyError, WaitError

from .checks import release_of
from .workers import SAMPLERS

X = {"x": optuna.distributions.FloatDistribution(-1.0, 1.0)}


@contextmanager
def storage_of(kind: str, tmp_path: Path) -> Iterator[Any]:
    if kind == "memory":
        yield InMemoryStorage()
    elif kind == "journal":
        yield JournalStorage(JournalFileBackend(str(tmp_path / "log")))
    else:
        storage = RDBStorage(f"sqlite:///{tmp_path / 'db'}")
        yield storage
        storage.engine.dispose()


KINDS = ["memory", "sqlite", "journal"]


@pytest.mark.parametrize("kind", KINDS)
def test_telling_a_run_that_never_began_to_have_failed(kind: str, tmp_path: Path) -> None:
    """As people do, and as pages advised; its worker died before its slot entry."""
    with storage_of(kind, tmp_path) as storage:
        sampler = odp.RandTuneSampler(trials=exactly(4), run=RUN)
        study = study_of(sampler, storage=storage)
        study.optimize(objective, n_trials=1)
        storage.create_new_trial(study._study_id)
        study.tell(1, state=TrialState.FAIL)
        study.optimize(objective)
        assert odp.release(study, vouched="a test").value == study.best_value


@pytest.mark.parametrize("kind", KINDS)
def test_a_run_told_to_have_failed_without_the_sampler_can_be_vouched_for(
    kind: str, tmp_path: Path
) -> None:
    with storage_of(kind, tmp_path) as storage:
        study = study_of(odp.RandTuneSampler(trials=exactly(4), run=RUN), storage=storage)
        study.optimize(objective, n_trials=1)
        storage.create_new_trial(study._study_id)
        other = optuna.load_study(study_name=study.study_name, storage=storage)
        other.tell(1, state=TrialState.FAIL)
        study.optimize(objective)
        with pytest.raises(ReleaseRefusedError, match="--fail 1") as refused:
            odp.release(study)
        assert refused.value.trial_number == 1
        with refuses("fail") as caught:
            odp.recover(study, fail=[1, 2])
        assert caught.value.value == 2
        odp.recover(study, fail=[1])
        assert odp.release(study, vouched="a test").value == study.best_value


def test_a_run_of_another_sampler_names_cause_and_remedy() -> None:
    storage = InMemoryStorage()
    study = study_of(odp.RandTuneSampler(trials=exactly(4), run=RUN), storage=storage)
    study.optimize(objective, n_trials=1)
    other = optuna.load_study(study_name=study.study_name, storage=storage)
    with pytest.raises(ReleaseRefusedError, match="load_study") as caught:
        other.optimize(objective, n_trials=1, callbacks=[odp.PrivacyCallback()])
    assert caught.value.trial_number == 1


SEQUENTIAL = {
    "dp_hypo": lambda: odp.DPHyPOSampler(X, trials=exactly(3), candidates=4, run=RUN),
    "dp_hypo without a space": lambda: odp.DPHyPOSampler(trials=exactly(3), candidates=4, run=RUN),
    "budget": lambda: odp.BudgetSampler(budget(2), search_space=X),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", SEQUENTIAL)
@pytest.mark.parametrize("lost", [False, True])
def test_asking_twice_in_one_thread_loses_one_run_at_most(
    name: str, kind: str, tmp_path: Path, lost: bool
) -> None:
    """The study was lost in version 0.1.0, for a failure that depends on no durations."""
    with storage_of(kind, tmp_path) as storage:
        study = study_of(SEQUENTIAL[name](), storage=storage)
        first, second = study.ask(), study.ask()
        for _ in range(2):
            with pytest.raises(WaitError):
                objective(second)
        study.tell(first, objective(first))
        if lost:
            # It was asked for with distributions, say, and the error left nothing in hand.
            with pytest.raises(UnfinishedStudyError):
                release_of(study)
            odp.recover(study, fail=[1])
        else:
            study.tell(second, objective(second))
        study.optimize(objective)
        assert [t.state for t in study.trials].count(TrialState.COMPLETE) == 3 - lost
        assert release_of(study).value is not None


_RETRIES = [
    getattr(optuna.storages, name)
    for name in ("RetryHeartbeatStaleTrialCallback", "RetryFailedTrialCallback")
    if hasattr(optuna.storages, name)
]


def retrying_storage(path: Path, retry: Any) -> RDBStorage:
    return RDBStorage(
        f"sqlite:///{path / 'db'}",
        heartbeat_interval=60,
        **{
            "heartbeat_stale_trial_callback"
            if hasattr(optuna.storages, "RetryHeartbeatStaleTrialCallback")
            else "failed_trial_callback": retry
        },
    )


def heart_stops(storage: RDBStorage, trial: optuna.Trial) -> None:
    """The worker of a run has died, and its heartbeat is as old as the storage waits."""
    storage.record_heartbeat(trial._trial_id)
    with storage.engine.begin() as connection:
        table = sqlalchemy.text("UPDATE trial_heartbeats SET heartbeat = '2001-01-01 00:00:00'")
        connection.execute(table)


@pytest.mark.promise("failures")
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::optuna.exceptions.ExperimentalWarning")
@pytest.mark.filterwarnings("ignore::FutureWarning")
@pytest.mark.filterwarnings("ignore:Heartbeat of storage is supposed")
@pytest.mark.parametrize("retry", _RETRIES)
@pytest.mark.parametrize("name", ["rand_tune", "budget"])
@pytest.mark.parametrize("dead", [0, 1])
def test_a_run_that_is_stale_on_resume_is_not_retried_and_the_study_is_released(
    tmp_path: Path, retry: Any, name: str, dead: int
) -> None:
    storage = retrying_storage(tmp_path, retry())
    samplers = {
        "rand_tune": lambda: odp.RandTuneSampler(trials=exactly(3), run=RUN),
        "budget": lambda: SAMPLERS["budget"](exactly(1)),
    }
    study = study_of(samplers[name](), storage=storage, study_name="study")
    if dead:
        study.optimize(objective, n_trials=dead)
    trial = study.ask()
    objective(trial)
    heart_stops(storage, trial)
    # Optuna looks for stale runs before it asks the sampler for anything.
    resumed = optuna.load_study(study_name="study", storage=storage, sampler=samplers[name]())
    with logged() as lines:
        resumed.optimize(objective)
    assert len([line for line in lines if "copy of a failed run was left out" in line]) == 1
    states = [t.state.name for t in resumed.trials]
    assert states == ["FAIL" if i == dead else "COMPLETE" for i in range(len(states))]
    assert release_of(resumed).value is not None
    storage.engine.dispose()


@pytest.mark.filterwarnings("ignore::optuna.exceptions.ExperimentalWarning")
@pytest.mark.filterwarnings("ignore::FutureWarning")
@pytest.mark.filterwarnings("ignore:Heartbeat of storage is supposed")
@pytest.mark.parametrize("retry", _RETRIES)
def test_other_studies_keep_their_retries(tmp_path: Path, retry: Any) -> None:
    storage = retrying_storage(tmp_path, retry())
    study = optuna.create_study(storage=storage, sampler=optuna.samplers.RandomSampler())
    heart_stops(storage, study.ask())
    study.optimize(objective, n_trials=1)
    assert [t.state for t in study.trials] == [TrialState.FAIL, TrialState.COMPLETE]
    assert study.trials[1].system_attrs["failed_trial"] == 0
    storage.engine.dispose()


class Layer:
    """Something that JSON cannot hold."""


@pytest.mark.filterwarnings("ignore:Choices for a categorical distribution")
@pytest.mark.parametrize("choices", [(Layer, int), (1.0, float("inf")), (float("nan"), 1)])
def test_choices_that_no_record_can_hold_are_said_at_the_first_trial(choices: Any) -> None:
    distribution = optuna.distributions.CategoricalDistribution(choices)
    with refuses("choices of 'c'"):
        odp.RandTuneSampler({"c": distribution}, run=RUN)
    samplers = [*SEQUENTIAL.values(), lambda: odp.RandTuneSampler(trials=exactly(3), run=RUN)]
    for make in samplers:
        study = study_of(make())
        trial = study.ask()
        with refuses("choices of 'c'"):
            trial.suggest_categorical("c", choices)
        # Nothing was drawn: with names it works in the same trial.
        assert trial.suggest_categorical("c", ["a", "b"]) in ("a", "b")


@pytest.mark.promise("fixed-beforehand")
def test_a_range_that_moves_is_said_after_the_first_run_that_shows_it() -> None:
    def dynamic(trial: optuna.Trial) -> float:
        a = trial.suggest_int("a", trial.number + 1, trial.number + 1)
        return float(trial.suggest_int("b", 0, 10 + a))

    study = study_of(odp.RandTuneSampler(trials=exactly(9), run=RUN))
    with pytest.raises(ReleaseRefusedError, match="'a'") as caught:
        study.optimize(dynamic, callbacks=[odp.PrivacyCallback()])
    assert caught.value.trial_number == 1
    assert len(study.trials) == 2
