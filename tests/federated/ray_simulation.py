"""Two votes on Flower's simulation engine; prints what was released.

python -m federated.ray_simulation
"""

from __future__ import annotations

import json

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp
from flwr.simulation import run_simulation

from federated.in_process import SPACE, app
from optuna_dp.federated import FederatedVote, PlainSum, SecureSum

CLIENTS = 6

server = ServerApp()


@server.main()
def main(grid: Grid, context: Context) -> None:
    for transport in (SecureSum(), PlainSum()):
        vote = FederatedVote(
            SPACE, k=3, epsilon=30.0, clients=CLIENTS, secure_aggregation=transport, timeout=300
        )
        release = vote.start(grid, context)
        print("released", json.dumps(release.to_json()), flush=True)


if __name__ == "__main__":
    run_simulation(
        server_app=server,
        client_app=app(objective=lambda params, context: abs(params["x"] - 3.0)),
        num_supernodes=CLIENTS,
        backend_config={
            "init_args": {"num_cpus": 2, "include_dashboard": False},
            "client_resources": {"num_cpus": 1, "num_gpus": 0.0},
        },
    )
