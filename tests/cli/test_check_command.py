"""``optuna-dp check``: a report, an exit code for CI, and one clear line on bad input."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from optuna_dp.cli import app

SCRIPT = """
import numpy as np
import optuna_dp as odp

print("a line of the script")
event = odp.gaussian(8.0)

def honest(trial):
    print("a line of the objective")
    right = [trial.suggest_float("x", 0, 1) > 0.5] * 50
    return odp.scoring.private_accuracy(right, size=50, noise_multiplier=8.0)

def exact(trial):
    trial.suggest_float("x", 0, 1)
    return 0.5

def on_data(trial, records):
    return honest(trial)

records = np.arange(3.0)
"""


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(sys, "path", sys.path.copy())  # the command adds the script's folder
    path = tmp_path / "json.py"  # the name of another module
    path.write_text(SCRIPT)
    return path


def run(*arguments: str):
    return CliRunner().invoke(app, ["check", *arguments])


def test_an_honest_objective(script: Path) -> None:
    done = run(f"{script}:honest", "--event", "event")
    assert done.exit_code == 0, done.output
    assert "nothing found, which proves nothing" in done.stdout
    assert "a line of" not in done.stdout
    assert "a line of the objective" in done.stderr


def test_a_faulty_objective_ends_with_1(script: Path) -> None:
    done = run(f"{script}:exact", "--event", "event", "--json")
    assert done.exit_code == 1
    report = json.loads(done.stdout)
    assert {found["name"] for found in report["findings"]} == {"repeated score", "exact score"}
    assert run(f"{script}:exact", "--public-score", "--minimize").exit_code == 0


def test_records_are_handed_over(script: Path) -> None:
    done = run(f"{script}:on_data", "--event", "event", "--data", "records")
    assert done.exit_code == 0, done.output
    assert "6 runs" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["{script}"], "script.py:objective"),
        (["{script}:nobody"], "defines no such name"),
        (["{script}:event"], "a function of a trial"),
        (["{folder}/none.py:honest"], "no such Python file"),
        (["{script}:honest", "--event", "none"], "--event='none'"),
        (["{script}:honest", "--plan", "event"], "--plan="),
        (["{script}:honest", "--event", "honest"], "--event="),
        (["{folder}/broken.py:honest"], "ModuleNotFoundError: No module named 'nowhere'"),
        (["{folder}/exits.py:honest"], "SystemExit: 3"),
    ],
    ids=[
        "name",
        "nobody",
        "no function",
        "no file",
        "event",
        "plan",
        "no event",
        "import",
        "exit",
    ],
)
def test_bad_input_of_a_check_is_one_clear_line(script: Path, arguments, says: str) -> None:
    (script.parent / "broken.py").write_text("import nowhere\n")
    (script.parent / "exits.py").write_text("raise SystemExit(3)\n")
    done = run(*(text.format(script=script, folder=script.parent) for text in arguments))
    assert done.exit_code == 2
    lines = [line for line in done.stderr.splitlines() if not line.startswith("a line of")]
    assert len(lines) == 1
    assert lines[0].startswith("optuna-dp: ")
    assert says in lines[0]
