"""A worker that waits for a killed run says so soon, with what to call, and not too often."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import optuna
import pytest
from optuna.distributions import FloatDistribution
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend
from reliability.clocks import FakeClock
from samplers.budget.budget_support import budget
from support import exactly, logged, objective, study_of
from typer.testing import CliRunner

import optuna_dp as odp
from optuna_dp.cli.application import app
from optuna_dp.core import polling
from optuna_dp.errors import UnfinishedStudyError
from optuna_dp.study.recovery_words import hidden_password
from optuna_dp.study.waiting import Waiting

NAME = "digits of 1998"


def storage_in(folder: Path, kind: str) -> Any:
    if kind == "sqlite":
        return f"sqlite:///{folder / 'k.db'}"
    return JournalStorage(JournalFileBackend(str(folder / "k.log")))


def killed_pilot(storage: Any) -> optuna.Study:
    """A study whose second pilot's worker was killed, as another process opens it."""
    first = study_of(odp.BudgetSampler(budget(2)), storage=storage, study_name=NAME)
    first.optimize(objective, n_trials=1)
    first.ask()
    return optuna.load_study(
        study_name=NAME, storage=storage, sampler=odp.BudgetSampler(budget(2))
    )


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["sqlite", "journal"])
def test_whom_a_worker_waits_for_is_said_after_a_second_with_the_command(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    study = killed_pilot(storage_in(tmp_path, kind))
    said: list[str] = []

    def run_the_command() -> None:
        said.extend(lines)
        words = next(line for line in said if line.startswith("WARNING"))
        command = words.split("failed: ")[1].split(" (it counts")[0]
        result = CliRunner().invoke(app, shlex.split(command)[1:])
        assert result.exit_code == 0, result.output

    monkeypatch.setattr(polling, "clock", FakeClock([(3.0, run_the_command)]))
    with logged() as lines:
        study.optimize(objective)
    (warning,) = [line for line in said if line.startswith("WARNING")]
    assert "trial 1" in warning
    assert NAME in warning
    assert odp.release(study).params is not None


@pytest.mark.slow
def test_a_long_wait_is_said_less_and_less_often(tmp_path: Path) -> None:
    waiting = Waiting(killed_pilot(storage_in(tmp_path, "sqlite")), "for a run")
    with logged() as lines:
        for seconds in range(0, 3600, 5):
            waiting.pause(float(seconds))
    assert 3 <= sum("has waited" in line for line in lines) <= 9


@pytest.mark.slow
def test_workers_of_one_sound_search_say_once_soon_for_whom_they_wait(tmp_path: Path) -> None:
    study = killed_pilot(storage_in(tmp_path, "sqlite"))
    with logged() as lines:
        for _ in range(20):
            Waiting(study, "for a run").pause(20.0)
    assert sum("has waited" in line for line in lines) == 1


@pytest.mark.promise("nothing-else")
@pytest.mark.slow
def test_no_number_of_a_run_is_said_where_their_number_is_secret(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage = storage_in(tmp_path, "sqlite")

    def sampler() -> Any:
        return odp.DPHyPOSampler(
            {"x": FloatDistribution(-1.0, 1.0)}, trials=exactly(3), startup_runs=1
        )

    first = study_of(sampler(), storage=storage, study_name="secret")
    first.ask()
    study = optuna.load_study(study_name="secret", storage=storage, sampler=sampler())
    happenings = [(3.0, lambda: odp.recover(study, fail=[0]))]
    monkeypatch.setattr(polling, "clock", FakeClock(happenings))
    with logged() as lines:
        study.optimize(objective)
    (warning,) = [line for line in lines if "has waited" in line]
    assert "--fail NUMBER" in warning
    assert "open: trial" not in warning


def test_a_storage_is_shown_without_its_password() -> None:
    assert "secret" not in hidden_password("postgresql://me:secret@host/db")


def test_a_release_with_an_open_last_run_names_it_and_the_command(tmp_path: Path) -> None:
    storage = storage_in(tmp_path, "sqlite")
    study = study_of(odp.BudgetSampler(budget(1)), storage=storage, study_name=NAME)
    study.optimize(objective, n_trials=1)
    study.ask()
    with pytest.raises(UnfinishedStudyError) as caught:
        odp.release(study)
    assert "trial 1" in caught.value.reason
    for part in ("optuna-dp recover", "k.db", NAME, "--fail"):
        assert part in caught.value.fix
