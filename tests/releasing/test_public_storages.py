"""A release is published where nothing else is, and nothing else is begun there."""

from __future__ import annotations

import dataclasses
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
    sampler = odp.RandTuneSampler(trials=exactly(5), run=RUN)
    study = study_of(sampler, storage=storage, study_name=name)
    study.optimize(objective)
    return odp.release(study, vouched="a test")


@pytest.mark.promise("nothing-else")
@pytest.mark.slow
@pytest.mark.parametrize(
    ("given", "secure"), [("url", 0), ("url", 1), ("file: url", 0), ("object", 0)]
)
def test_nothing_is_published_to_a_file_that_has_held_a_study(
    given: str, secure: int, tmp_path: Path
) -> None:
    """Where SQLite erases what is deleted, the size of the file still tells how much there was."""
    path = tmp_path / "file.db"
    storage = RDBStorage(f"sqlite:///{path}")
    sqlalchemy.event.listen(
        storage.engine,
        "connect",
        lambda opened, _: opened.execute(f"PRAGMA secure_delete={secure}"),
    )
    storage.engine.dispose()
    found = a_release(storage, "curator")
    optuna.delete_study(study_name="curator", storage=storage)
    assert (b"optuna_dp:slot" in path.read_bytes()) == (not secure)
    storage.engine.dispose()
    url = f"sqlite:///file:{path}?uri=true" if given == "file: url" else f"sqlite:///{path}"
    with pytest.raises(ReleaseRefusedError) as caught:
        odp.publish(found, storage if given == "object" else url, "result")
    storage.engine.dispose()
    assert "sqlite:///PATH" in caught.value.fix


@pytest.mark.slow
def test_a_published_file_holds_nothing_of_the_study(tmp_path: Path) -> None:
    odp.publish(a_release(), f"sqlite:///{tmp_path / 'new.db'}", "result")
    assert b"optuna_dp:slot" not in (tmp_path / "new.db").read_bytes()


def test_nothing_is_published_to_a_journal_that_has_held_a_study(tmp_path: Path) -> None:
    storage = JournalStorage(JournalFileBackend(str(tmp_path / "old")))
    found = a_release(storage, "curator")
    optuna.delete_study(study_name="curator", storage=storage)
    with pytest.raises(ReleaseRefusedError, match="journal"):
        odp.publish(found, storage, "result")
    odp.publish(found, JournalStorage(JournalFileBackend(str(tmp_path / "new"))), "result")
    assert b"optuna_dp:slot" not in (tmp_path / "new").read_bytes()


def test_nothing_is_published_where_studies_were_numbered_before() -> None:
    """As a database on a server, whose numbers of trials go on after a study is deleted."""
    storage = InMemoryStorage()
    found = a_release(storage, "curator")
    optuna.delete_study(study_name="curator", storage=storage)
    with pytest.raises(ReleaseRefusedError):
        odp.publish(found, storage, "result")
    assert storage.get_all_studies() == []


@pytest.mark.slow
def test_the_size_of_a_published_file_is_the_same_for_every_number_of_runs(tmp_path: Path) -> None:
    sizes, design = set(), a_release().design
    for count in (3, 60):
        study = study_of(odp.RandTuneSampler(trials=exactly(count), run=RUN))
        study.optimize(lambda trial: 0.5 + 0.0 * trial.suggest_float("x", 0, 1))
        release = dataclasses.replace(
            odp.release(study, vouched="a test"), params={"x": 0.5}, design=design
        )
        odp.publish(release, f"sqlite:///{tmp_path / str(count)}.db", "result")
        sizes.add((tmp_path / f"{count}.db").stat().st_size)
    assert len(sizes) == 1


@pytest.mark.parametrize("score", [float("inf"), -float("inf")])
def test_the_json_of_a_release_is_json(score: float) -> None:
    study = study_of(odp.RandTuneSampler(trials=exactly(3), run=RUN, output_attributes=["all"]))

    def infinite(trial: optuna.Trial) -> float:
        trial.set_user_attr("all", [score, {"deep": float("nan")}])
        return score + 0 * trial.suggest_float("x", 0, 1)

    study.optimize(infinite)
    found = odp.release(study, vouched="a test")
    data = json.loads(json.dumps(found.to_json(), allow_nan=False))
    assert data["value"] == repr(score)
    assert data["attributes"] == {"all": [repr(score), {"deep": "nan"}]}
    assert found.value == score


def test_beside_a_study_that_was_not_published() -> None:
    storage = InMemoryStorage()
    optuna.create_study(storage=storage, study_name="notes")
    with pytest.raises(ReleaseRefusedError, match="'notes'"):
        odp.publish(a_release(), storage, "result")


def test_no_private_study_begins_where_a_release_was_published() -> None:
    storage = InMemoryStorage()
    found = a_release()
    odp.publish(found, storage, "result")
    later = study_of(odp.RandTuneSampler(trials=exactly(3), run=RUN), storage=storage)
    with pytest.raises(PlanError, match="published"):
        later.optimize(objective)
    assert not any(trial.params for trial in later.trials)
