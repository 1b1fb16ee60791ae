"""Storages that fail while a study runs: a disk that fills up, a file that cannot be written."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import optuna
import pytest
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend
from refusals import refuses
from support import exactly, objective, study_of
from typer.testing import CliRunner

import optuna_dp as odp
from optuna_dp.cli.application import app
from optuna_dp.errors import StorageError
from optuna_dp.study.torn_journals import mend_journal, torn_lines

from .checks import release_of
from .workers import SAMPLERS

RUN = odp.gaussian(4.0)
# Counts its calls in a file of its own, so that no run can be made twice unseen.
WORKER = """
import resource, sys
import optuna, optuna_dp as odp
from optuna.storages import JournalStorage, RDBStorage
from optuna.storages.journal import JournalFileBackend

place, calls, limit, RUNS = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
storage = RDBStorage(place) if "://" in place else JournalStorage(JournalFileBackend(place))
optuna.logging.set_verbosity(optuna.logging.ERROR)
sampler = odp.RandTuneSampler(trials=odp.Binomial(RUNS, mean=RUNS), run=odp.gaussian(4.0))
study = optuna.create_study(
    study_name="s", storage=storage, sampler=sampler, load_if_exists=True, direction="maximize"
)
out = open(calls, "a", buffering=1)

def objective(trial):
    out.write(f"{trial.number}\\n")
    return trial.suggest_float("x", 0, 1)

if limit and "://" in place:  # A database of so many pages is full, whatever the file system has.
    import sqlalchemy
    storage.engine.dispose()
    sqlalchemy.event.listen(
        storage.engine, "connect", lambda c, _: c.execute(f"PRAGMA max_page_count = {limit}")
    )
    storage.scoped_session.remove()
elif limit:  # Python ignores the signal, so that a write ends with an error, half-way.
    out.close()
    out = open(calls, "a", buffering=1)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))
study.optimize(objective)
"""


def work(
    place: str, calls: Path, limit: int = 0, runs: int = 8
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-W", "ignore", "-c", WORKER, place, str(calls), str(limit), str(runs)],
        capture_output=True,
        text=True,
        timeout=600,
    )


def last_line(ended: subprocess.CompletedProcess[str]) -> str:
    return ended.stderr.strip().splitlines()[-1]


def torn(path: Path) -> Path:
    """A journal of a finished study with a torn line in it, and a torn last line."""
    study = optuna.create_study(
        study_name="s",
        storage=JournalStorage(JournalFileBackend(str(path))),
        sampler=odp.RandTuneSampler(trials=odp.Binomial(3, mean=3), run=RUN),
        direction="maximize",
    )
    study.optimize(lambda trial: trial.suggest_float("x", 0.0, 1.0))
    *lines, last = path.read_bytes().splitlines(keepends=True)
    glued = b'{"op_code":8,"worker' + last
    path.write_bytes(b"".join([*lines, b'{"op_code":8,"worker\n', glued, last[:20]]))
    return path


def test_torn_parts_are_dropped_and_whole_records_and_a_copy_are_kept(tmp_path: Path) -> None:
    path = torn(tmp_path / "tuning.log")
    before = path.read_bytes()
    *lines, _, glued, _ = before.splitlines(keepends=True)
    mended = mend_journal(path)
    assert mended.dropped == (len(lines) + 1, len(lines) + 3)
    assert mended.cut == (len(lines) + 2,)
    assert mended.copy is not None
    assert mended.copy.read_bytes() == before
    assert path.read_bytes() == b"".join([*lines, glued.removeprefix(b'{"op_code":8,"worker')])
    assert mend_journal(path).copy is None
    study = optuna.load_study(
        study_name="s", storage=JournalStorage(JournalFileBackend(str(path)))
    )
    assert odp.release(study, vouched="a test").params is not None


RECORD = (
    b'{"op_code":8,"worker_id":"a","system_attr":{"op_code":{"{":[1,"}"]},"b":"{\\"c\\":1}"}}\n'
)


@pytest.mark.promise("a disk is full")
def test_wherever_a_record_was_torn_the_one_behind_it_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "file"
    for end in range(1, len(RECORD)):
        path.write_bytes(RECORD + RECORD[:end] + RECORD)
        assert mend_journal(path).cut == (2,)
        assert path.read_bytes() == RECORD * 2


class Torn(JournalFileBackend):
    """A journal on which, before the n-th record from now, another worker's was torn."""

    left = 10**9

    def append_logs(self, logs: list[dict[str, Any]]) -> None:
        self.left -= 1
        if not self.left:
            with Path(self._file_path).open("ab") as file:
                file.write(RECORD[:30])
        super().append_logs(logs)


@pytest.mark.parametrize("name", ["rand_tune", "dp_hypo_any", "budget"])
@pytest.mark.parametrize("record", range(1, 12))
def test_a_record_behind_a_torn_one_costs_no_study(name: str, record: int, tmp_path: Path) -> None:
    """Its worker cannot read it, and goes on until its next record."""
    path = tmp_path / "tuning.log"
    backend = Torn(str(path))
    runs = []

    def run(trial: optuna.Trial) -> float:
        runs.append(trial.number)
        score: float = objective(trial)
        return score

    sampler = SAMPLERS[name]
    study = study_of(sampler(exactly(4)), storage=JournalStorage(backend), study_name="s")
    study.optimize(run, n_trials=1)
    backend.left = record
    with pytest.raises(StorageError):
        study.optimize(run)
    assert mend_journal(path).cut
    study = optuna.load_study(
        study_name="s",
        storage=JournalStorage(JournalFileBackend(str(path))),
        sampler=sampler(exactly(4)),
    )
    odp.recover(study, fail=[trial.number for trial in odp.recover(study)])
    study.optimize(run)
    assert release_of(study).params is not None
    assert len(runs) == len(set(runs))


def test_the_command_says_what_is_torn_and_what_it_drops(tmp_path: Path) -> None:
    path = torn(tmp_path / "tuning.log")
    count = len(path.read_bytes().splitlines())
    refused = CliRunner().invoke(app, ["recover", str(path), "s"])
    assert refused.exit_code == 2
    assert f"3 of its lines are torn, the first is line {count - 2}" in refused.stderr
    assert f"optuna-dp recover {path} s --mend" in refused.stderr
    assert "Traceback" not in refused.stderr
    mended = CliRunner().invoke(app, ["recover", str(path), "s", "--mend"])
    assert mended.exit_code == 0
    assert f"Dropped 2 torn of {count} lines: {count - 2}, {count}." in mended.stdout
    assert f"at the end of 1 torn of {count} lines: {count - 1}." in mended.stdout
    assert "No trial is open." in mended.stdout
    again = CliRunner().invoke(app, ["recover", str(path), "s", "--mend", "--json"])
    assert json.loads(again.stdout)["mended"]["copy"] is None


@pytest.mark.parametrize("content", [b"", b"no journal\n", b'{"a": 1}\n'])
def test_a_file_that_is_no_journal_is_left_alone(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(content)
    if content:
        with refuses("path"):
            mend_journal(path)
    else:
        assert mend_journal(path).lines == 0
    assert path.read_bytes() == content
    assert [p.name for p in tmp_path.iterdir()] == ["file"]


def test_a_database_has_no_torn_lines() -> None:
    ended = CliRunner().invoke(app, ["recover", "sqlite:///x.db", "s", "--mend"])
    assert ended.exit_code == 2
    assert "only the file of a journal" in ended.stderr


def test_a_torn_journal_is_one_error_of_this_package(tmp_path: Path) -> None:
    path = torn(tmp_path / "tuning.log")
    sound = tmp_path / "sound.log"
    sound.write_bytes(path.read_bytes())
    mend_journal(sound)
    study = optuna.load_study(
        study_name="s",
        storage=JournalStorage(JournalFileBackend(str(sound))),
        sampler=odp.RandTuneSampler(trials=odp.Binomial(3, mean=3), run=RUN),
    )
    with sound.open("ab") as file:
        file.write(b'{"op_code"\n{}\n')
    for use in (
        lambda: study.optimize(lambda trial: 0.0),
        study.ask,
        lambda: odp.recover(study),
        lambda: odp.release(study, vouched="a test"),
    ):
        with pytest.raises(StorageError, match="--mend"):
            use()


def test_an_error_of_the_objective_stays_what_it_is() -> None:
    study = optuna.create_study(
        sampler=odp.RandTuneSampler(trials=odp.Binomial(3, mean=3), run=RUN)
    )

    def objective(trial: optuna.Trial) -> float:
        raise OSError("the objective's own")

    with pytest.raises(OSError, match="own"):
        study.optimize(objective)


class Dying(optuna.storages.InMemoryStorage):
    """Fails to write from some call on, as a database that was restarted does."""

    left = 10**9

    def set_trial_system_attr(self, *args: Any) -> None:
        self.left -= 1
        if self.left < 0:
            from sqlalchemy.exc import OperationalError

            cause = OperationalError("UPDATE trials SET T=41", {"T": 41}, Exception("gone away"))
            raise optuna.exceptions.StorageInternalError("An exception is raised") from cause
        super().set_trial_system_attr(*args)


@pytest.mark.parametrize("left", range(6))
def test_a_storage_that_dies_at_any_write_is_one_error_without_its_statement(left: int) -> None:
    storage = Dying()
    sampler = odp.RandTuneSampler(trials=odp.Binomial(9, mean=9), run=RUN)
    study = optuna.create_study(storage=storage, sampler=sampler)
    study.optimize(lambda trial: trial.suggest_float("x", 0.0, 1.0), n_trials=1)
    storage.left = left
    with pytest.raises(StorageError) as caught:
        study.optimize(lambda trial: trial.suggest_float("x", 0.0, 1.0))
    assert "gone away" in caught.value.reason
    assert "41" not in str(caught.value)
    assert "optuna-dp recover" in str(caught.value)


@pytest.mark.slow
def test_a_finished_study_on_a_read_only_file_is_released_without_a_mark(tmp_path: Path) -> None:
    path = tmp_path / "tuning.db"
    study = optuna.create_study(
        study_name="s",
        storage=f"sqlite:///{path}",
        sampler=odp.RandTuneSampler(trials=odp.Binomial(3, mean=3), run=RUN),
    )
    study.optimize(lambda trial: trial.suggest_float("x", 0.0, 1.0))
    read_only = optuna.load_study(
        study_name="s",
        storage=optuna.storages.RDBStorage(
            f"sqlite:///file:{path}?mode=ro&uri=true", skip_table_creation=True
        ),
    )
    with pytest.warns(UserWarning, match="mark"):
        released = odp.release(read_only, vouched="a test")
    assert released.to_json() == odp.release(study, vouched="a test").to_json()
    # With the mark in the file there is nothing left to write.
    assert odp.release(read_only, vouched="a test").to_json() == released.to_json()


@pytest.mark.slow
@pytest.mark.parametrize("free_bytes", range(200, 5000, 600))
def test_a_full_disk_costs_no_study_on_a_journal(free_bytes: int, tmp_path: Path) -> None:
    path, calls = tmp_path / "tuning.log", tmp_path / "calls"
    optuna.create_study(
        study_name="s",
        storage=JournalStorage(JournalFileBackend(str(path))),
        direction="maximize",
    )
    limit = path.stat().st_size + free_bytes
    for _ in range(2):  # It is the second start on a full disk that tears a line in the middle.
        ended = work(str(path), calls, limit)
        assert ended.returncode != 0
        assert last_line(ended).startswith("optuna_dp.errors.StorageError: The storage")
    if torn_lines(path.read_bytes()):
        mend_journal(path)
    study = optuna.load_study(
        study_name="s", storage=JournalStorage(JournalFileBackend(str(path)))
    )
    opened = odp.recover(study)
    if any(trial.leads for trial in opened):
        return  # No run has begun.
    odp.recover(study, fail=[trial.number for trial in opened])
    ended = work(str(path), calls)
    if ended.returncode:
        assert "no run can begin: trial 0 ended without writing one" in last_line(ended)
        return  # Nothing is spent; the error says what to do.
    made = calls.read_text().split() if calls.exists() else []
    assert len(made) == len(set(made))
    again = optuna.load_study(
        study_name="s", storage=JournalStorage(JournalFileBackend(str(path)))
    )
    assert odp.release(again, failures=None, vouched="a test").params is not None


@pytest.mark.slow
@pytest.mark.parametrize("more_pages", [0, 6])
def test_a_full_disk_costs_no_study_on_sqlite(more_pages: int, tmp_path: Path) -> None:
    path, calls = tmp_path / "tuning.db", tmp_path / "calls"
    place, runs = f"sqlite:///{path}", 40  # Their records alone need more than ten pages.
    optuna.create_study(study_name="s", storage=place, direction="maximize")
    with sqlite3.connect(path) as connection:
        (pages,) = connection.execute("PRAGMA page_count").fetchone()
    for _ in range(2):
        ended = work(place, calls, pages + more_pages, runs)
        assert ended.returncode != 0
        assert last_line(ended).startswith("optuna_dp.errors.StorageError: The storage")
        assert "full" in last_line(ended)
    study = optuna.load_study(study_name="s", storage=place)
    opened = odp.recover(study)
    begins_anew = any(trial.leads for trial in opened)
    odp.recover(study, fail=[trial.number for trial in opened])
    ended = work(place, calls, runs=runs)
    made = calls.read_text().split() if calls.exists() else []
    assert len(made) == len(set(made))
    if begins_anew:
        assert not made
        assert "no run can begin" in last_line(ended)
        return
    assert ended.returncode == 0, ended.stderr
    again = optuna.load_study(study_name="s", storage=place)
    assert odp.release(again, failures="chance", vouched="a test").params is not None
