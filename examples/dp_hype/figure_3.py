"""arXiv 2510.04902 (DP-HYPE), Figure 3: how much a vote sends, measured.

The paper counts vectors: p numbers from each client, n p for the server. Here the bytes of
Flower's messages are counted, in both directions, as they are serialised for the wire: the query
with its candidates, the vote, and under secure aggregation keys, shares and masked vectors.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Any

from figures import COLOURS, main
from flwr.app import Context, Message
from flwr.clientapp import ClientApp
from flwr.common.serde import recorddict_to_proto
from optuna.distributions import IntDistribution
from plotly.subplots import make_subplots

from optuna_dp.federated import (
    FederatedVote,
    InProcessGrid,
    PlainSum,
    SecureSum,
    VotePolicy,
    voter,
)

K = 5
WAYS = {"plain": PlainSum(), "secure": SecureSum()}

app = ClientApp()


@voter(app, policy=VotePolicy(max_epsilon=1.0, server="trusted", ledger="run"))
def objective(params: dict[str, Any], context: Context) -> float:
    return float(params["x"])


class Counted(InProcessGrid):
    """Counts the bytes of contents that pass."""

    down = up = 0

    def send_and_receive(
        self, messages: Iterable[Message], *, timeout: float | None = None
    ) -> Iterable[Message]:
        sent = list(messages)
        replies = list(super().send_and_receive(sent, timeout=timeout))
        self.down += sum(recorddict_to_proto(m.content).ByteSize() for m in sent)
        self.up += sum(recorddict_to_proto(m.content).ByteSize() for m in replies)
        return replies


def measured(clients: int, candidates: int, way: str) -> dict[str, int]:
    """Bytes that one client sends and receives, on average, and that the server receives."""
    grid = Counted(app, [{}] * clients)
    vote = FederatedVote(
        {"x": IntDistribution(1, candidates)},
        k=K,
        epsilon=1.0,
        secure_aggregation=WAYS[way],
        progress=lambda text: None,
    )
    vote.start(grid, grid.server_context())
    return {
        "client sends": grid.up // clients,
        "client receives": grid.down // clients,
        "server receives": grid.up,
        "vectors": 8 * candidates * clients,
    }


def reproduce(quick: bool, seed: int) -> tuple[Any, dict[str, Any]]:
    logging.getLogger("flwr").setLevel(logging.ERROR)
    logging.getLogger("optuna_dp").setLevel(logging.ERROR)
    by_candidates = (10, 100, 1000) if quick else (10, 100, 1000, 10_000)
    by_clients = (10, 25) if quick else (10, 25, 50)
    results: dict[str, Any] = {}
    figure = make_subplots(
        1, 2, subplot_titles=["a client sends, 10 clients", "the server receives, 100 candidates"]
    )
    for i, way in enumerate(WAYS):
        for n, p in dict.fromkeys(
            [(10, p) for p in by_candidates] + [(n, 100) for n in by_clients]
        ):
            results[f"{way} n={n} p={p}"] = found = measured(n, p, way)
            print(f"{way:9s}  n {n:4d}  p {p:6d}  bytes {found}", flush=True)
        for column, xs, key in (
            (1, by_candidates, "client sends"),
            (2, by_clients, "server receives"),
        ):
            runs = [(10, x) if column == 1 else (x, 100) for x in xs]
            ys = [results[f"{way} n={n} p={p}"][key] for n, p in runs]
            figure.add_scatter(x=list(xs), y=ys, name=way, line={"color": COLOURS[i]},
                               showlegend=column == 1, row=1, col=column)  # fmt: skip
    figure.update_xaxes(type="log", title_text="candidates", col=1)
    figure.update_xaxes(type="log", title_text="clients", col=2)
    figure.update_yaxes(type="log", title_text="bytes")
    return figure, results


if __name__ == "__main__":
    main("dp_hype_figure_3", __doc__, reproduce)
