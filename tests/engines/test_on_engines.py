"""Eight workers on a real Dask and a real Ray, on this machine.

They need the extras dask and ray: ``pytest tests/engines -m engines -n 0``; some minutes.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import joblib
import pytest
from optuna.trial import TrialState
from reliability.checks import check_exactly_t, release_of
from reliability.workers import BUDGET
from support import RUN

import optuna_dp as odp

from .driver import WORKERS, running
from .studies import Diary, X, law, objective_of, study_maker

pytestmark = [
    pytest.mark.engines,
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
]


@pytest.fixture(scope="module", params=["dask", "ray"])
def engine(request: pytest.FixtureRequest) -> Iterator[str]:
    package = {"dask": "distributed", "ray": "ray"}[request.param]
    pytest.importorskip(package)
    with running(request.param):
        yield request.param


@pytest.fixture
def diary(tmp_path: Path) -> Diary:
    return Diary(tmp_path / "diary")


def test_exactly_t_runs(engine: str, diary: Diary) -> None:
    study = odp.distributed.optimize(
        study_maker(), objective_of(diary), workers=WORKERS, callbacks=[odp.PrivacyCallback(RUN)]
    )
    check_exactly_t(study, diary.began())
    assert odp.release(study).params is not None


def test_a_killed_worker_loses_its_run_and_no_other(engine: str, diary: Diary) -> None:
    study = odp.distributed.optimize(study_maker(), objective_of(diary, fatal=4), workers=WORKERS)
    check_exactly_t(study, diary.began(), crashes=True)
    assert [t.number for t in study.trials if t.state == TrialState.FAIL] == [4]


def test_the_engine_retries_and_no_run_is_made_twice(engine: str, diary: Diary) -> None:
    """Both are told to start lost tasks again, as a user may have configured them."""
    settings = {"retries": 3} if engine == "dask" else {"ray_remote_args": {"max_retries": 3}}
    with joblib.parallel_config(engine, **settings):
        study = odp.distributed.optimize(
            study_maker(), objective_of(diary, fatal=3), workers=WORKERS
        )
    check_exactly_t(study, diary.began(), crashes=True)
    assert [t.number for t in study.trials if t.state == TrialState.FAIL] == [3]


def test_an_objective_that_raises(engine: str, diary: Diary) -> None:
    study = study_maker()()
    with pytest.raises(ValueError, match="the data are not there"):
        odp.distributed.optimize(lambda: study, objective_of(diary, raises=2), workers=WORKERS)
    check_exactly_t(study, diary.began(), crashes=True)


def test_batches_of_dp_hypo_with_a_killed_worker(engine: str, diary: Diary) -> None:
    sampler = odp.DPHyPOSampler(X, trials=law(), candidates=16, batch_size=WORKERS)
    study = odp.distributed.optimize(
        study_maker(sampler), objective_of(diary, fatal=2), workers=WORKERS
    )
    check_exactly_t(study, diary.began(), crashes=True)
    assert release_of(study, RUN).params is not None


@pytest.mark.parametrize("fatal", [1, 4, 5])
def test_pilots_in_rungs_with_a_killed_worker(engine: str, diary: Diary, fatal: int) -> None:
    """A pilot of the first rung, one of the second, the last run (which has one to spare)."""
    sampler = odp.BudgetSampler(BUDGET, search_space=X, pilot_batch_size=2)
    study = odp.distributed.optimize(
        study_maker(sampler), objective_of(diary, fatal=fatal), workers=4
    )
    check_exactly_t(study, diary.began(), crashes=True)
    release = odp.release(study)
    assert release.params is not None


def test_workers_that_are_all_restarted(engine: str, diary: Diary) -> None:
    if engine != "dask":
        pytest.skip("Ray has no such call; the next test restarts all of it")
    from distributed import default_client

    from optuna_dp.polling import poll

    client = default_client()
    study = study_maker(odp.RandTuneSampler(trials=law(40, 60)))()

    def restart() -> None:
        poll(lambda: len(diary.began()) >= 5 or None, timeout=None)
        client.restart()

    with ThreadPoolExecutor(1) as beside:
        restarted = beside.submit(restart)
        odp.distributed.optimize(lambda: study, objective_of(diary), workers=WORKERS)
        restarted.result()
    check_exactly_t(study, diary.began(), crashes=True)
