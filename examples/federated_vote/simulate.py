"""The same vote among many clients in one process: what the noise of privacy leaves of it.

python simulate.py [CLIENTS ...]
"""

import logging
import sys

from federated_vote_app.client_app import objective
from federated_vote_app.task import SEARCH_SPACE
from flwr.clientapp import ClientApp

from optuna_dp.federated import FederatedVote, InProcessGrid, PlainSum, VotePolicy, voter

# No server is there to be distrusted, so clients answer plain sums, which are quick.
app = ClientApp()
voter(app, policy=VotePolicy(max_epsilon=5.0, server="trusted", ledger="run"))(objective)


def main() -> None:
    logging.getLogger("flwr").setLevel(logging.ERROR)
    for clients in [int(word) for word in sys.argv[1:]] or [3, 10, 30]:
        nodes = [{"partition-id": i, "num-partitions": clients} for i in range(clients)]
        grid = InProcessGrid(app, nodes)
        vote = FederatedVote(
            SEARCH_SPACE,
            candidates="grid",
            k=3,
            epsilon=3.0,
            clients=clients,
            secure_aggregation=PlainSum(),
        )
        release = vote.start(grid, grid.server_context())
        noise = vote.plan(clients).variance ** 0.5
        print(f"{clients} clients, noise {noise:.2f}: {release.value:.0f} votes, {release.params}")


if __name__ == "__main__":
    main()
