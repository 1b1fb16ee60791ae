"""The command line as a person meets it."""

from __future__ import annotations

import json
from pathlib import Path

import optuna
import pytest
from support import RUN, exactly, finished_study, study_of
from typer.testing import CliRunner

import optuna_dp as odp
from optuna_dp.cli import app

runner = CliRunner()


@pytest.fixture
def storage(tmp_path: Path) -> str:
    """A storage with a finished study, an unfinished one and a foreign one."""
    url = f"sqlite:///{tmp_path / 'tuning.db'}"
    study = study_of(odp.RandTuneSampler(trials=exactly(3)), storage=url, study_name="done")
    study.optimize(_objective, callbacks=[odp.PrivacyCallback(RUN)])
    study = study_of(odp.RandTuneSampler(trials=exactly(5)), storage=url, study_name="open")
    study.optimize(_objective, n_trials=2)
    optuna.create_study(storage=url, study_name="foreign").optimize(_objective, n_trials=1)
    return url


def _objective(trial: optuna.Trial) -> float:
    return trial.suggest_float("x", 0.0, 1.0)


def bad(*arguments: str) -> str:
    """The command refuses with exit code 2 and one line."""
    result = runner.invoke(app, list(arguments))
    assert result.exit_code == 2, result.output
    assert result.stderr.startswith("optuna-dp: ")
    assert len(result.stderr.strip().splitlines()) == 1
    return result.stderr


def test_release_prints_the_choice_and_the_statement(storage: str) -> None:
    result = runner.invoke(app, ["release", storage, "done"])
    assert result.exit_code == 0, result.output
    assert "x: 0." in result.stdout
    assert "# Privacy statement" in result.stdout


def test_release_as_json(storage: str) -> None:
    result = runner.invoke(app, ["release", storage, "done", "--json"])
    data = json.loads(result.stdout)
    assert set(data["params"]) == {"x"}
    assert data["statement"]["epsilon"] < 2.0


def test_statement_does_not_print_the_choice(storage: str) -> None:
    result = runner.invoke(app, ["statement", storage, "done"])
    assert "# Privacy statement" in result.stdout
    assert "x: 0." not in result.stdout
    as_json = runner.invoke(app, ["statement", storage, "done", "--json"])
    assert json.loads(as_json.stdout)["format"] == "optuna-dp privacy statement"


def test_release_publishes(storage: str, tmp_path: Path) -> None:
    public = f"sqlite:///{tmp_path / 'public.db'}"
    result = runner.invoke(
        app, ["release", storage, "done", "--publish-to", public, "--publish-as", "result"]
    )
    assert result.exit_code == 0, result.output
    assert len(optuna.load_study(study_name="result", storage=public).trials) == 1


def test_a_journal_file_is_a_storage(tmp_path: Path) -> None:
    from optuna.storages import JournalStorage
    from optuna.storages.journal import JournalFileBackend

    path = str(tmp_path / "tuning.log")
    study = study_of(
        odp.RandTuneSampler(trials=exactly(2)),
        storage=JournalStorage(JournalFileBackend(path)),
        study_name="done",
    )
    study.optimize(_objective, callbacks=[odp.PrivacyCallback(RUN)])
    assert runner.invoke(app, ["release", path, "done"]).exit_code == 0


def test_bad_input_is_one_clear_line(storage: str, tmp_path: Path) -> None:
    assert "3 of its runs have not ended" in bad("release", storage, "open")
    assert "no plan" in bad("release", storage, "foreign")
    assert "'done', 'foreign', 'open'" in bad("release", storage, "other")
    missing = tmp_path / "missing.db"
    assert "no such file" in bad("statement", f"sqlite:///{missing}", "done")
    assert not missing.exists()
    assert "cannot be read" in bad("release", "nonsense://x", "done")
    assert "--publish-to" in bad("release", storage, "done", "--publish-as", "x")
    assert "curator's study" in bad("release", storage, "done", "--publish-to", storage)


def test_a_run_that_was_not_recorded_is_asked_for(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'tuning.db'}"
    finished_study(storage=url, study_name="done")
    assert "What one run costs is not known" in bad("release", url, "done")


@pytest.mark.parametrize("method", ["dp-hypo", "rand-tune"])
def test_the_demo_runs_the_main_job(method: str) -> None:
    result = runner.invoke(app, ["demo", "--method", method, "--mean", "3", "--json"])
    assert result.exit_code == 0, result.output
    data = json.loads(result.stdout)
    assert set(data["params"]) == {"learning_rate", "clipping_norm", "epochs"}
    statement = data["statement"]
    assert statement["design"]["settings"]["trials"] == odp.Geometric(3).to_json()
    assert 2.0 < statement["epsilon"] < 5.0


def test_the_demo_explains_its_numbers() -> None:
    result = runner.invoke(app, ["demo", "--method", "rand-tune", "--mean", "2"])
    for words in ("one run", "this release", "guaranteed for the whole search", "Released"):
        assert words in result.stdout


@pytest.mark.parametrize("command", ["demo", "plan", "release", "statement"])
def test_every_command_has_help(command: str) -> None:
    result = runner.invoke(app, [command, "--help"])
    assert result.exit_code == 0
    assert "Usage" in result.stdout
