"""A vote on Flower's own simulation engine, whose clients are workers of Ray."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("flwr", reason='needs Flower: pip install "optuna-dp[federated]"')
pytest.importorskip("ray", reason='needs its simulation engine: pip install "flwr[simulation]"')

from optuna_dp.accounting.guarantee import Guarantee

pytestmark = pytest.mark.engines


def test_votes_on_flowers_simulation_engine(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "federated.ray_simulation"],
        env={
            **os.environ,
            "PYTHONPATH": str(Path(__file__).parents[1]),
            "OMP_NUM_THREADS": "1",
            "FLWR_HOME": str(tmp_path),
            "FLWR_TELEMETRY_ENABLED": "0",
            "RAY_USAGE_STATS_ENABLED": "0",
        },
        capture_output=True,
        text=True,
        timeout=600,
    )
    lines = [line for line in done.stdout.splitlines() if line.startswith("released ")]
    assert len(lines) == 2, done.stdout + done.stderr
    for line, way in zip(lines, ("secure", "plain"), strict=True):
        release = json.loads(line.removeprefix("released "))
        settings = release["statement"]["design"]["settings"]
        assert (settings["sum"], settings["attempts"]) == (way, 1)
        assert settings["plan"]["clients"] == 6
        # So much noise that a wrong winner comes once in 10^9 votes, by the law of the noise.
        assert release["params"]["x"] in (2.5, 3.0, 3.5)
        assert Guarantee.from_json(release["statement"]["guarantee"]).epsilon(1e-5) <= 30.0
