"""What is refused before any run has started."""

from __future__ import annotations

import sys
import threading
from pathlib import Path
from typing import Any

import optuna
import pytest
from optuna.storages import InMemoryStorage, RDBStorage
from refusals import refuses

import optuna_dp as odp
from optuna_dp.errors import InvalidArgumentError, MissingExtraError

from .studies import journal_study


def never(trial: optuna.Trial) -> float:
    raise AssertionError("a run has started")


def refused(
    argument: str, study: Any, objective: Any = never, **arguments: Any
) -> InvalidArgumentError:
    """Wants an error about ``argument`` from a call with the others."""
    with refuses(argument) as caught:
        odp.distributed.optimize(study, objective, **{"workers": 2, **arguments})
    return caught.value


def test_arguments(tmp_path: Path) -> None:
    study = journal_study(tmp_path)
    refused("study", 4)
    refused("workers", study, workers=0)
    refused("objective", study, None)
    why = refused("engine", study, engine="spark").why
    assert all(f"'{engine}'" in why for engine in ("dask", "processes", "ray"))
    refused("engine_options", study, engine_options={"num_gpus": 1})
    assert study.trials == []


def test_a_sampler_that_never_ends(tmp_path: Path) -> None:
    study = journal_study(tmp_path, optuna.samplers.RandomSampler())
    assert "RandomSampler" in repr(refused("study", study).value)
    assert study.trials == []


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
    error = refused("study", study)
    assert "memory" in error.why
    assert "JournalFileBackend" in error.fix
    if isinstance(study._storage, RDBStorage):
        study._storage.engine.dispose()


def test_what_cannot_be_sent(tmp_path: Path) -> None:
    lock = threading.Lock()
    study = journal_study(tmp_path)
    assert "pickle" in refused("objective", study, lambda trial: lock.locked()).why
    assert "pickle" in refused("callbacks", study, callbacks=[lambda s, t: lock.locked()]).why
    assert study.trials == []


@pytest.mark.parametrize(("engine", "package"), [("dask", "distributed"), ("ray", "ray")])
def test_an_engine_that_is_not_installed(
    engine: str, package: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(MissingExtraError) as caught:
        odp.distributed.optimize(journal_study(tmp_path), never, workers=2, engine=engine)
    assert (caught.value.package, caught.value.extra) == (package, engine)


@pytest.mark.engines
def test_dask_without_a_client(tmp_path: Path) -> None:
    pytest.importorskip("distributed")
    assert "Client" in refused("engine", journal_study(tmp_path), engine="dask").fix
