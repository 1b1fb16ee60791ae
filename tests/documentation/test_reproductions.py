"""The page of reproductions names scripts that exist, and the one command runs them all."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

import optuna_dp as odp
from documentation.pages import ROOT

PAGE = (ROOT / "docs" / "explanation" / "reproductions.md").read_text()


def test_every_script_that_is_named_exists() -> None:
    named = re.findall(r"`(examples/[\w/]+\.py)", PAGE)
    assert len(named) > 8
    for name in named:
        assert (ROOT / name).is_file(), name


@pytest.mark.slow
def test_the_comparisons_of_distributions_print_what_the_page_says(tmp_path: Path) -> None:
    command = [sys.executable, str(ROOT / "examples" / "reproduce.py"), "--only", "laws"]
    subprocess.run([*command, "--output", str(tmp_path)], capture_output=True, check=True)
    made = {
        name: json.loads((tmp_path / f"{name}.json").read_text())
        for name in ("papernot_steinke", "koskela")
    }
    for name in ("geometric", "Poisson", "logarithmic"):
        row = made["papernot_steinke"][name]
        shown = [
            f"{e:.2f} ({r:.2f}), {100 * a:.1f} %"
            for e, r, a in zip(row["epsilon"], row["renyi"], row["accuracy"], strict=True)
        ]
        assert f"| {name} | {' | '.join(shown)} |" in PAGE
        assert all(e < r for e, r in zip(row["epsilon"], row["renyi"], strict=True))
    for name in ("geometric", "Poisson"):
        row = [made["koskela"][name][way][0] for way in ("rdp", "koskela", "ours", "attack")]
        assert f"| {name} | {' | '.join(f'{e:.3f}' for e in row)} |" in PAGE


@pytest.mark.slow
def test_the_one_command_runs_them(tmp_path: Path) -> None:
    """The propose-test ones; the others have tests of their own where their packages are."""
    found = subprocess.run(
        [sys.executable, str(ROOT / "examples" / "reproduce.py"), "--output", str(tmp_path),
         "--only", "table_1"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert "report-noisy-max" in found.stdout


@pytest.mark.parametrize("bounds", [[0.9, 1.25], [0.75, 2.0]])
def test_the_figures_of_choosing_a_law_have_todays_bounds(bounds: list[float]) -> None:
    data = json.loads((ROOT / "docs" / "_static" / "choosing.json").read_text())
    (points,) = [entry["points"] for entry in data["adaptive"] if entry["bounds"] == bounds]
    (drawn,) = [point["epsilon"] for point in points if point["mean"] == 10]
    found = odp.selection_guarantee(
        odp.dp_sgd(**data["base"]), odp.Geometric(10), density_bounds=tuple(bounds)
    )
    assert found.epsilon(data["delta"]) == pytest.approx(drawn, rel=1e-6)
