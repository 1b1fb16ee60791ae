"""``optuna-dp budget`` as a person meets it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import optuna_dp as odp
from optuna_dp.cli.application import app

runner = CliRunner()
SMALL = {"epsilon": "3", "records": "500", "batch-size": "50", "epochs": "2", "pilots": "3,1"}


def arguments(**changed: str) -> list[str]:
    given = SMALL | {name.replace("_", "-"): value for name, value in changed.items()}
    return ["budget", *(part for name, value in given.items() for part in (f"--{name}", value))]


@pytest.fixture(scope="module")
def asked(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], Path]:
    """What --json prints, and the script."""
    script = tmp_path_factory.mktemp("budget") / "tune.py"
    result = runner.invoke(app, [*arguments(script=str(script)), "--json"])
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout), script


@pytest.mark.slow
def test_the_plan_is_that_of_the_library(asked: tuple[dict[str, Any], Path]) -> None:
    found, _ = asked
    plan = odp.plan_budget(epsilon=3.0, records=500, batch_size=50, epochs=2, pilots=(3, 1))
    assert odp.BudgetPlan.from_json(found["plan"]) == plan
    assert found["remark"] in repr(plan)
    assert 2.97 <= found["epsilon"] <= 3.0


@pytest.mark.slow
def test_it_shows_what_pilots_can_see(asked: tuple[dict[str, Any], Path]) -> None:
    found, _ = asked
    assert [rung["pilots"] for rung in found["pilots"]] == [3, 1]
    assert found["noise_of_twice_the_pilots"] > 1.0
    shown = " ".join(runner.invoke(app, arguments()).output.split())
    assert "What pilots can see" in shown
    assert "more noise for the last" in shown
    assert "too noisy to see" not in shown
    poor = runner.invoke(app, arguments(epsilon="0.3", records="200")).output
    assert "too noisy to see" in " ".join(poor.split())


@pytest.mark.slow
def test_every_alternative_costs_the_same_epsilon(asked: tuple[dict[str, Any], Path]) -> None:
    """The least noise is that of one run; more runs, and learning, ask for more."""
    noise = [one["noise_multiplier"] for one in asked[0]["alternatives"]]
    this, alone, ten, thirty, adaptive, choice = noise
    assert alone < this
    assert alone < choice
    assert this < ten < thirty
    assert ten < adaptive
    plan = asked[0]["plan"]
    run = odp.compose(
        odp.dp_sgd(noise_multiplier=ten, sample_rate=0.1, steps=20),
        odp.scoring.score_event(plan["rungs"][-1]["score_noise_multiplier"]),
    )
    assert 2.9 <= odp.selection_guarantee(run, odp.Geometric(10)).epsilon(1e-5) <= 3.0


@pytest.mark.slow
def test_the_script_runs_as_it_is(asked: tuple[dict[str, Any], Path]) -> None:
    found, script = asked
    result = subprocess.run(
        [sys.executable, str(script)], capture_output=True, text=True, check=True
    )
    assert f"epsilon = {found['epsilon']:.4f}"[:-2] in result.stdout
    assert "# Privacy statement" in result.stdout


@pytest.mark.slow
def test_the_page_shows_plan_alternatives_recommendation_and_script() -> None:
    result = runner.invoke(app, arguments())
    assert result.exit_code == 0, result.output
    assert "Remark: A batch of 50 for 20 steps has" in result.stdout
    for words in (
        "The plan",
        "What the same epsilon buys",
        "Recommended:",
        "odp.start_run(trial)",
    ):
        assert words in result.stdout


@pytest.mark.parametrize(
    ("changed", "named"),
    [
        ({"epsilon": "-1"}, "--epsilon"),
        ({"batch_size": "501"}, "--batch-size=501"),
        ({"pilots": "a"}, "--pilots='a'"),
        ({"pilots": "3,4"}, "--pilots"),
        ({"noise_increase": "1"}, "--noise-increase=1.0"),
        ({"records": "many"}, "--records"),
        ({"epochs": "0"}, "--epochs"),
        ({"delta": "2"}, "--delta=2"),
        ({"script": __file__}, "--script"),
    ],
    ids=lambda value: str(value)[:30],
)
def test_bad_input_gets_one_clear_line(changed: dict[str, str], named: str) -> None:
    result = runner.invoke(app, arguments(**changed))
    assert result.exit_code == 2, result.output
    assert result.stderr.startswith("optuna-dp: ")
    assert len(result.stderr.strip().splitlines()) == 1
    assert named in result.stderr


@pytest.mark.slow
def test_without_pilots_and_batch_it_plans_one_run_and_writes_its_script(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    asked_for = ["budget", "--epsilon", "3", "--records", "500", "--epochs", "2"]
    result = runner.invoke(app, [*asked_for, "--pilots", "0", "--script", str(script), "--json"])
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    assert found["plan"]["rungs"] == []
    assert found["plan"]["batch_size"] == found["batches"]["favored"]["batch_size"]
    assert found["alternatives"][0]["name"] == "one run (this plan)"
    assert "suggest_float" not in script.read_text()
    assert "around" not in script.read_text()
    done = subprocess.run(
        [sys.executable, str(script)], capture_output=True, text=True, check=True
    )
    assert done.stdout.startswith("{} ")


@pytest.mark.slow
def test_it_says_why_it_plans_no_pilots_and_writes_a_script_of_one_run(tmp_path: Path) -> None:
    path = tmp_path / "tune.py"
    asked = ["budget", "--epsilon", "0.3", "--records", "134", "--batch-size", "40"]
    asked += ["--epochs", "40", "--script", str(path)]
    shown = CliRunner().invoke(app, asked)
    assert shown.exit_code == 0
    words = " ".join(shown.output.split())
    assert "Train once" in words
    assert "candidates would cost more than they find" in words
    assert "hides nearly all that it learns" in words
    assert "odp.around" not in path.read_text()


ASKED = ["budget", "--epsilon", "3", "--batch-size", "50", "--epochs", "20"]


@pytest.fixture(scope="module")
def listed(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], Path]:
    """What --json prints if nothing is said of pilots, and the script."""
    script = tmp_path_factory.mktemp("budget") / "tune.py"
    asked = [*ASKED, "--records", "500", "--script", str(script), "--json"]
    result = runner.invoke(app, asked)
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout), script


@pytest.mark.slow
def test_it_recommends_a_short_list(listed: tuple[dict[str, Any], Path]) -> None:
    found, _ = listed
    assert odp.BudgetPlan.from_json(found["plan"]).candidates == 6
    assert "6 candidates" in found["recommendation"]
    assert "nothing was found" not in found["recommendation"]


@pytest.mark.slow
def test_with_few_records_it_says_that_a_good_guess_is_hard_to_beat() -> None:
    result = runner.invoke(app, [*ASKED, "--records", "400", "--json"])
    assert "nothing was found" in json.loads(result.stdout)["recommendation"]


@pytest.mark.slow
def test_random_pilots_are_told_what_they_cost(asked: tuple[dict[str, Any], Path]) -> None:
    assert "costs one to four points" in asked[0]["recommendation"]


def test_pilots_and_candidates_exclude_each_other() -> None:
    result = runner.invoke(app, arguments(candidates="3"))
    assert result.exit_code == 2
    assert "--candidates=3" in result.stderr


@pytest.mark.slow
def test_the_script_of_a_list_runs_as_it_is(listed: tuple[dict[str, Any], Path]) -> None:
    found, script = listed
    assert script.read_text().count('{"features":') == 6
    result = subprocess.run(
        [sys.executable, str(script)], capture_output=True, text=True, check=True
    )
    assert "{'features': " in result.stdout
    assert f"epsilon = {found['epsilon']:.4f}"[:-2] in result.stdout
