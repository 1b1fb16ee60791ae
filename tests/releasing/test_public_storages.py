"""A release is published where nothing else is, and nothing else is begun there."""

from __future__ import annotations

import json
from pathlib import Path

import optuna
import pytest
import sqlalchemy
from optuna.storages import InMemoryStorage, JournalStorage, RDBStorage
from optuna.storages.journal import JournalFileBackend
from support import exactly, objective, study_of

import optuna_dp as odp
from optuna_dp.errors import PlanError, ReleaseRefusedError

RUN = odp.pure_dp(0.1)


def a_release(storage: object = None, name: str | None = None) -> odp.Release:
    sampler = odp.RandTuneSampler(trials=exactly(5))
    study = study_of(sampler, storage=storage, study_name=name)
    study.optimize(objective)
    return odp.release(study, RUN)


@pytest.mark.parametrize("kind", ["journal", "sqlite"])
def test_what_a_file_still_holds_of_a_deleted_study_is_not_published(
    kind: str, tmp_path: Path
) -> None:
    path = tmp_path / "file"
    storage = (
        JournalStorage(JournalFileBackend(str(path)))
        if kind == "journal"
        else RDBStorage(f"sqlite:///{path}")
    )
    if isinstance(storage, RDBStorage):
        # Some builds of SQLite erase what is deleted unless told otherwise; most do not.
        sqlalchemy.event.listen(
            storage.engine, "connect", lambda opened, _: opened.execute("PRAGMA secure_delete=0")
        )
        storage.engine.dispose()
    found = a_release(storage, "curator")
    optuna.delete_study(study_name="curator", storage=storage)
    assert b"optuna_dp:slot" in path.read_bytes()
    with pytest.raises(ReleaseRefusedError, match="deleting does not erase"):
        odp.publish(found, storage, "result")
    if isinstance(storage, RDBStorage):
        storage.engine.dispose()
    # The way out.
    fresh = JournalStorage(JournalFileBackend(str(tmp_path / "new")))
    odp.publish(found, fresh, "result")
    odp.publish(found, fresh, "another")
    assert b"optuna_dp:slot" not in (tmp_path / "new").read_bytes()


@pytest.mark.parametrize("score", [float("inf"), -float("inf")])
def test_the_json_of_a_release_is_json(score: float) -> None:
    study = study_of(odp.RandTuneSampler(trials=exactly(3)))

    def infinite(trial: optuna.Trial) -> float:
        trial.set_user_attr("all", [score, {"deep": float("nan")}])
        return score + 0 * trial.suggest_float("x", 0, 1)

    study.optimize(infinite)
    found = odp.release(study, RUN, output_attributes=["all"])
    data = json.loads(json.dumps(found.to_json(), allow_nan=False))
    assert data["value"] == repr(score)
    assert data["attributes"] == {"all": [repr(score), {"deep": "nan"}]}
    assert found.value == score


def test_beside_a_study_that_was_not_published() -> None:
    storage = InMemoryStorage()
    optuna.create_study(storage=storage, study_name="notes")
    with pytest.raises(ReleaseRefusedError, match=r"'notes', .* not published"):
        odp.publish(a_release(), storage, "result")


def test_no_private_study_begins_where_a_release_was_published() -> None:
    storage = InMemoryStorage()
    found = a_release()
    odp.publish(found, storage, "result")
    later = study_of(odp.RandTuneSampler(trials=exactly(3)), storage=storage)
    with pytest.raises(PlanError, match="storage of its own"):
        later.optimize(objective)
    assert not any(trial.params for trial in later.trials)
