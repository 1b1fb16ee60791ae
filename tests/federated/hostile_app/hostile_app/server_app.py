"""A server that tries the lies it is told to, one after the other, and writes what it found."""

from __future__ import annotations

import json
from pathlib import Path

from federated.hostile_server import ATTEMPTS, HostileServer, found_nothing
from federated.in_process import SPACE
from flwr.app import Context
from flwr.serverapp import Grid, ServerApp
from patience import within

from optuna_dp.core.polling import poll

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    config = context.run_config
    wanted = int(config["clients"])
    poll(lambda: len(list(grid.get_node_ids())) >= wanted or None, within(300))
    found = {}
    for name in str(config["attempts"]).split(", "):
        server = HostileServer(grid, SPACE, 1.0, context.run_id)
        nothing = found_nothing(ATTEMPTS[name](server))
        found[name] = {"nothing": nothing, "refusals": server.refusals}
    output = Path(str(config["output"]))
    output.with_suffix(".part").write_text(json.dumps(found))
    output.with_suffix(".part").rename(output)
