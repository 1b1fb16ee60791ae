"""The examples run, write what they say, and say what the README says."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
EXAMPLES = ROOT / "examples" / "propose_test"
FIGURES = sorted(path.stem for path in EXAMPLES.glob("*_figure_*.py"))


def run(name, *arguments):
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run(
        [sys.executable, str(EXAMPLES / f"{name}.py"), *arguments],
        capture_output=True, text=True, check=True, env=environment,
    ).stdout  # fmt: skip


def test_the_four_figures_are_there():
    assert FIGURES == [
        "constant_overhead_figure_3",
        "constant_overhead_figure_4",
        "revisiting_figure_1",
        "revisiting_figure_2",
    ]


def test_the_page_of_proofs_has_the_sections_that_the_code_names():
    page = (ROOT / "docs" / "explanation" / "propose-test.md").read_text(encoding="utf-8")
    sources = (ROOT / "optuna_dp" / "mechanisms").glob("*.py")
    named = {
        word
        for path in sources
        for word in re.findall(r"propose-test\.md, \"([^\"]+)\"", path.read_text("utf-8"))
    }
    assert named
    assert all(f"# {section}\n" in page for section in named)


@pytest.mark.slow
def test_choose():
    said = run("choose", "--quick")
    assert "0.949 at delta 1e-05 for 29 iterations" in said
    assert "partitions would do" in said


@pytest.mark.slow
def test_table_1_is_the_one_on_the_page():
    page = (ROOT / "docs" / "explanation" / "reproductions.md").read_text(encoding="utf-8")
    assert run("table_1").strip() in page


@pytest.mark.slow
@pytest.mark.parametrize("name", FIGURES)
def test_reproductions_write_a_figure_and_its_numbers(name, tmp_path):
    pytest.importorskip("plotly")
    run(name, "--quick", "--output", str(tmp_path))
    assert (tmp_path / f"{name}.html").stat().st_size > 10_000
    results = json.loads((tmp_path / f"{name}.json").read_text())
    assert "numpy noise" in results["simulation"]
    if name == "revisiting_figure_1":
        assert results["total_epsilon_guaranteed"] == pytest.approx(6.4796, abs=1e-3)
        assert results["fidelity_noisy_max_same_budget"] > results["fidelity_doubling"] + 0.3
