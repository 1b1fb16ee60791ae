"""The same apps on Flower's own simulation engine, which runs clients in Ray's processes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("flwr", reason='needs Flower: pip install "optuna-dp[federated]"')
pytest.importorskip("ray", reason='needs Ray: pip install "flwr[simulation]"')

pytestmark = pytest.mark.deployment

# In a process of its own: Ray leaves threads behind, and takes this one's over.
CODE = """
import json, sys
from flwr.clientapp import ClientApp
from flwr.serverapp import ServerApp
from flwr.simulation import run_simulation
from optuna.distributions import FloatDistribution
from optuna_dp.federated import FederatedVote, voter

client, server = ClientApp(), ServerApp()

@voter(client, max_epsilon=2.0)
def objective(params, context):
    return abs(params["x"] - context.node_config["partition-id"])

@server.main()
def main(grid, context):
    space = {"x": FloatDistribution(0.0, 10.0, step=0.5)}
    vote = FederatedVote(space, k=3, epsilon=2.0, clients=4, timeout=300.0)
    release = vote.start(grid, context)
    with open(sys.argv[1], "w") as file:
        json.dump(release.to_json(), file)

if __name__ == "__main__":
    run_simulation(server, client, 4, backend_config={"client_resources": {"num_cpus": 1}})
"""


def test_a_vote_on_flowers_simulation_engine(tmp_path: Path) -> None:
    script, output = tmp_path / "simulated.py", tmp_path / "release.json"
    script.write_text(CODE)
    environment = {
        **os.environ,
        "FLWR_TELEMETRY_ENABLED": "0",
        "FLWR_DISABLE_UPDATE_CHECK": "1",
        "FLWR_HOME": str(tmp_path / "flwr"),
        "NO_PROXY": "*",
        "RAY_USAGE_STATS_ENABLED": "0",
        "OMP_NUM_THREADS": "1",
    }
    done = subprocess.run(
        [sys.executable, "-W", "ignore", str(script), str(output)],
        env=environment,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=580,
    )
    assert output.exists(), done.stdout[-2000:] + done.stderr[-5000:]
    release = json.loads(output.read_text())
    assert len(release["attributes"]["noisy_votes"]) == 21
    assert release["statement"]["design"]["settings"]["sum"] == "secagg+"
