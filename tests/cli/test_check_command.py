"""``optuna-dp check``: a report, an exit code for CI, and one clear line on bad input."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from optuna_dp.cli import app

SCRIPT = """
import os
import signal
import sys
import threading
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

def on_data(trial, records):
    return honest(trial)

records = np.arange(3.0)

def exits(trial):
    sys.exit(0)

def hangs(trial):
    while True:
        try:
            time.sleep(1)
        except Exception:
            pass

number = 0

def is_interrupted(trial):
    global number
    number += 1
    try:
        if number == 4:
            os.kill(os.getpid(), signal.SIGTERM)
        return exact(trial)
    except BaseException:  # as libraries catch Ctrl-C
        return 0.5

def leaves_a_thread(trial):
    stop = threading.Event()
    threading.Thread(target=lambda: stop.wait(60), daemon=True).start()
    return honest(trial)
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
    assert "9 runs" in done.stdout


def test_a_quick_check_runs_twice_and_says_what_it_leaves_out(script: Path) -> None:
    report = json.loads(run(f"{script}:exact", "--event", "event", "--quick", "--json").stdout)
    assert report["runs"] == 2
    assert "repeated score" in {finding["name"] for finding in report["findings"]}
    assert any("more runs than two" in sentence for sentence in report["not_checked"])


def test_a_quick_check_refuses_the_records_that_it_would_not_look_at(script: Path) -> None:
    result = run(f"{script}:on_data", "--event", "event", "--data", "records", "--quick")
    assert result.exit_code == 2
    assert "a quick check does not look at the records" in result.stderr


def test_it_says_which_run_begins(script: Path) -> None:
    done = run(f"{script}:honest", "--event", "event")
    lines = [line for line in done.stderr.splitlines() if " s: run " in line]
    assert len(lines) == 5
    assert lines[0].endswith("run 1: the first run")


@pytest.mark.parametrize(
    ("objective", "name"),
    [("exits", "exit"), ("hangs", "time limit"), ("leaves_a_thread", "threads left")],
)
def test_an_objective_that_does_not_end_as_it_should(
    script: Path, objective: str, name: str
) -> None:
    done = run(f"{script}:{objective}", "--event", "event", "--time-limit", "1", "--json")
    assert done.exit_code == 1, done.output
    assert name in {found["name"] for found in json.loads(done.stdout)["findings"]}


@pytest.mark.parametrize("start", ["study.optimize(honest, n_trials=3)", "study.ask()"])
def test_a_script_without_a_main_guard_starts_nothing(script: Path, start: str) -> None:
    lines = SCRIPT + f"\nimport optuna\nstudy = optuna.create_study()\n{start}\nopen('ran')\n"
    script.write_text(lines)
    done = run(f"{script}:honest", "--event", "event", "--json")
    assert done.exit_code == 1, done.output
    assert [found["name"] for found in json.loads(done.stdout)["findings"]] == ["no main guard"]


@pytest.mark.slow
def test_an_objective_that_never_asks_for_its_fidelity(script: Path) -> None:
    script.write_text(
        SCRIPT
        + "plan = odp.plan_budget("
        + "epsilon=3.0, records=50, batch_size=5, epochs=1, pilots=2, score='training')\n"
        + "def asks(trial):\n"
        + "    right = [trial.suggest_float('x', 0, 1) > 0.5] * 50\n"
        + "    noise = odp.fidelity(trial).score_noise_multiplier\n"
        + "    return odp.scoring.private_accuracy(right, size=50, noise_multiplier=noise)\n"
    )
    done = run(f"{script}:honest", "--plan", "plan")
    assert done.exit_code == 1, done.output
    assert "fidelity not asked" in done.stdout
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
    (script.parent / "broken.py").write_text("import nowhere\n")
    (script.parent / "exits.py").write_text("raise SystemExit(3)\n")
    done = run(*(text.format(script=script, folder=script.parent) for text in arguments))
    assert done.exit_code == 2
    lines = [line for line in done.stderr.splitlines() if not line.startswith("a line of")]
    lines = [line for line in lines if " s: run " not in line]
    assert len(lines) == 1
    assert lines[0].startswith("optuna-dp: ")
    assert says in lines[0]


@pytest.mark.parametrize(
    ("line", "seeds"),
    [
        ("np.random.seed(0)", True),
        ("import random; random.seed(3)", True),
        ("np.random.seed()", False),
        ("np.random.random()", False),
    ],
)
def test_a_seed_at_the_top_of_the_script_is_pointed_out(
    script: Path, line: str, seeds: bool
) -> None:
    script.write_text(SCRIPT.replace("event =", f"{line}\nevent ="))
    done = run(f"{script}:honest", "--event", "event")
    assert done.exit_code == 0, done.output
    assert ("seed at the top" in done.stdout) == seeds
    assert ("no faults to mend and 2 hints to look at" in done.stdout) == seeds


def test_hints_fail_a_strict_check_only(script: Path) -> None:
    script.write_text(SCRIPT.replace("event =", "np.random.seed(0)\nevent ="))
    assert run(f"{script}:honest", "--event", "event").exit_code == 0
    assert run(f"{script}:honest", "--event", "event", "--strict").exit_code == 1


def test_a_check_without_an_event_is_called_incomplete_first(script: Path) -> None:
    first_line = run(f"{script}:honest").stdout.splitlines()[0]
    assert first_line.startswith("incomplete: no event and no plan was given")
    assert "its noise, steps, batches, clipping" in first_line
    assert "incomplete" not in run(f"{script}:honest", "--event", "event").stdout


def test_faults_come_before_the_hints_of_the_file(script: Path) -> None:
    script.write_text(SCRIPT.replace("event =", "np.random.seed(0)\nevent ="))
    lines = run(f"{script}:exact", "--event", "event").stdout.splitlines()
    assert lines[0] == "2 faults to mend and 2 hints to look at; 5 runs of the objective."
    assert [line[:5] for line in lines[1:5]] == ["FAULT", "FAULT", "hint ", "hint "]


def test_an_interrupted_check_prints_what_it_has_found(script: Path) -> None:
    done = run(f"{script}:is_interrupted", "--event", "event")
    assert done.exit_code == 1, done.output
    lines = done.stdout.splitlines()
    assert lines[0].startswith("incomplete: interrupted (SIGTERM) in run 4. 2 faults to mend")
    assert "FAULT repeated score" in done.stdout


def test_an_interrupted_check_that_found_nothing_is_no_success(script: Path) -> None:
    script.write_text(SCRIPT.replace("return exact(trial)", "return honest(trial)"))
    done = run(f"{script}:is_interrupted", "--event", "event")
    assert done.exit_code == 2, done.output
    assert "nothing found, which proves nothing; 4 runs" in done.stdout


def test_a_fault_stays_where_the_file_has_a_hint_of_its_name(script: Path) -> None:
    script.write_text(
        SCRIPT
        + "rows = records.repeat(20)\n"
        + "plan = odp.plan_budget(\n"
        + "    epsilon=3.0, records=60, batch_size=5, epochs=1, pilots=0, score='training',\n"
        + "    neighboring_relation='add_or_remove_one')\n"
        + "def by_length(trial, rows):\n"
        + "    right = [trial.suggest_float('x', 0, 1) > 0.5] * len(rows)\n"
        + "    noise = odp.fidelity(trial).score_noise_multiplier\n"
        + "    size = {'size': len(rows), 'noise_multiplier': noise}\n"
        + "    return odp.scoring.private_accuracy(right, **size)\n"
        + "def hinted():\n"
        + "    odp.scoring.private_accuracy([], size=len(rows), noise_multiplier=1.0)\n"
    )
    report = json.loads(
        run(f"{script}:by_length", "--plan", "plan", "--data", "rows", "--json").stdout
    )
    sizes = [f["certain"] for f in report["findings"] if f["name"] == "size of the score"]
    assert True in sizes


def test_data_that_an_objective_does_not_take_is_answered_with_two_lines(script: Path) -> None:
    done = run(f"{script}:honest", "--event", "event", "--data", "records")
    assert done.exit_code == 1, done.output
    assert "`def honest(trial, data=DATA):`" in done.stdout
    assert "`x, y = data`" in done.stdout


@pytest.mark.parametrize(("given", "shown"), [(None, "4"), ("7", "7")])
def test_few_threads_compute_unless_the_user_says_how_many(
    script: Path, monkeypatch: pytest.MonkeyPatch, given: str | None, shown: str
) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", given or "")
    if given is None:
        monkeypatch.delenv("OMP_NUM_THREADS")
    monkeypatch.setattr("os.cpu_count", lambda: 64)
    script.write_text(SCRIPT + "print('threads:', os.environ['OMP_NUM_THREADS'])\n")
    done = run(f"{script}:honest", "--event", "event", "--quick")
    assert f"threads: {shown}" in done.stderr
    assert os.environ.get("OMP_NUM_THREADS") == given


STUDY = """
other = odp.gaussian(4.0)

if __name__ == "__main__":
    study = odp.RandTuneSampler(), odp.PrivacyCallback({name})
"""


@pytest.mark.parametrize(("name", "is_another"), [("other", True), ("event", False)])
def test_an_event_that_is_not_the_studys_is_a_hint(
    script: Path, name: str, is_another: bool
) -> None:
    script.write_text(SCRIPT + STUDY.format(name=name))
    done = run(f"{script}:honest", "--event", "event")
    assert done.exit_code == 0, done.output
    assert ("The file gives other to its study" in done.stdout) == is_another
    assert "whether the study is charged for the same" not in done.stdout


def test_an_event_that_is_not_found_in_the_study_is_said_as_not_checked(script: Path) -> None:
    script.write_text(SCRIPT + STUDY.format(name="odp.gaussian(4.0)"))
    done = run(f"{script}:honest", "--event", "event")
    assert "not checked: whether the study is charged for the same" in done.stdout


def test_the_event_that_the_study_is_given_is_named_where_none_was_given(script: Path) -> None:
    script.write_text(SCRIPT + STUDY.format(name="event"))
    assert "--event event" in run(f"{script}:honest").stdout
