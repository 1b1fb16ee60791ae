"""The examples of DP-HYPE run and say what their README says."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from optuna_dp.voting import VotePlan

pytest.importorskip("flwr", reason='needs Flower: pip install "optuna-dp[federated]"')
pytest.importorskip("plotly", reason="the figures need plotly")

pytestmark = pytest.mark.slow

EXAMPLES = Path(__file__).parents[2] / "examples" / "dp_hype"


def run(script: str, *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / script), "--quick", *arguments],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def numbers(name: str, folder: Path) -> dict[str, Any]:
    run(f"{name.removeprefix('dp_hype_')}.py", "--output", str(folder))
    assert (folder / f"{name}.html").stat().st_size > 1000
    found: dict[str, Any] = json.loads((folder / f"{name}.json").read_text())
    return found


def test_figure_2(tmp_path: Path) -> None:
    found = numbers("dp_hype_figure_2", tmp_path)
    plan = VotePlan.calibrated(clients=250, candidates=100, votes=5, epsilon=0.25, delta=1e-5)
    assert found["sigma"]["k=5 epsilon=0.25"] == pytest.approx(plan.variance**0.5, abs=0.01)
    # A vote for everything is a guess, with 5 good candidates of 100.
    assert all(rate < 0.12 for rate in found["a epsilon=1 k=100"].values())
    assert min(found["a epsilon=1 k=5"].values()) > 0.97
    small = {k: found[f"a epsilon=0.25 k={k}"] for k in (1, 5, 25, 50)}
    assert small[5]["0.6"] > small[1]["0.6"] > small[50]["0.6"]
    dip = found["b epsilon=0.25 k=1"]
    assert min(dip["1"], dip["100"]) > dip["32"] + 0.15
    # More bad candidates lift the largest noise: large k is a guess then, small k hardly suffers.
    more = {k: found[f"c epsilon=0.25 k={k}"] for k in (5, 50)}
    assert more[5]["2700"] > 0.9
    assert more[50]["2700"] < more[50]["300"] < more[5]["300"]


def test_digits(tmp_path: Path) -> None:
    found = numbers("dp_hype_digits", tmp_path)
    for name, row in found.items():
        if "n=" in name:
            assert row["Opt"][0] > 0.85
            assert row["RandGuess"][0] < 0.4
            assert row["inf"][0] > row["Opt"][0] - 0.15
    assert found["iid n=25"]["3"][0] > found["iid n=25"]["RandGuess"][0] + 0.3


def test_figure_3(tmp_path: Path) -> None:
    found = numbers("dp_hype_figure_3", tmp_path)
    sent = [found[f"plain n=10 p={p}"]["client sends"] for p in (10, 100, 1000)]
    # Eight bytes for each candidate, and a constant: Flower's frame.
    assert [sent[i + 1] - sent[i] for i in (0, 1)] == pytest.approx([720, 7200], rel=0.01)
    assert found["plain n=25 p=100"]["client sends"] == pytest.approx(sent[1], rel=0.01)
    secure = [found[f"secure n=10 p={p}"]["client sends"] for p in (100, 1000)]
    assert secure[1] - secure[0] == pytest.approx(3600, rel=0.02)  # four bytes each
    assert found["secure n=25 p=100"]["client sends"] > 2 * secure[0]  # a share for everybody


def test_figures_4_and_7_to_9(tmp_path: Path) -> None:
    found = numbers("dp_hype_distributions", tmp_path)
    for name in ("4 digits", "4 breast_cancer"):
        assert sum(found[name]) == 100
        assert 20 <= found[name][-1] <= 40  # good candidates are few
    skewed, even = (found[f"7 Dirichlet({c})"] for c in ("0.5", "30"))
    share = "share of the most frequent label"
    assert sum(skewed["sizes"]) == sum(even["sizes"])
    assert skewed["sizes"][-1] < even["sizes"][-1]
    assert skewed[share] > even[share] + 0.1
    for name, figure in found.items():
        if name.startswith("9 "):
            assert sum(figure["counts"]) == 100
            assert figure["best"] > 0.9


def test_benchmark() -> None:
    lines = run("benchmark.py").splitlines()
    epsilons = [float(x) for line in lines for x in re.findall(r"epsilon ([\d.]+)", line)]
    assert epsilons == [1.0, 1.0]
