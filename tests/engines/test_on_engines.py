"""What a call promises, on processes of this machine, on a real Dask and on a real Ray.

The latter two need the extras dask and ray: ``pytest tests/engines -m engines -n 0``; minutes.
``ENGINE_STUDIES`` says in how many studies a worker is killed (2).
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import optuna
import pytest
from optuna.trial import TrialState
from reliability.checks import check_exactly_t, release_of
from reliability.workers import BUDGET
from support import RUN, exactly

import optuna_dp as odp
from optuna_dp.errors import WorkersError

from .driver import WORKERS, running
from .studies import Diary, X, journal_study, objective_of

pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
]
# Low numbers, so that every study has the run.
KILLED = [1 + i % 4 for i in range(int(os.environ.get("ENGINE_STUDIES", "2")))]
PACKAGES = {"dask": "distributed", "ray": "ray"}


@pytest.fixture(
    scope="module",
    params=[
        pytest.param("processes", marks=pytest.mark.slow),
        pytest.param("dask", marks=pytest.mark.engines),
        pytest.param("ray", marks=pytest.mark.engines),
    ],
)
def engine(request: pytest.FixtureRequest) -> Iterator[str]:
    if request.param in PACKAGES:
        pytest.importorskip(PACKAGES[request.param])
    with running(request.param):
        yield request.param


@pytest.fixture
def diary(tmp_path: Path) -> Diary:
    return Diary(tmp_path / "diary")


def failed(study: optuna.Study) -> list[int]:
    return [t.number for t in study.trials if t.state == TrialState.FAIL]


def test_the_planned_runs_are_made(engine: str, diary: Diary, tmp_path: Path) -> None:
    study = journal_study(tmp_path)
    odp.distributed.optimize(
        study,
        objective_of(diary),
        workers=WORKERS,
        engine=engine,
        callbacks=[odp.PrivacyCallback()],
    )
    check_exactly_t(study, diary.began())
    assert odp.release(study, vouched="a test").params is not None


def test_a_study_in_a_file_of_sqlite(engine: str, diary: Diary, tmp_path: Path) -> None:
    storage = optuna.storages.RDBStorage(
        f"sqlite:///{tmp_path}/tuning.db", engine_kwargs={"connect_args": {"timeout": 60}}
    )
    study = optuna.create_study(
        storage=storage,
        sampler=odp.RandTuneSampler(trials=exactly(6), run=RUN),
        direction="maximize",
    )
    odp.distributed.optimize(study, objective_of(diary), workers=WORKERS, engine=engine)
    check_exactly_t(study, diary.began())
    storage.remove_session()
    storage.engine.dispose()


@pytest.mark.parametrize("fatal", KILLED)
def test_a_killed_worker_loses_its_run_and_no_other(
    engine: str, fatal: int, diary: Diary, tmp_path: Path
) -> None:
    study = journal_study(tmp_path)
    objective = objective_of(diary, fatal=[fatal])
    odp.distributed.optimize(study, objective, workers=WORKERS, engine=engine)
    check_exactly_t(study, diary.began(), crashes=True)
    assert failed(study) == [fatal]
    assert release_of(study).params is not None


@pytest.mark.parametrize("fatal", [1, 4])
def test_the_next_rung_does_not_wait_for_a_killed_worker(
    engine: str, fatal: int, diary: Diary, tmp_path: Path
) -> None:
    """A pilot of the first rung, one of the second."""
    study = journal_study(tmp_path, odp.BudgetSampler(BUDGET, search_space=X, pilot_batch_size=2))
    objective = objective_of(diary, fatal=[fatal])
    odp.distributed.optimize(study, objective, workers=WORKERS, engine=engine)
    check_exactly_t(study, diary.began(), crashes=True)
    assert failed(study) == [fatal]
    assert odp.release(study).params is not None


def test_an_exception_comes_back_when_the_others_have_ended(
    engine: str, diary: Diary, tmp_path: Path
) -> None:
    study = journal_study(tmp_path)
    with pytest.raises(ValueError, match="the data are not there") as caught:
        odp.distributed.optimize(
            study, objective_of(diary, raises=[2]), workers=WORKERS, engine=engine
        )
    assert "in objective" in str(caught.value.__cause__)
    check_exactly_t(study, diary.began(), crashes=True)
    assert failed(study) == [2]


def test_if_all_workers_die_another_call_continues(
    engine: str, diary: Diary, tmp_path: Path
) -> None:
    study = journal_study(tmp_path, odp.RandTuneSampler(trials=exactly(20), run=RUN))
    killed = objective_of(diary, fatal=range(20))
    with pytest.raises(WorkersError):
        odp.distributed.optimize(study, killed, workers=2, engine=engine)
    assert odp.recover(study) == []
    odp.distributed.optimize(study, objective_of(diary), workers=2, engine=engine)
    check_exactly_t(study, diary.began(), crashes=True)


@pytest.mark.slow
def test_processes_log_no_run(
    diary: Diary, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Optuna would log the number, the parameters and the score of each trial."""
    optuna.logging.set_verbosity(optuna.logging.INFO)
    odp.distributed.optimize(journal_study(tmp_path), objective_of(diary), workers=2)
    assert diary.began()
    captured = capfd.readouterr()
    assert "Trial " not in captured.out + captured.err
