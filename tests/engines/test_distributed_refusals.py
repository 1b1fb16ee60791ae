"""What is refused, before any run has started."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import joblib
import optuna
import pytest
from optuna.storages import GrpcStorageProxy, InMemoryStorage, RDBStorage

import optuna_dp as odp
from optuna_dp.distributed import call as call_module
from optuna_dp.distributed import worker as worker_module
from optuna_dp.distributed.engines import Dask
from optuna_dp.distributed.served import SecretProxy, served
from optuna_dp.errors import InvalidArgumentError, MissingExtraError, WorkersError

from .crew import Crew
from .studies import study_maker

grpc = pytest.importorskip("grpc")


def never(trial: optuna.Trial) -> float:
    raise AssertionError("a run has started")


@pytest.fixture
def crew(monkeypatch: pytest.MonkeyPatch) -> Crew:
    found = Crew()
    monkeypatch.setattr(call_module, "engine_here", lambda workers: found)
    return found


def refused(make_study: Any, objective: Any = never, **arguments: Any) -> str:
    with pytest.raises((InvalidArgumentError, WorkersError)) as caught:
        odp.distributed.optimize(make_study, objective, **{"workers": 2, **arguments})
    return str(caught.value)


def test_arguments() -> None:
    assert "make_study=3" in refused(3)
    assert "workers=0" in refused(study_maker(), workers=0)
    study = study_maker()()
    assert "objective=None" in refused(lambda: study, None)
    for callbacks in (5, [5], [None]):
        assert "callbacks=" in refused(lambda: study, callbacks=callbacks)
    assert study.trials == []
    assert "study=4" in refused(lambda: 4)
    assert "optuna-dp's, which end by themselves" in refused(optuna.create_study)
    candidates = odp.NoisyMaxSampler(candidates=[{"x": 1.0}], n_partitions=400, epsilon=1.0)
    assert "can be evaluated again" in refused(study_maker(candidates))


def test_what_cannot_be_sent(crew: Crew) -> None:
    lock = threading.Lock()
    study = study_maker()()
    told = refused(lambda: study, lambda trial: lock.locked())
    assert "objective" in told
    assert "cannot be pickled" in told
    assert "callbacks" in refused(lambda: study, callbacks=[lambda s, t: lock.locked()])
    assert not crew.started
    assert not study.trials


def test_a_database_that_is_not_there_for_workers(crew: Crew, tmp_path: Path) -> None:
    """A journal file on the caller's disk, say, or another machine's "localhost"."""
    path = tmp_path / "journal"
    journal = optuna.storages.journal.JournalFileBackend(str(path))
    study = study_maker(storage=optuna.storages.JournalStorage(journal))()
    start = crew.start

    def elsewhere(place: int, task: Any, ticket: bytes) -> Any:
        path.rename(path.with_suffix(".kept"))
        path.touch()
        try:
            future = start(place, task, ticket)
            future.result()
            return future
        finally:
            path.unlink()
            path.with_suffix(".kept").rename(path)

    crew.start = elsewhere  # type: ignore[method-assign]
    told = refused(lambda: study)
    assert "there is no study 'tuning'" in told
    assert "Nothing has begun" in told
    assert not study.trials
    assert {name for name, _ in crew.started} == {"look"}


def test_another_study_of_the_same_name(crew: Crew) -> None:
    """Two databases with the same address, seen from two machines."""
    study = study_maker()()

    def elsewhere(place: int, task: Any, ticket: bytes) -> Any:
        study._storage.set_study_system_attr(study._study_id, "optuna_dp:distributed", "another")
        return Crew.start(crew, place, task, ticket)

    crew.start = elsewhere  # type: ignore[method-assign]
    assert "another study 'tuning', not the caller's" in refused(lambda: study)
    assert not study.trials


def test_no_grpc(crew: Crew, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "grpc", None)
    with pytest.raises(MissingExtraError, match=r"optuna-dp\[grpc\]"):
        odp.distributed.optimize(study_maker(), never, workers=2)


@pytest.mark.parametrize("seconds", [0, -1, float("inf"), float("nan"), "soon", True])
def test_a_limit_that_is_none(seconds: Any) -> None:
    assert "run_timeout" in refused(study_maker(), run_timeout=seconds)


def test_a_limit_where_workers_cannot_be_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    class Client:
        threads: ClassVar = {"tcp://one": 1, "tcp://two": 2}

        def nthreads(self) -> dict[str, int]:
            return self.threads

    with joblib.parallel_config("threading"):
        assert "threads cannot be ended" in refused(study_maker(), run_timeout=60)
    dask: Any = Dask.__new__(Dask)
    dask.client = Client()
    monkeypatch.setattr(call_module, "engine_here", lambda _: dask)
    assert 'parallel_config("loky")' in refused(study_maker(), run_timeout=60)
    Client.threads = {"inproc://1": 1}
    assert "threads of one process" in dask.cannot_end_one()
    Client.threads = {"tcp://one": 1}
    assert not dask.cannot_end_one()


def test_a_limit_where_two_workers_share_a_process_after_all(crew: Crew) -> None:
    with worker_module.ALONE:  # As the other one has it.
        assert "Give every worker" in refused(study_maker(), run_timeout=60)


@pytest.mark.parametrize("backend", ["multiprocessing", "elsewhere"])
def test_an_engine_that_does_not_say_who_has_died(
    backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Elsewhere(joblib.parallel.BACKENDS["threading"]):  # type: ignore[misc]
        """Spark's, say."""

    monkeypatch.setitem(joblib.parallel.BACKENDS, "elsewhere", Elsewhere)
    with joblib.parallel_config(backend):
        assert "which of its workers has died" in refused(study_maker())


# Storages that do not number trials 0, 1, 2, ...


class Gaps(InMemoryStorage):
    def get_trial(self, trial_id: int) -> optuna.trial.FrozenTrial:
        found = super().get_trial(trial_id)
        found.number *= 2
        return found


class Twins(Gaps):
    def get_trial(self, trial_id: int) -> optuna.trial.FrozenTrial:
        found = super().get_trial(trial_id)
        found.number = found.number // 4
        return found


class Forgets(InMemoryStorage):
    def create_new_trial(self, study_id: int, template_trial: Any = None) -> int:
        return super().create_new_trial(study_id)


@pytest.mark.parametrize(
    ("storage", "why"),
    [(Gaps, "left gaps"), (Twins, "one number to two"), (Forgets, "drops the attributes")],
)
def test_storages_that_number_trials_otherwise(storage: Callable[[], Any], why: str) -> None:
    study = study_maker(storage=storage())()
    with joblib.parallel_config("threading"):
        assert why in refused(lambda: study)
    assert not study.trials
    assert [s.study_name for s in study._storage.get_all_studies()] == ["tuning"]


@pytest.mark.slow
def test_the_same_through_a_proxy(crew: Crew) -> None:
    """What is behind Optuna's proxy is unknown, so it is tried by the workers themselves."""
    for kind in (Gaps, InMemoryStorage):
        behind = kind()
        with served(behind, "127.0.0.1", one_by_one=False) as proxy:
            study = study_maker(storage=proxy)()
            if kind is Gaps:
                assert "left gaps" in refused(lambda: study)  # noqa: B023
            else:
                odp.distributed.optimize(
                    lambda: study,  # noqa: B023
                    lambda trial: trial.suggest_float("x", 0, 1),
                    workers=2,
                )
            assert len(behind.get_all_studies()) == 1


@pytest.mark.slow  # SQLite waits for the disk, some seconds.
def test_sqlite_in_a_file_is_served(crew: Crew, tmp_path: Path) -> None:
    storage = RDBStorage(f"sqlite:///{tmp_path}/tuning.db")
    study = odp.distributed.optimize(
        study_maker(storage=storage), lambda trial: trial.suggest_float("x", 0, 1), workers=3
    )
    assert odp.recover(study) == []
    storage.scoped_session.remove()
    storage.engine.dispose()


@pytest.mark.filterwarnings("ignore::optuna.exceptions.ExperimentalWarning")
def test_a_stranger_is_not_served() -> None:
    storage = InMemoryStorage()
    with served(storage, "127.0.0.1", one_by_one=False) as proxy:
        proxy.create_new_study([optuna.study.StudyDirection.MAXIMIZE], "secret")
        assert len(proxy.get_all_studies()) == 1
        stranger = GrpcStorageProxy(host="127.0.0.1", port=proxy._port)
        with pytest.raises(grpc.RpcError, match="not for you"):
            stranger.get_all_studies()
        with pytest.raises(grpc.RpcError, match="not for you"):
            stranger.create_new_study([optuna.study.StudyDirection.MAXIMIZE], "another")
        stranger.close()
        assert "secret" not in repr(proxy)
        assert proxy.secret not in repr(vars(stranger))
    late = SecretProxy("127.0.0.1", proxy._port, proxy.secret)
    with pytest.raises(grpc.RpcError):  # The server has gone with the call.
        late.get_all_studies()
    late.close()
