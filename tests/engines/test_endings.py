"""What ends while a study runs: a worker, the caller, the storage, a run that hangs; Ctrl-C.

Each on processes of this machine, on Dask and on Ray, in processes of their own. The latter two
need the extras dask and ray: ``pytest tests/engines/test_endings.py -m engines -n 0``.
``ENGINE_STUDIES`` says how many studies of each kind are made.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import optuna
import pytest
from optuna.trial import TrialState
from patience import PATIENCE
from reliability.checks import check_exactly_t, release_of
from reliability.storages import opened
from support import RUN

import optuna_dp as odp

from .servers import TESTS, proxy_server, until
from .studies import Diary

STUDIES = int(os.environ.get("ENGINE_STUDIES", "1"))

PACKAGES = {"dask": "distributed", "ray": "ray"}
ENGINES = [
    pytest.param("loky", marks=pytest.mark.slow),
    pytest.param("dask", marks=pytest.mark.engines),
    pytest.param("ray", marks=pytest.mark.engines),
]


@pytest.fixture(params=ENGINES)
def engine(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    if name in PACKAGES:
        pytest.importorskip(PACKAGES[name])
    return name


class Place:
    """A study's storage and diary, and the calls that are made for it."""

    def __init__(self, folder: Path, engine: str, storage: str) -> None:
        self.engine, self.storage = engine, storage
        self.diary = Diary(folder / "diary")
        self.told = folder / "told"

    def begin(self, *options: str) -> subprocess.Popen[bytes]:
        """Starts a call, as the leader of a process group: Ctrl-C goes to all of it."""
        command = [sys.executable, "-m", "engines.driver", self.engine, self.storage]
        with self.told.open("wb") as told:
            return subprocess.Popen(
                [*command, str(self.diary.path), *options],
                cwd=TESTS,
                stdout=told,
                stderr=told,
                start_new_session=True,
                env={**os.environ, "ODP_CALL": str(self.diary.path)},
            )

    def call(self, *options: str) -> int:
        """Makes a call to its end."""
        return self.begin(*options).wait(PATIENCE)

    def ends(self) -> None:
        """Makes a call that must end the study, and checks and releases the study."""
        assert self.call() == 0, self.told.read_text()
        with self.study() as study:
            assert odp.recover(study) == []
            check_exactly_t(study, self.diary.began(), crashes=True)
            assert release_of(study, RUN).params is not None

    @contextmanager
    def study(self) -> Iterator[optuna.Study]:
        with opened(self.storage) as storage:
            yield optuna.load_study(study_name="tuning", storage=storage)

    def recover(self) -> list[int]:
        """Tells all open runs to have failed, as somebody who knows that all workers are dead."""
        with self.study() as study:
            found = [trial.number for trial in odp.recover(study)]
            odp.recover(study, fail=found)
        return found

    def is_over(self) -> bool:
        """Whether no process of any call is there any more, of the engine's neither."""
        mark = f"ODP_CALL={self.diary.path}".encode()
        return not any(mark in environment.split(b"\0") for environment in environments())

    def failed(self) -> list[int]:
        with self.study() as study:
            return [t.number for t in study.trials if t.state == TrialState.FAIL]


def environments() -> Iterator[bytes]:
    """The environments of all processes that have not ended."""
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # It has ended just now, or is somebody else's.
            yield (process / "environ").read_bytes()


def has_begun(place: Place, run: int) -> bool:
    return run in place.diary.began()


@pytest.mark.parametrize("what", ["worker", "driver", "storage"])
def test_whatever_is_killed_costs_runs_at_most_and_the_study_is_released(
    engine: str, what: str, tmp_path: Path
) -> None:
    if engine != "loky" and what != "driver":
        pytest.skip("ten of them are made on one cluster, in test_on_engines.py")
    for number in range(STUDIES):
        folder = tmp_path / str(number)
        folder.mkdir()
        run = (3 + number) % 8
        if what == "storage":
            with proxy_server(folder) as (url, start):
                place = Place(folder, engine, url)
                assert place.call("--kills", str(run), str(start())) == 1
                told = place.told.read_text()
                assert "WorkersError: The storage of the study failed: " in told
                assert "odp.recover(study) lists them" in told
                start()
                assert run in place.recover()
                place.ends()
            continue
        place = Place(folder, engine, f"journal:{folder}/journal")
        if what == "worker":
            assert place.call("--kills", str(run), what) == 0, place.told.read_text()
            assert place.failed() == [run]
        else:
            assert place.call("--kills", str(run), what) == -signal.SIGKILL
            # No worker outlives its caller, hanging or not, though the journal is there for all.
            until(place.is_over)
            assert run in place.recover()
        place.ends()


def test_a_run_that_hangs_is_ended_at_its_limit_and_charged(engine: str, tmp_path: Path) -> None:
    place = Place(tmp_path, engine, f"journal:{tmp_path}/journal")
    assert place.call("--hangs", "2", "--run-timeout", "2") == 0, place.told.read_text()
    told = place.told.read_text()
    assert "1 run(s) reached run_timeout=2 seconds" in told
    assert place.failed() == [2]
    until(place.is_over)
    place.ends()


@pytest.mark.slow
def test_a_run_that_keeps_pythons_lock_is_ended_too(tmp_path: Path) -> None:
    place = Place(tmp_path, "loky", f"journal:{tmp_path}/journal")
    told = ("--hangs", "2", "--keeps-the-lock", "--run-timeout", "1")
    assert place.call(*told) == 0, place.told.read_text()
    assert "A worker was lost" in place.told.read_text()
    assert place.failed() == [2]
    place.ends()


@pytest.mark.parametrize("whom", ["all", "caller"])
def test_ctrl_c_settles_every_run(engine: str, whom: str, tmp_path: Path) -> None:
    place = Place(tmp_path, engine, f"journal:{tmp_path}/journal")
    call = place.begin("--hangs", "3")
    until(lambda: has_begun(place, 3))
    (os.killpg if whom == "all" else os.kill)(call.pid, signal.SIGINT)
    assert call.wait(PATIENCE) != 0
    with place.study() as study:
        assert odp.recover(study) == [], place.told.read_text()
    assert 3 in place.failed()
    until(place.is_over)
    place.ends()


@pytest.mark.slow
def test_ctrl_c_leaves_what_threads_did_not_finish_to_recover(tmp_path: Path) -> None:
    place = Place(tmp_path, "threading", f"journal:{tmp_path}/journal")
    call = place.begin("--hangs", "3")
    until(lambda: has_begun(place, 3))
    os.killpg(call.pid, signal.SIGINT)
    Path(f"{place.diary.path}.continue").touch()
    assert call.wait(PATIENCE) != 0
    with place.study() as study:
        left = [trial.number for trial in odp.recover(study)]
        assert set(left) <= {3}
        odp.recover(study, fail=left)
        assert odp.recover(study) == []
        ended = TrialState.FAIL if left else TrialState.COMPLETE
        assert study.trials[3].state == ended
    place.ends()
