"""What a call promises, on threads of this process: quick, and on no real engine."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Mapping
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import optuna
import pytest
from optuna.exceptions import StorageInternalError
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend
from optuna.trial import TrialState
from reliability.checks import check_exactly_t, release_of
from reliability.workers import BUDGET
from support import RUN, exactly

import optuna_dp as odp
from optuna_dp.distributed.workers import ENGINES, Failure
from optuna_dp.errors import StorageError, WorkersError

from .studies import Diary, X, journal_study, objective_of
from .threads import Death, Threads


@pytest.fixture(autouse=True)
def _threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(ENGINES, "threads", Threads)  # type: ignore[arg-type]


@pytest.fixture
def diary(tmp_path: Path) -> Diary:
    return Diary(tmp_path / "diary")


def optimize(study: optuna.Study, objective: Any, workers: int = 3, **options: Any) -> None:
    odp.distributed.optimize(study, objective, workers=workers, engine="threads", **options)


def failed(study: optuna.Study) -> list[int]:
    return [t.number for t in study.trials if t.state == TrialState.FAIL]


def test_three_workers_make_the_planned_runs(diary: Diary, tmp_path: Path) -> None:
    study = journal_study(tmp_path)
    optimize(study, objective_of(diary), callbacks=[odp.PrivacyCallback()])
    check_exactly_t(study, diary.began())
    assert odp.release(study, vouched="a test").params is not None


def test_the_guarantee_is_that_of_one_worker(diary: Diary, tmp_path: Path) -> None:
    epsilons = set()
    for workers in (1, 3):
        folder = tmp_path / str(workers)
        folder.mkdir()
        study = journal_study(folder, odp.BudgetSampler(BUDGET, search_space=X))
        optimize(study, objective_of(Diary(folder / "diary")), workers)
        check_exactly_t(study, Diary(folder / "diary").began())
        epsilons.add(odp.release(study).guarantee.epsilon(1e-5))
    assert len(epsilons) == 1


def test_a_dead_worker_loses_its_run_and_no_other(diary: Diary, tmp_path: Path) -> None:
    study = journal_study(tmp_path)
    optimize(study, objective_of(diary, fatal=[2], death="thread"))
    check_exactly_t(study, diary.began(), crashes=True)
    assert failed(study) == [2]
    assert release_of(study).params is not None


@pytest.mark.parametrize("fatal", [1, 4, 5])
def test_the_next_rung_does_not_wait_for_a_dead_worker(
    fatal: int, diary: Diary, tmp_path: Path
) -> None:
    """A pilot of the first rung, one of the second, the last run (which has one to spare)."""
    study = journal_study(tmp_path, odp.BudgetSampler(BUDGET, search_space=X, pilot_batch_size=2))
    optimize(study, objective_of(diary, fatal=[fatal], death="thread"))
    check_exactly_t(study, diary.began(), crashes=True)
    assert failed(study) == [fatal]
    assert odp.release(study).params is not None


def test_a_worker_that_starts_again_does_not_continue_its_run(
    diary: Diary, tmp_path: Path
) -> None:
    """In batches of one, so that a run which nobody marks would keep the next one waiting."""
    sampler = odp.DPHyPOSampler(X, trials=exactly(6), candidates=16, batch_size=1, run=RUN)
    study = journal_study(tmp_path, sampler)
    objective = objective_of(diary, fatal=[1], death="thread")
    optimize(study, objective, workers=1, engine_options={"restarts": 1})
    check_exactly_t(study, diary.began(), crashes=True)
    assert failed(study) == [1]


def test_an_enqueued_run_is_lost_with_its_worker(diary: Diary, tmp_path: Path) -> None:
    """Its trial is older than the worker."""
    study = journal_study(tmp_path, odp.BudgetSampler(BUDGET, search_space=X, pilot_batch_size=2))
    study.enqueue_trial({"x": 0.1})
    optimize(study, objective_of(diary, fatal=[0], death="thread"))
    check_exactly_t(study, diary.began(), crashes=True)
    assert failed(study) == [0]


def test_if_all_workers_die_another_call_continues(diary: Diary, tmp_path: Path) -> None:
    study = journal_study(tmp_path)
    with pytest.raises(WorkersError) as caught:
        optimize(study, objective_of(diary, fatal=range(12), death="thread"))
    assert "the machine is gone" in caught.value.reason
    assert failed(study) == [0, 1, 2]
    assert odp.recover(study) == []
    optimize(study, objective_of(diary))
    check_exactly_t(study, diary.began(), crashes=True)


def test_an_exception_comes_back_when_the_others_have_ended(diary: Diary, tmp_path: Path) -> None:
    study = journal_study(tmp_path)
    with pytest.raises(ValueError, match="the data are not there") as caught:
        optimize(study, objective_of(diary, raises=[1]))
    assert "in objective" in str(caught.value.__cause__)  # Where it happened.
    check_exactly_t(study, diary.began(), crashes=True)
    assert failed(study) == [1]


def test_caught_exceptions_end_no_worker(diary: Diary, tmp_path: Path) -> None:
    study = journal_study(tmp_path)
    optimize(study, objective_of(diary, raises=[1, 3, 5]), workers=1, catch=ValueError)
    check_exactly_t(study, diary.began(), crashes=True)
    assert failed(study) == [1, 3, 5]


@pytest.mark.parametrize("error", [KeyboardInterrupt(), SystemExit(3)])
def test_what_ends_a_process_comes_back_and_leaves_no_run_open(
    error: BaseException, diary: Diary, tmp_path: Path
) -> None:
    study = journal_study(tmp_path)
    with pytest.raises(type(error)):
        optimize(study, objective_of(diary, raises=[1], error=error))
    assert failed(study) == [1]
    assert odp.recover(study) == []


class Unusual(Exception):
    """An exception that can be pickled, and not unpickled."""

    def __init__(self, file: str, line: int) -> None:
        super().__init__(f"{file} is broken")


def test_an_exception_that_cannot_be_sent_comes_back_in_words(
    diary: Diary, tmp_path: Path
) -> None:
    study = journal_study(tmp_path)

    def objective(trial: optuna.Trial) -> float:
        from engines.test_workers import Unusual

        raise Unusual("data.csv", 3)

    with pytest.raises(WorkersError, match=r"Unusual.*data\.csv"):
        optimize(study, objective, workers=1)


def test_a_failed_storage_is_named(diary: Diary, tmp_path: Path) -> None:
    def objective(trial: optuna.Trial) -> float:
        raise StorageInternalError("connection to db.cluster, port 5432 was lost")

    with pytest.raises(StorageError, match="5432"):
        optimize(journal_study(tmp_path), objective, workers=1)


class Elsewhere(JournalStorage):
    """A journal whose path is another file on every worker's machine."""

    def __reduce__(self) -> Any:
        return _elsewhere, (self._backend._file_path,)


def _elsewhere(path: str) -> JournalStorage:
    return JournalStorage(JournalFileBackend(f"{path}.elsewhere"))


def test_a_worker_that_opens_another_storage_says_so(diary: Diary, tmp_path: Path) -> None:
    study = optuna.create_study(
        study_name="tuning",
        storage=Elsewhere(JournalFileBackend(str(tmp_path / "journal"))),
        sampler=odp.RandTuneSampler(run=RUN),
    )
    with pytest.raises(WorkersError, match="'tuning'"):
        optimize(study, objective_of(diary))
    assert study.trials == []
    assert diary.began() == []


def test_an_engine_that_takes_no_worker_any_more_leaves_no_run_open(
    diary: Diary, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Refusing(Threads):
        """It takes one worker, and ends it with the call."""

        def __init__(self, workers: int, options: dict[str, Any]) -> None:
            super().__init__(workers, options)
            self._futures: list[Future[Failure | None]] = []

        def start(self, packed: Mapping[str, bytes], place: str) -> Future[Failure | None]:
            if self._futures:
                self._futures[0].exception()  # Its worker dies in its first run.
                raise ConnectionError("the scheduler is gone")
            self._futures.append(super().start(packed, place))
            return self._futures[0]

        def end(self) -> bool:
            return True

    monkeypatch.setitem(ENGINES, "threads", Refusing)  # type: ignore[arg-type]
    study = journal_study(tmp_path)
    with pytest.raises(ConnectionError, match="the scheduler is gone"):
        optimize(study, objective_of(diary, fatal=[0], death="thread"), workers=2)
    assert failed(study) == [0]
    assert odp.recover(study) == []


def test_candidates_over_partitions_are_evaluated_once_each(tmp_path: Path, diary: Diary) -> None:
    path = str(diary.path)

    def objective(trial: optuna.Trial) -> float:
        x = trial.suggest_float("x", 0.0, 1.0)
        with open(path, "a") as lines:
            lines.write(f"{trial.number}\n")
        return x

    sampler = odp.NoisyMaxSampler(
        candidates=[{"x": i / 8} for i in range(8)], n_partitions=4000, epsilon=1.0
    )
    study = journal_study(tmp_path, sampler)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        optimize(study, objective)
    assert Counter(diary.began()) == Counter(range(8))
    assert odp.release(study).params is not None


def test_a_trial_is_its_workers_from_the_first_moment(
    diary: Diary, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker dies right after the storage has created its second trial."""
    create = JournalStorage.create_new_trial

    def create_and_die(self: Any, *args: Any, **kwargs: Any) -> int:
        trial_id = create(self, *args, **kwargs)
        if self.get_trial(trial_id).number == 1:
            raise Death
        return trial_id

    monkeypatch.setattr(JournalStorage, "create_new_trial", create_and_die)
    sampler = odp.DPHyPOSampler(X, trials=exactly(6), candidates=16, batch_size=1, run=RUN)
    study = journal_study(tmp_path, sampler)
    optimize(study, objective_of(diary))
    assert failed(study) == [1]
    check_exactly_t(study, diary.began(), crashes=True)
