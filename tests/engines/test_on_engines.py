"""Eight workers on a real Dask and a real Ray, on this machine.

They need the extras dask and ray: ``pytest tests/engines -m engines -n 0``; some minutes.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import joblib
import optuna
import pytest
from optuna.trial import TrialState
from patience import PATIENCE
from reliability.checks import check_exactly_t, release_of
from reliability.storages import opened
from reliability.workers import BUDGET
from support import RUN

import optuna_dp as odp
from optuna_dp.errors import InvalidArgumentError, WorkersError

from .driver import WORKERS, running
from .servers import TESTS, proxy_server, until
from .studies import Diary, X, law, objective_of, study_maker

pytestmark = [
    pytest.mark.engines,
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore:GrpcStorageProxy is experimental"),
]


# Studies of each kind of death, all on one cluster: the run in which it comes. Low, so that every
# study has that run. Before a release: ENGINE_STUDIES=10.
KILLED = [i % 5 for i in range(1, 1 + int(os.environ.get("ENGINE_STUDIES", "3")))]


@pytest.fixture(scope="module", params=["dask", "ray"])
def cluster(request: pytest.FixtureRequest) -> Iterator[tuple[str, str]]:
    package = {"dask": "distributed", "ray": "ray"}[request.param]
    pytest.importorskip(package)
    with running(request.param) as address:
        yield request.param, address


@pytest.fixture
def engine(cluster: tuple[str, str]) -> str:
    return cluster[0]


@pytest.fixture
def diary(tmp_path: Path) -> Diary:
    return Diary(tmp_path / "diary")


def test_exactly_t_runs(engine: str, diary: Diary) -> None:
    study = odp.distributed.optimize(
        study_maker(), objective_of(diary), workers=WORKERS, callbacks=[odp.PrivacyCallback(RUN)]
    )
    check_exactly_t(study, diary.began())
    assert odp.release(study, vouched="a test").params is not None


@pytest.mark.parametrize("fatal", KILLED)
def test_a_killed_worker_loses_its_run_and_no_other(engine: str, fatal: int, diary: Diary) -> None:
    maker = study_maker(odp.RandTuneSampler(trials=law(16, 20)))
    study = odp.distributed.optimize(maker, objective_of(diary, fatal=fatal), workers=WORKERS)
    check_exactly_t(study, diary.began(), crashes=True)
    assert [t.number for t in study.trials if t.state == TrialState.FAIL] == [fatal]
    assert release_of(study, RUN).params is not None


@pytest.mark.parametrize("run", KILLED)
def test_a_killed_storage_costs_the_runs_under_way(
    engine: str, run: int, diary: Diary, tmp_path: Path
) -> None:
    sampler = odp.RandTuneSampler(trials=law(16, 20))
    with proxy_server(tmp_path) as (url, start):
        server = start()
        with opened(url) as storage:
            dying = objective_of(diary, kills=(run, server))
            with pytest.raises(WorkersError, match="The storage of the study failed: "):
                odp.distributed.optimize(study_maker(sampler, storage), dying, workers=4)
        start()
        with opened(url) as storage:
            study = study_maker(sampler, storage)()
            lost = [trial.number for trial in odp.recover(study)]
            assert run in lost
            odp.recover(study, fail=lost)
            run_on = objective_of(diary)
            study = odp.distributed.optimize(study_maker(sampler, storage), run_on, workers=4)
            check_exactly_t(study, diary.began(), crashes=True)
            assert release_of(study, RUN).params is not None


def fails_what_is_open(study: optuna.Study) -> bool:
    """Returns False if a worker of the dead call has ended one of these runs meanwhile."""
    try:
        odp.recover(study, fail=[trial.number for trial in odp.recover(study)])
    except InvalidArgumentError:
        return False
    return True


@pytest.mark.parametrize("run", KILLED)
def test_a_killed_driver_costs_the_runs_under_way(
    cluster: tuple[str, str], run: int, diary: Diary, tmp_path: Path
) -> None:
    """The cluster outlives it, and has another call make the rest."""
    engine, address = cluster
    url = f"journal:{tmp_path}/journal"
    told = [engine, url, str(diary.path), "--address", address, "--kills", str(run), "driver"]
    command = [sys.executable, "-m", "engines.driver", *told]
    call = subprocess.run(command, cwd=TESTS, capture_output=True, timeout=PATIENCE, check=False)
    assert call.returncode == -signal.SIGKILL, call.stderr
    with opened(url) as storage:
        study = optuna.load_study(study_name="tuning", storage=storage)
        assert run in [trial.number for trial in odp.recover(study)]
        until(lambda: fails_what_is_open(study))
        maker = study_maker(storage=storage)
        study = odp.distributed.optimize(maker, objective_of(diary), workers=4)
        # A worker of the dead call may have asked for one more, and ended when it saw the death.
        until(lambda: fails_what_is_open(study) and odp.recover(study) == [])
        check_exactly_t(study, diary.began(), crashes=True)
        assert release_of(study, RUN).params is not None


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
        poll(lambda: len(diary.began()) >= 5 or None)
        client.restart()

    with ThreadPoolExecutor(1) as beside:
        restarted = beside.submit(restart)
        odp.distributed.optimize(lambda: study, objective_of(diary), workers=WORKERS)
        restarted.result()
    check_exactly_t(study, diary.began(), crashes=True)
