"""Runs attempts of hostile_server.py over a network; copied into the app by a test."""

from __future__ import annotations

import json
from pathlib import Path

from federated_vote_app.hostile_server import OVER_A_NETWORK, HostileServer
from federated_vote_app.task import SEARCH_SPACE
from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from optuna_dp.polling import poll

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    wanted = int(context.run_config["clients"])
    poll(lambda: len(list(grid.get_node_ids())) >= wanted or None, timeout=200)
    found = {}
    for name, attempt in OVER_A_NETWORK.items():
        result = attempt(HostileServer(grid, SEARCH_SPACE, 1.0))
        found[name] = None if result is None else repr(result)
    Path(str(context.run_config["output"])).write_text(json.dumps(found))
