"""``optuna-dp check``: a report, an exit code for CI, and one clear line on bad input."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from optuna_dp.cli.application import app

SCRIPT = """
import os
import sys
import time

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

def exits(trial):
    sys.exit(0)
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
    first, second = done.stdout.splitlines()
    assert first == "Nothing found in 2 runs of the objective and in its source."
    assert second.startswith("Not seen:")
    assert "a line of" not in done.stdout
    assert "a line of the objective" in done.stderr


def test_a_faulty_objective_ends_with_1(script: Path) -> None:
    done = run(f"{script}:exact", "--event", "event", "--json")
    assert done.exit_code == 1
    report = json.loads(done.stdout)
    assert [found["name"] for found in report["findings"]] == ["exact score"]
    assert run(f"{script}:exact", "--public-score").exit_code == 0


def test_a_script_finds_its_own_arguments(script: Path) -> None:
    reading = "\nsize = {'8': 8.0}[sys.argv[1]] if sys.argv[0] == __file__ else None\n"
    script.write_text(SCRIPT + reading)
    argv = sys.argv
    done = run(f"{script}:honest", "--event", "event", "--", "8")
    assert done.exit_code == 0, done.output
    assert run(f"{script}:honest", "--event", "event", "--", "9").exit_code == 2
    assert sys.argv is argv


@pytest.mark.parametrize(
    "wrong",
    [
        ("honest", "--event", "no_such_event"),
        ("no_such_objective", "--event", "event"),
        ("honest", "--event", "event", "--plan", "event"),
        ("honest", "--no-such-option"),
    ],
)
def test_its_own_arguments_are_read_before_the_script(script: Path, wrong: tuple[str]) -> None:
    script.write_text("raise SystemExit('imported')\n" + SCRIPT)
    done = run(f"{script}:{wrong[0]}", *wrong[1:])
    assert done.exit_code == 2
    assert "imported" not in done.output


def test_it_says_which_run_begins(script: Path) -> None:
    done = run(f"{script}:honest", "--event", "event")
    lines = [line for line in done.stderr.splitlines() if " s: run " in line]
    assert len(lines) == 2
    assert lines[0].endswith("run 1: a first look")


def test_an_objective_that_ends_the_program_is_a_fault(script: Path) -> None:
    done = run(f"{script}:exits", "--event", "event", "--json")
    assert done.exit_code == 1, done.output
    assert [found["name"] for found in json.loads(done.stdout)["findings"]] == ["failure"]


@pytest.mark.parametrize("start", ["study.optimize(honest, n_trials=3)", "study.ask()"])
def test_a_script_without_a_main_guard_starts_nothing(script: Path, start: str) -> None:
    lines = SCRIPT + f"\nimport optuna\nstudy = optuna.create_study()\n{start}\nopen('ran')\n"
    script.write_text(lines)
    done = run(f"{script}:honest", "--event", "event", "--json")
    assert done.exit_code == 0, done.output
    assert [found["name"] for found in json.loads(done.stdout)["findings"]] == ["no main guard"]


@pytest.mark.slow
def test_an_objective_that_never_starts_its_run(script: Path) -> None:
    script.write_text(
        SCRIPT
        + "plan = odp.plan_budget("
        + "epsilon=3.0, records=50, batch_size=5, epochs=1, pilots=2, score='training')\n"
        + "def asks(trial):\n"
        + "    right = [trial.suggest_float('x', 0, 1) > 0.5] * 50\n"
        + "    noise = odp.start_run(trial).score_noise_multiplier\n"
        + "    return odp.scoring.private_accuracy(right, size=50, noise_multiplier=noise)\n"
    )
    done = run(f"{script}:honest", "--plan", "plan")
    assert done.exit_code == 1, done.output
    assert "run not started" in done.stdout
    assert "nothing found" not in done.stdout
    assert run(f"{script}:asks", "--plan", "plan").exit_code == 0


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["{script}"], "script.py:objective"),
        (["{script}:nobody"], "does not define this name"),
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
    (script.parent / "broken.py").write_text("import nowhere\n\n\ndef honest(trial): ...\n")
    (script.parent / "exits.py").write_text("raise SystemExit(3)\n\n\ndef honest(trial): ...\n")
    done = run(*(text.format(script=script, folder=script.parent) for text in arguments))
    assert done.exit_code == 2
    lines = [line for line in done.stderr.splitlines() if not line.startswith("a line of")]
    lines = [line for line in lines if " s: run " not in line]
    assert len(lines) == 1
    assert lines[0].startswith("optuna-dp: ")
    assert says in lines[0]


def test_hints_fail_a_strict_check_only(script: Path) -> None:
    script.write_text(SCRIPT.replace("event =", "np.random.seed(0)\nevent ="))
    assert run(f"{script}:honest", "--event", "event").exit_code == 0
    assert run(f"{script}:honest", "--event", "event", "--strict").exit_code == 1


def test_faults_come_before_the_hints_of_the_file_and_the_count_comes_last(script: Path) -> None:
    script.write_text(SCRIPT.replace("event =", "np.random.seed(0)\nevent ="))
    lines = run(f"{script}:exact", "--event", "event").stdout.splitlines()
    assert [line.partition(":")[0] for line in lines[::2]] == [
        "FAULT exact score",
        "hint  literal seed",
        "1 fault and 1 hint in 2 runs of the objective and in its source.",
    ]
    assert all(line.startswith("      Instead: ") for line in lines[1::2])


@pytest.mark.parametrize(("given", "shown"), [(None, "4"), ("7", "7")])
def test_few_threads_compute_unless_the_user_says_how_many(
    script: Path, monkeypatch: pytest.MonkeyPatch, given: str | None, shown: str
) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", given or "")
    if given is None:
        monkeypatch.delenv("OMP_NUM_THREADS")
    monkeypatch.setattr("os.cpu_count", lambda: 64)
    script.write_text(SCRIPT + "print('threads:', os.environ['OMP_NUM_THREADS'])\n")
    done = run(f"{script}:honest", "--event", "event")
    assert f"threads: {shown}" in done.stderr
    assert os.environ.get("OMP_NUM_THREADS") == given
