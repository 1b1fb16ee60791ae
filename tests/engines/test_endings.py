"""Calls that are interrupted, and calling processes that are killed.

On processes of this machine, on Dask and on Ray. The latter two need the extras dask and ray:
``pytest tests/engines/test_endings.py -m engines -n 0``.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import optuna
import pytest
from optuna.trial import TrialState
from patience import PATIENCE, within
from reliability.checks import check_exactly_t, release_of

import optuna_dp as odp
from optuna_dp.core.polling import poll

from .driver import RUNS, running
from .studies import Diary, journal_study

TESTS = Path(__file__).resolve().parents[1]
PACKAGES = {"dask": "distributed", "ray": "ray"}
RUN_SECONDS = 0.5


@pytest.fixture(
    params=[
        pytest.param("processes", marks=pytest.mark.slow),
        pytest.param("dask", marks=pytest.mark.engines),
        pytest.param("ray", marks=pytest.mark.engines),
    ]
)
def engine(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    if name in PACKAGES:
        pytest.importorskip(PACKAGES[name])
    return name


class Place:
    """The study in a folder, and the calls that are made for it."""

    def __init__(self, folder: Path, engine: str) -> None:
        self.folder, self.engine = folder, engine
        self.diary = Diary(folder / "diary")
        self.log = folder / "log"

    def begin(self, *options: str) -> subprocess.Popen[bytes]:
        """Starts a call, as the leader of a process group: Ctrl-C goes to all of it."""
        command = [sys.executable, "-m", "engines.driver", self.engine, str(self.folder)]
        with self.log.open("wb") as log:
            return subprocess.Popen(
                [*command, *options],
                cwd=TESTS,
                stdout=log,
                stderr=log,
                start_new_session=True,
                env={**os.environ, "ODP_CALL": str(self.folder)},
            )

    def begun(self, *options: str) -> subprocess.Popen[bytes]:
        """Starts a call and waits until some runs have begun."""
        call = self.begin(*options, "--seconds", str(RUN_SECONDS))
        until(lambda: len(self.diary.began()) >= 3, self.log)
        return call

    def check_another_call_ends_it(self, *options: str) -> None:
        """Marks what dead workers left, makes a call that ends the study, and releases it."""
        study = self.study()
        odp.recover(study, fail=[trial.number for trial in odp.recover(study)])
        assert self.begin(*options).wait(PATIENCE) == 0, self.log.read_text()
        assert odp.recover(study) == []
        check_exactly_t(study, self.diary.began(), crashes=True)
        assert release_of(study).params is not None

    def study(self) -> optuna.Study:
        return journal_study(self.folder)

    def is_over(self) -> bool:
        """Whether no process of any call is there any more, of the engine's neither."""
        mark = f"ODP_CALL={self.folder}".encode()
        return not any(mark in environment.split(b"\0") for environment in environments())


def until(condition: Callable[[], bool], log: Path) -> None:
    poll(lambda: condition() or None, within(said=log.read_text))


def environments() -> Iterator[bytes]:
    """The environments of all processes that have not ended."""
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # It has ended just now, or is somebody else's.
            yield (process / "environ").read_bytes()


def is_quiet(place: Place) -> bool:
    """Whether no run is open, and none begins in twice the time of a run."""
    if odp.recover(place.study()):
        return False
    before = place.diary.began()
    time.sleep(2 * RUN_SECONDS)
    return place.diary.began() == before


@pytest.mark.parametrize("whom", ["all", "caller"])
def test_ctrl_c_ends_the_workers_and_another_call_continues(
    engine: str, whom: str, tmp_path: Path
) -> None:
    place = Place(tmp_path, engine)
    call = place.begun()
    (os.killpg if whom == "all" else os.kill)(call.pid, signal.SIGINT)
    assert call.wait(PATIENCE) != 0
    assert b"KeyboardInterrupt" in place.log.read_bytes()
    until(place.is_over, place.log)
    assert len(place.diary.began()) < RUNS
    if engine != "dask":  # Its workers are killed with its cluster, in their runs.
        assert odp.recover(place.study()) == []
        assert TrialState.FAIL in [t.state for t in place.study().trials]
    place.check_another_call_ends_it()


def test_a_killed_caller_costs_the_runs_under_way(engine: str, tmp_path: Path) -> None:
    place = Place(tmp_path, engine)
    call = place.begun()
    call.kill()
    call.wait()
    # Processes end when they have had nothing to do for minutes, the engines' at once.
    until((lambda: is_quiet(place)) if engine == "processes" else place.is_over, place.log)
    assert len(place.diary.began()) < RUNS
    place.check_another_call_ends_it()


@pytest.mark.engines
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("way", [signal.SIGINT, signal.SIGKILL])
def test_a_dask_cluster_that_lives_on_ends_the_run_under_way_and_begins_no_other(
    way: signal.Signals, tmp_path: Path
) -> None:
    pytest.importorskip("distributed")
    with running("dask") as address:
        place = Place(tmp_path, "dask")
        call = place.begun("--address", address)
        call.send_signal(way)
        assert call.wait(PATIENCE) != 0
        until(lambda: is_quiet(place), place.log)
        study = place.study()
        assert len(place.diary.began()) < RUNS
        assert all(t.state == TrialState.COMPLETE for t in study.trials)
        place.check_another_call_ends_it("--address", address)
