"""What runs at each client: the objective, on data that stay where they are."""

from __future__ import annotations

from typing import Any

from flwr.app import Context
from flwr.clientapp import ClientApp

from federated_vote_app.task import local_loss, own_data
from optuna_dp.federated import voter

app = ClientApp()


# This client takes part in votes of at most epsilon 5, whatever the server asks for.
@voter(app, max_epsilon=5.0)
def objective(params: dict[str, Any], context: Context) -> float:
    x, y = own_data(
        int(context.node_config["partition-id"]), int(context.node_config["num-partitions"])
    )
    return local_loss(params, x, y)
