"""What is refused before any run has started."""

from __future__ import annotations

import sys
import threading
from pathlib import Path
from typing import Any

import optuna
import pytest
from optuna.storages import InMemoryStorage, RDBStorage

import optuna_dp as odp
from optuna_dp.errors import InvalidArgumentError, MissingExtraError

from .studies import journal_study


def never(trial: optuna.Trial) -> float:
    raise AssertionError("a run has started")


def refused(study: Any, objective: Any = never, **arguments: Any) -> str:
    with pytest.raises(InvalidArgumentError) as caught:
        odp.distributed.optimize(study, objective, **{"workers": 2, **arguments})
    return str(caught.value)


def test_arguments(tmp_path: Path) -> None:
    study = journal_study(tmp_path)
    assert "study=4" in refused(4)
    assert "workers=0" in refused(study, workers=0)
    assert "objective=None" in refused(study, None)
    assert "['dask', 'processes', 'ray']" in refused(study, engine="spark")
    assert "has no options" in refused(study, engine_options={"num_gpus": 1})
    assert study.trials == []


def test_a_sampler_that_never_ends(tmp_path: Path) -> None:
    study = journal_study(tmp_path, optuna.samplers.RandomSampler())
    assert "one of optuna-dp's" in refused(study)


@pytest.mark.filterwarnings("ignore::sqlalchemy.exc.SADeprecationWarning")
@pytest.mark.parametrize(
    "storage",
    [
        None,
        InMemoryStorage(),
        "sqlite://",
        "sqlite:///:memory:",
        "sqlite:///file:tuning?mode=memory&cache=shared&uri=true",
    ],
)
def test_a_study_in_memory(storage: Any) -> None:
    study = optuna.create_study(storage=storage, sampler=odp.RandTuneSampler())
    told = refused(study)
    assert "cannot open the memory" in told
    assert "JournalFileBackend" in told
    if isinstance(study._storage, RDBStorage):
        study._storage.engine.dispose()


def test_what_cannot_be_sent(tmp_path: Path) -> None:
    lock = threading.Lock()
    study = journal_study(tmp_path)
    told = refused(study, lambda trial: lock.locked())
    assert "objective=" in told
    assert "cannot be pickled" in told
    assert "callbacks=" in refused(study, callbacks=[lambda s, t: lock.locked()])
    assert study.trials == []


@pytest.mark.parametrize(("engine", "package"), [("dask", "distributed"), ("ray", "ray")])
def test_an_engine_that_is_not_installed(
    engine: str, package: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(MissingExtraError, match=rf"optuna-dp\[{engine}\]"):
        odp.distributed.optimize(journal_study(tmp_path), never, workers=2, engine=engine)


@pytest.mark.engines
def test_dask_without_a_client(tmp_path: Path) -> None:
    pytest.importorskip("distributed")
    assert "connected to no Dask cluster" in refused(journal_study(tmp_path), engine="dask")
