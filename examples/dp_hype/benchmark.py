"""How long votes take in one process, clients and server together, and the server alone.

Targets: 50 clients and 100 candidates in 1 s by plain sums, and 10,000 clients and 1000 candidates
in 30 s and 2 GB. In a secure sum the server is to take less than 60 s of CPU for 200 clients.
"""

from __future__ import annotations

import argparse
import logging
import resource
import time
from typing import Any

from flwr.app import Context, Message
from flwr.clientapp import ClientApp
from optuna.distributions import IntDistribution

from optuna_dp.federated import (
    FederatedVote,
    InProcessGrid,
    PlainSum,
    SecureSum,
    VotePolicy,
    voter,
)

app = ClientApp()


@voter(app, policy=VotePolicy(max_epsilon=1.0, server="trusted", ledger="run"))
def objective(params: dict[str, Any], context: Context) -> float:
    return float((params["x"] * 7919 + context.node_id) % 1000)


class Timed(InProcessGrid):
    """Adds up the CPU time that the clients take."""

    in_clients = 0.0

    def _deliver(self, message: Message) -> Message:
        start = time.process_time()
        reply = super()._deliver(message)
        self.in_clients += time.process_time() - start
        return reply


def measure(clients: int, candidates: int, transport: Any, limit: float) -> None:
    grid = Timed(app, [{}] * clients)
    start, cpu = time.perf_counter(), time.process_time()
    vote = FederatedVote(
        {"x": IntDistribution(1, candidates)},
        k=5,
        epsilon=1.0,
        secure_aggregation=transport,
        max_dropout=clients // 20,
    )
    release = vote.start(grid, grid.server_context())
    seconds, cpu = time.perf_counter() - start, time.process_time() - cpu
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    print(
        f"{clients:6d} clients  {candidates:5d} candidates  {transport}: {seconds:6.2f} s, "
        f"{cpu:.2f} s of CPU (target {limit:g} s), of it the server {cpu - grid.in_clients:.2f} s "
        f"and each client {grid.in_clients / clients:.3f} s, peak {memory:.2f} GB, "
        f"epsilon {release.guarantee.epsilon(1e-5):.4f}"
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="without the largest")
    options = parser.parse_args()
    logging.getLogger("flwr").setLevel(logging.ERROR)
    measure(50, 100, PlainSum(), 1.0)
    measure(50, 100, SecureSum(), 60.0)
    if not options.quick:
        for clients in (100, 200):
            measure(clients, 100, SecureSum(), 60.0)
        measure(10_000, 1000, PlainSum(), 30.0)
