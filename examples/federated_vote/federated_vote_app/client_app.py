"""What runs at each client: the objective, on data that stay where they are."""

from __future__ import annotations

from typing import Any

from flwr.app import Context
from flwr.clientapp import ClientApp

from federated_vote_app.task import local_loss, own_data
from optuna_dp.federated import voter

app = ClientApp()


# What this app agrees to. Whoever runs an app may edit it: the limits that count are in a file on
# the node (`vote-policy` in its configuration), and hold beside these.
@voter(app, max_epsilon=5.0, ledger="run")
def objective(params: dict[str, Any], context: Context) -> float:
    x, y = own_data(
        int(context.node_config["partition-id"]), int(context.node_config["num-partitions"])
    )
    return local_loss(params, x, y)
