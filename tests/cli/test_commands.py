"""The command line as a person meets it."""

from __future__ import annotations

import json
from pathlib import Path

import optuna
import pytest
from support import RUN, exactly, finished_study, study_of
from typer.testing import CliRunner

import optuna_dp as odp
from optuna_dp.cli.application import app

VOUCHED = ("--vouched", "a test")
runner = CliRunner()


@pytest.fixture
def storage(tmp_path: Path) -> str:
    """A storage with a finished study, an unfinished one and a foreign one."""
    url = f"sqlite:///{tmp_path / 'tuning.db'}"
    study = study_of(
        odp.RandTuneSampler(trials=exactly(3), run=RUN), storage=url, study_name="done"
    )
    study.optimize(_objective, callbacks=[odp.PrivacyCallback()])
    study = study_of(
        odp.RandTuneSampler(trials=exactly(5), run=RUN), storage=url, study_name="open"
    )
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


@pytest.mark.slow
def test_release_prints_the_choice_and_the_statement(storage: str) -> None:
    result = runner.invoke(app, ["release", storage, "done", *VOUCHED])
    assert result.exit_code == 0, result.output
    assert "x: 0." in result.stdout
    assert "# Privacy statement" in result.stdout


@pytest.mark.slow
def test_release_as_json(storage: str) -> None:
    result = runner.invoke(app, ["release", storage, "done", *VOUCHED, "--json"])
    data = json.loads(result.stdout)
    assert set(data["params"]) == {"x"}
    assert data["statement"]["epsilon"] < 2.0


@pytest.mark.slow
def test_release_publishes(storage: str, tmp_path: Path) -> None:
    public = f"sqlite:///{tmp_path / 'public.db'}"
    result = runner.invoke(
        app,
        ["release", storage, "done", "--publish-to", public, "--publish-as", "result", *VOUCHED],
    )
    assert result.exit_code == 0, result.output
    assert len(optuna.load_study(study_name="result", storage=public).trials) == 1


@pytest.mark.slow
def test_a_release_published_without_a_name_does_not_take_the_curators(
    storage: str, tmp_path: Path
) -> None:
    public = f"sqlite:///{tmp_path / 'public.db'}"
    result = runner.invoke(app, ["release", storage, "done", *VOUCHED, "--publish-to", public])
    assert result.exit_code == 0, result.output
    assert optuna.get_all_study_names(public) == ["release"]


@pytest.mark.slow
def test_a_journal_file_is_a_storage(tmp_path: Path) -> None:
    from optuna.storages import JournalStorage
    from optuna.storages.journal import JournalFileBackend

    path = str(tmp_path / "tuning.log")
    study = study_of(
        odp.RandTuneSampler(trials=exactly(2), run=RUN),
        storage=JournalStorage(JournalFileBackend(path)),
        study_name="done",
    )
    study.optimize(_objective, callbacks=[odp.PrivacyCallback()])
    assert runner.invoke(app, ["release", path, "done", *VOUCHED]).exit_code == 0


@pytest.mark.slow
def test_bad_input_is_one_clear_line(storage: str, tmp_path: Path) -> None:
    assert "not ended" in bad("release", storage, "open")
    assert "no plan" in bad("release", storage, "foreign")
    assert "'done', 'foreign', 'open'" in bad("release", storage, "other")
    missing = tmp_path / "missing.db"
    assert missing.name in bad("release", f"sqlite:///{missing}", "done")
    assert not missing.exists()
    assert "nonsense" in bad("release", "nonsense://x", "done")
    assert "--publish-to" in bad("release", storage, "done", "--publish-as", "x")
    assert "publish" in bad("release", storage, "done", "--publish-to", storage, *VOUCHED)


@pytest.mark.slow
def test_options_of_a_storage_url_are_passed_on(storage: str) -> None:
    for url in (f"{storage}?timeout=30", storage.replace("sqlite:", "sqlite+pysqlite:")):
        result = runner.invoke(app, ["release", url, "done", *VOUCHED])
        assert result.exit_code == 0, result.stderr


@pytest.mark.parametrize(
    "url",
    [
        "sqlite:///{}",
        "sqlite:///{}?timeout=30",
        "sqlite+pysqlite:///{}",
        "sqlite:///file:{}?mode=rwc&uri=true",
        "{}",
    ],
)
@pytest.mark.parametrize("command", ["release", "recover"])
def test_no_command_creates_a_storage(tmp_path: Path, url: str, command: str) -> None:
    missing = tmp_path / "missing"
    assert missing.name in bad(command, url.format(missing), "done")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("content", "url", "word"),
    [
        (b"not a journal\n", "{}", "none"),
        (b"not a journal\nat all\n", "{}", "be read"),
        (b'{"op_code": 0, "worker_id": "w", "study_name": "s"}\n[1]\n', "{}", "line 2"),
        (b'{"op_code": 77, "worker_id": "w"}\n', "{}", "be read"),
        (b'{"op_code": 0, "worker_id": "w"}\n', "{}", "be read"),
        (b"\x00\xff\x80\n", "{}", "none"),
        (b"", "{}", "none"),
        (b"not a database", "sqlite:///{}", "SQLite"),
        (b"", "sqlite:///{}", "SQLite"),
        (b"SQLite format 3\0 and then junk", "sqlite:///{}", "be read"),
        (b"SQLite format 3\0", "{}", "SQLite"),
    ],
)
def test_a_file_that_is_something_else_is_said_to_be(
    tmp_path: Path, content: bytes, url: str, word: str
) -> None:
    path = tmp_path / "file"
    path.write_bytes(content)
    assert word in bad("release", url.format(path), "done")
    assert path.read_bytes() == content


def test_a_database_of_another_program_is_left_alone(tmp_path: Path) -> None:
    import sqlite3

    path = tmp_path / "other.db"
    with sqlite3.connect(path) as database:
        database.execute("create table mine (x)")
    database.close()
    before = path.read_bytes()
    assert "be read" in bad("release", f"sqlite:///{path}", "done")
    assert path.read_bytes() == before


def test_a_password_is_not_printed() -> None:
    assert "secret" not in bad("release", "nonsense://me:secret@host/db", "done")


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (("relase",), "'release'"),
        (("release",), "STORAGE"),
        (("release", "x.db"), "STUDY"),
        (("plan", "--stpes", "3"), "--steps"),
        (("plan", "--mean", "many"), "--mean"),
        (("plan", "--relation", "twins"), "replace-one"),
        (("recover", "x.db", "s", "--fail", "last"), "--fail"),
        (("demo", "--epsilon", "-1"), "--epsilon=-1"),
    ],
)
def test_what_the_parser_refuses_is_one_clear_line_too(
    arguments: tuple[str, ...], word: str
) -> None:
    assert word in bad(*arguments)


def test_version_and_no_command() -> None:
    assert runner.invoke(app, ["--version"]).stdout == f"optuna-dp {odp.__version__}\n"
    result = runner.invoke(app, [])
    assert result.exit_code == 0
    for words in ("Plan:", "Run:", "Release:", "Check:", "recover"):
        assert words in result.stdout


@pytest.mark.slow
def test_a_trial_that_is_not_open_is_named_by_its_flag(storage: str) -> None:
    assert "--fail" in bad("recover", storage, "open", "--fail", "77")


@pytest.mark.slow
def test_what_a_run_costs_is_asked_for_if_nobody_said_it(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'tuning.db'}"
    finished_study(odp.RandTuneSampler(trials=exactly(3)), storage=url, study_name="done")
    assert "run=" in bad("release", url, "done")


def test_the_demo_runs_the_main_job() -> None:
    result = runner.invoke(app, ["demo", "--epsilon", "2", "--json"])
    assert result.exit_code == 0, result.output
    data = json.loads(result.stdout)
    assert data["params"] == {}
    assert data["attributes"]["pilots"] == []
    assert data["value"] > 0.8
    assert 1.98 <= data["statement"]["epsilon"] <= 2.0


@pytest.mark.slow
def test_the_demo_shows_plan_check_other_ways_and_statement(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("optuna_dp.cli.demo.REPETITIONS", 2)
    result = runner.invoke(app, ["demo"], env={"COLUMNS": "80"})
    assert result.exit_code == 0, result.output
    shown = " ".join(result.stdout.split())
    for words in (
        "batches of 361 and 150 steps by accounting",
        "a learning rate that is rehearsed on made-up pixels",
        "Nothing found in 2 runs",
        "a model with noisy accuracy 0.",
        "usual rate, 0.1",
        "and batch: this plan",
        "4 + 1",
        "RandTune, mean 10",
        "Mean of 2 repetitions",
        "Privacy statement",
    ):
        assert words in shown
    assert "release() will ask" not in caplog.text  # Nobody releases what is compared.


COMMANDS = sorted(getattr(each.callback, "__name__", "?") for each in app.registered_commands)


def test_what_is_missing_is_called_missing() -> None:
    result = runner.invoke(app, ["plan", "--noise-multiplier", "1"])
    assert result.exit_code == 2
    assert "--sample-rate is missing" in result.output
    assert "None" not in result.output


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help_that_fits(command: str) -> None:
    result = runner.invoke(app, [command, "--help"], env={"COLUMNS": "80"})
    assert result.exit_code == 0
    assert f"Example: optuna-dp {command}" in result.stdout
    assert "Usage" in result.stdout
    assert max(len(line) for line in result.stdout.splitlines()) <= 80
    whole = runner.invoke(app, ["--help"], env={"COLUMNS": "80"}).stdout
    for text in (whole, result.stdout):
        assert "…" not in text
        assert "..." not in text.replace("]...", "]")
    for cryptic in ("<bool>", "<list", "<float>"):
        assert cryptic not in result.stdout
