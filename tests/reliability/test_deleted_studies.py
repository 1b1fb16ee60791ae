"""Studies that somebody deletes while they run: one error, whatever the storage raises."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path

import optuna
import pytest
from optuna.storages import BaseStorage, InMemoryStorage
from support import RUN, exactly, objective, study_of

import optuna_dp as odp
from optuna_dp.errors import DeletedStudyError, StorageError

from .storages import open_storage, opened
from .workers import SAMPLERS


def storage_of(kind: str, folder: Path) -> tuple[BaseStorage, Callable[[], None]]:
    """A storage, and what deletes its study from another client of it."""
    if kind == "memory":
        memory = InMemoryStorage()
        return memory, lambda: optuna.delete_study(study_name="s", storage=memory)
    url = f"journal:{folder}/s.log" if kind == "journal" else f"sqlite:///{folder}/s.db"

    def delete() -> None:
        with opened(url) as other:
            optuna.delete_study(study_name="s", storage=other)

    return open_storage(url), delete


@pytest.mark.parametrize("sampler", ["rand_tune", "dp_hypo_batch", "budget"])
@pytest.mark.parametrize("moment", ["before a run", "in a run", "after a run"])
@pytest.mark.parametrize("kind", ["memory", "sqlite", "journal"])
def test_a_worker_whose_study_is_deleted_ends_with_one_error(
    kind: str, moment: str, sampler: str, tmp_path: Path
) -> None:
    storage, delete = storage_of(kind, tmp_path)
    study = study_of(SAMPLERS[sampler](exactly(4)), storage=storage, study_name="s")
    study.optimize(objective, n_trials=1)
    runs = []

    def run(trial: optuna.Trial) -> float:
        runs.append(trial.number)
        score: float = objective(trial)
        if moment == "in a run":
            delete()
        return score

    if moment == "before a run":
        delete()
    after = [lambda study, trial: delete()] if moment == "after a run" else []
    with pytest.raises(DeletedStudyError) as raised:
        study.optimize(run, callbacks=after)
    assert runs == ([] if moment == "before a run" else [1])
    assert isinstance(raised.value, StorageError)
    assert str(pickle.loads(pickle.dumps(raised.value))) == str(raised.value)
    with pytest.raises(DeletedStudyError):
        odp.release(study, vouched="a test")
    with pytest.raises(DeletedStudyError):
        odp.recover(study)


def lacks_a_key(trial: optuna.Trial) -> float:
    return float({}["loss"])


def loads_a_study_that_never_was(trial: optuna.Trial) -> float:
    return optuna.load_study(study_name="other", storage=InMemoryStorage()).best_value


@pytest.mark.parametrize("its_own", [lacks_a_key, loads_a_study_that_never_was])
def test_a_key_error_of_an_objective_stays_its_own(
    its_own: Callable[[optuna.Trial], float],
) -> None:
    study = study_of(odp.RandTuneSampler(trials=exactly(2), run=RUN))
    with pytest.raises(KeyError):
        study.optimize(its_own)
