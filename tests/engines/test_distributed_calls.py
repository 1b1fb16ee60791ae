"""Calls on this machine: threads, processes of which one is killed, and a crew that dies."""

from __future__ import annotations

import pickle
import shutil
import tempfile
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import joblib
import optuna
import pytest
from optuna.storages import GrpcStorageProxy
from optuna.trial import TrialState
from reliability.checks import check_exactly_t, plan_of
from support import RUN, logged

import optuna_dp as odp
from optuna_dp.distributed import call as call_module
from optuna_dp.distributed.owners import OWNER_KEY
from optuna_dp.distributed.worker import look, work
from optuna_dp.errors import WorkersError

from .crew import Crew
from .studies import Diary, X, law, objective_of, study_maker

pytest.importorskip("grpc")
from optuna.storages._grpc.server import make_server


@pytest.fixture
def diary(tmp_path: Path) -> Diary:
    return Diary(tmp_path / "diary")


# The objectives of these tests travel by value; what they cannot take along stands here.
CREW: list[Crew] = []


@pytest.fixture
def crew(monkeypatch: pytest.MonkeyPatch) -> Iterator[Crew]:
    found = Crew()
    CREW[:] = [found]
    monkeypatch.setattr(call_module, "engine_here", lambda workers: found)
    yield found
    found.wake_the_dead()


def dying(diary: Diary, when: Callable[[optuna.Trial], bool]) -> Callable[[optuna.Trial], float]:
    """An objective in which the worker dies at certain trials."""
    run = objective_of(diary)

    def objective(trial: optuna.Trial) -> float:
        from engines.test_distributed_calls import CREW

        value = run(trial)
        if when(trial):
            CREW[0].die()
        return value

    return objective


def test_threads_make_exactly_t_runs(diary: Diary) -> None:
    with joblib.parallel_config("threading"):
        study = odp.distributed.optimize(study_maker(), objective_of(diary), workers=4)
    check_exactly_t(study, diary.began())


@pytest.mark.slow
def test_a_killed_process_loses_its_run_and_no_other(diary: Diary) -> None:
    """A laptop: two processes, a study in memory, one process is killed."""
    objective = objective_of(diary, fatal=2)
    study = odp.distributed.optimize(
        study_maker(), objective, workers=2, callbacks=[odp.PrivacyCallback(RUN)]
    )
    check_exactly_t(study, diary.began(), crashes=True)
    failed = [t.number for t in study.trials if t.state == TrialState.FAIL]
    assert failed == [2]
    assert odp.release(study, vouched="a test").params is not None


@pytest.mark.slow
def test_only_the_dead_workers_run_is_settled(crew: Crew, diary: Diary) -> None:
    """Run 0 is open until run 1, whose worker died, has been told to have failed. Both end."""
    run = dying(diary, lambda trial: trial.number == 1)

    def objective(trial: optuna.Trial) -> float:
        from optuna_dp.polling import poll

        value = run(trial)
        if trial.number == 0:
            poll(
                lambda: (
                    any(t.number == 1 and t.state.is_finished() for t in trials_of(trial)) or None
                ),
            )
        return value

    def trials_of(trial: optuna.Trial) -> list[optuna.trial.FrozenTrial]:
        found: list[optuna.trial.FrozenTrial] = trial.study.get_trials(deepcopy=False)
        return found

    study = odp.distributed.optimize(study_maker(), objective, workers=3)
    check_exactly_t(study, diary.began(), crashes=True)
    assert [t.number for t in study.trials if t.state == TrialState.FAIL] == [1]
    assert [name for name, _ in crew.started].count("work") == 4  # Three, and a replacement.


@pytest.mark.slow
def test_a_worker_that_lives_after_all_changes_nothing(crew: Crew, diary: Diary) -> None:
    objective = dying(diary, lambda trial: trial.number == 1)
    study = odp.distributed.optimize(
        study_maker(storage=optuna.storages.InMemoryStorage()), objective, workers=2
    )
    before = [(t.number, t.state, t.values) for t in study.trials]
    crew.wake_the_dead()
    assert [(t.number, t.state, t.values) for t in study.trials] == before
    check_exactly_t(study, diary.began(), crashes=True)


@pytest.mark.slow
def test_a_task_that_starts_again_does_not_continue_its_run(crew: Crew, diary: Diary) -> None:
    """Engines retry on their own; the call hears nothing of it.

    In batches of one, so that a run which nobody settles would keep the next one waiting.
    """
    crew.restarts = True
    sampler = odp.DPHyPOSampler(X, trials=law(), candidates=16, batch_size=1)
    objective = dying(diary, lambda trial: trial.number == 1)
    study = odp.distributed.optimize(study_maker(sampler), objective, workers=1)
    assert [name for name, _ in crew.started] == ["look", "work", "work"]
    check_exactly_t(study, diary.began(), crashes=True)
    assert [t.number for t in study.trials if t.state == TrialState.FAIL] == [1]


@pytest.mark.slow
def test_batches_do_not_wait_for_the_dead(crew: Crew, diary: Diary) -> None:
    """The next batch begins only when the dead worker's run has been settled."""
    sampler = odp.DPHyPOSampler(X, trials=law(), candidates=16, batch_size=2)
    objective = dying(diary, lambda trial: trial.number == 3)
    study = odp.distributed.optimize(study_maker(sampler), objective, workers=2)
    check_exactly_t(study, diary.began(), crashes=True)


@pytest.mark.slow
def test_whoever_always_dies_is_not_replaced_for_ever(crew: Crew, diary: Diary) -> None:
    sampler = odp.RandTuneSampler(trials=law(60, 80))
    study = study_maker(sampler)()
    objective = dying(diary, lambda trial: True)
    with pytest.raises(WorkersError, match="again and again") as caught:
        odp.distributed.optimize(lambda: study, objective, workers=2)
    assert [name for name, _ in crew.started].count("work") == 6
    plan = plan_of(study)
    assert plan is not None
    assert str(plan.slots) not in str(caught.value)
    assert all(t.state == TrialState.FAIL for t in study.trials)
    # Mended, the same study goes on where it is.
    odp.distributed.optimize(lambda: study, objective_of(diary), workers=2)
    check_exactly_t(study, diary.began(), crashes=True)


@pytest.mark.slow
def test_deaths_between_runs_that_ended_are_not_counted(crew: Crew, diary: Diary) -> None:
    """On machines that are taken away every other hour a study ends all the same."""
    sampler = odp.RandTuneSampler(trials=law(20, 24))
    objective = dying(diary, lambda trial: trial.number % 2 == 1)
    study = odp.distributed.optimize(study_maker(sampler), objective, workers=1)
    check_exactly_t(study, diary.began(), crashes=True)


@pytest.mark.slow
def test_an_objective_that_raises_ends_its_worker_only(crew: Crew, diary: Diary) -> None:
    study = study_maker()()
    with pytest.raises(ValueError, match="the data are not there") as caught:
        odp.distributed.optimize(lambda: study, objective_of(diary, raises=1), workers=2)
    assert "suggest_float" not in str(caught.value)
    assert "in objective" in str(caught.value.__cause__)  # Where it happened.
    check_exactly_t(study, diary.began(), crashes=True)
    assert odp.release(study, RUN, vouched="a test").params is not None


# Storages and engines that die.


@pytest.fixture
def mortal() -> Iterator[GrpcStorageProxy]:
    """A storage behind a server, which an objective kills by ``STOP[0]()``."""
    folder = Path(tempfile.mkdtemp(prefix="odp-"))  # Sockets have short names.
    address: dict[str, Any] = {"host": "unix", "port": str(folder / "s")}
    server = make_server(optuna.storages.InMemoryStorage(), **address)
    server.start()
    STOP[:] = [lambda: server.stop(grace=None).wait()]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        storage = GrpcStorageProxy(**address)
    yield storage
    storage.close()
    STOP[0]()
    shutil.rmtree(folder)


STOP: list[Callable[[], Any]] = []


def killing_the_storage(trial: optuna.Trial) -> float:
    from engines.test_distributed_calls import STOP

    if trial.number == 2:
        STOP[0]()
    return trial.suggest_float("x", 0, 1)


@pytest.mark.filterwarnings("ignore::optuna.exceptions.ExperimentalWarning")
@pytest.mark.parametrize("where", ["threading", "crew"])
def test_a_storage_that_dies_is_one_error_and_says_what_is_left_open(
    where: str, crew: Crew, mortal: GrpcStorageProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    study = study_maker(storage=mortal)()
    if where == "threading":
        monkeypatch.setattr(call_module, "engine_here", lambda workers: None)
    with pytest.raises(WorkersError, match="The storage of the study failed: ") as caught:
        odp.distributed.optimize(lambda: study, killing_the_storage, workers=2)
    assert "odp.recover(study) lists them" in caught.value.settled
    assert "call optimize again" in caught.value.fix
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)


def test_a_storage_that_dies_before_anything_begins(crew: Crew, mortal: GrpcStorageProxy) -> None:
    study = study_maker(storage=mortal)()
    STOP[0]()
    with pytest.raises(WorkersError, match="Nothing has begun"):
        odp.distributed.optimize(lambda: study, killing_the_storage, workers=2)


def test_an_engine_that_dies_says_that_every_run_is_settled(crew: Crew, diary: Diary) -> None:
    """Workers of a served study are cut off from it when the call ends, so all can be settled."""
    start, left = crew.start, 4  # A look and a worker, twice.

    def start_while_alive(place: int, task: Any, ticket: bytes) -> Any:
        nonlocal left
        left -= 1
        if left < 0:
            raise ConnectionError("the scheduler is gone")
        return start(place, task, ticket)

    crew.start = start_while_alive  # type: ignore[method-assign]
    study = study_maker()()
    with pytest.raises(WorkersError, match="crew takes no tasks") as caught:
        odp.distributed.optimize(
            lambda: study, dying(diary, lambda trial: trial.number < 2), workers=2
        )
    assert "Every run that had begun has ended" in caught.value.settled
    assert odp.recover(study) == []
    assert study.trials[1].state == TrialState.FAIL


def test_what_an_objective_raises_is_not_taken_for_a_storage(crew: Crew) -> None:
    def objective(trial: optuna.Trial) -> float:
        raise ConnectionError("the data are gone")

    with pytest.raises(ConnectionError, match="the data are gone"):
        odp.distributed.optimize(study_maker(), objective, workers=1)


@pytest.mark.slow
def test_every_trial_belongs_to_somebody_from_the_first_moment(crew: Crew, diary: Diary) -> None:
    """The mark is part of the trial's creation: the storage is told nothing of it later."""
    study = study_maker()()
    seen: list[object] = []
    create = study._storage.create_new_trial

    def created(study_id: int, template_trial: object = None) -> int:
        seen.append(template_trial and template_trial.system_attrs.get(OWNER_KEY))  # type: ignore[attr-defined]
        return create(study_id, template_trial=template_trial)  # type: ignore[arg-type]

    study._storage.create_new_trial = created  # type: ignore[method-assign, assignment]
    odp.distributed.optimize(lambda: study, objective_of(diary), workers=2)
    assert len(seen) >= len(diary.began())
    assert all(isinstance(owner, str) for owner in seen)


def test_a_callback_may_be_sent(diary: Diary) -> None:
    told = odp.PrivacyCallback(RUN, delta=1e-6, show_progress=True)
    copy = pickle.loads(pickle.dumps(told))
    assert repr(copy) == repr(told)
    study = study_maker()()
    study.optimize(objective_of(diary), callbacks=[copy])
    assert odp.release(study, vouched="a test").guarantee.epsilon(1e-6) > 0


def test_the_engine_learns_nothing(
    crew: Crew, diary: Diary, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not from what it is given, nor from what it gets back, nor from a worker's log."""
    given: list[bytes] = []
    returned: list[object] = []
    start = crew.start

    def noted(place, task, ticket):  # type: ignore[no-untyped-def]
        given.append(ticket)

        def elsewhere(ticket: bytes) -> object:
            # Tickets of another process's: a worker on a machine of the engine.
            monkeypatch.setattr("optuna_dp.distributed.worker.THIS_PROCESS", "elsewhere")
            returned.append({"look": look, "work": work}[task.__name__](ticket))
            return returned[-1]

        elsewhere.__name__ = task.__name__
        return start(place, elsewhere, ticket)

    monkeypatch.setattr(crew, "start", noted)
    study = study_maker()()
    objective = objective_of(diary, raises=1)
    with logged("optuna") as told, pytest.raises(ValueError, match="the data"):
        odp.distributed.optimize(lambda: study, objective, workers=2)
    assert len(given) == 4  # A look and a worker, twice.
    assert optuna.logging.get_verbosity() == optuna.logging.ERROR  # As before.
    assert told == []
    well = [report for report in returned if not report.error]  # type: ignore[attr-defined]
    assert len(well) == 3
    assert len({repr(report) for report in well}) == 1
