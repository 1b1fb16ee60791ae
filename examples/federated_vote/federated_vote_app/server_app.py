"""What runs at the server: the vote. It sees the noisy sum of votes and nothing else."""

from __future__ import annotations

import json
from pathlib import Path

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from federated_vote_app.task import SEARCH_SPACE
from optuna_dp.federated import FederatedVote, PlainSum, SecureSum

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    config = context.run_config
    vote = FederatedVote(
        SEARCH_SPACE,
        candidates="grid",
        k=int(config["votes"]),
        epsilon=float(config["epsilon"]),
        clients=int(config["clients"]),
        max_dropout=int(config["max-dropout"]),
        secure_aggregation=SecureSum() if config["secure"] else PlainSum(),
        timeout=300.0,
        progress=print,
    )
    release = vote.start(grid, context)
    print(release.statement())
    print(f"chosen: {release.params}")
    print(f"epsilon: {release.guarantee.epsilon(delta=1e-5):.4f}")
    Path(str(config["output"])).write_text(json.dumps(release.to_json()))
