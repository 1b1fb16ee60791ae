"""A recipe by vote, then federated training with client-level privacy: one release.

Clients with a share of the digits vote for a learning rate and a number of local epochs. With the
winner the server trains by FedAvg, in Flower's own modules: each client's update is clipped as a
whole, and noise is added to their average. Both hide one client with everything it holds, so their
costs compose:

    python examples/federated_recipe/recipe.py [--clients 100] [--rounds 15] [--quick]

In the training the server is trusted: it sees each client's update before the noise is added, and
draws the noise with numpy's generator, in floating point. In the vote it sees the noisy sum only
(here a plain sum, because clients and server are one process).
"""

from __future__ import annotations

import argparse
import logging
from typing import Any

import numpy as np
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp.strategy import DifferentialPrivacyServerSideFixedClipping, FedAvg
from optuna.distributions import CategoricalDistribution, FloatDistribution
from sklearn.datasets import load_digits

import optuna_dp as odp
from optuna_dp.federated import (
    FederatedVote,
    InProcessGrid,
    PlainSum,
    VotePolicy,
    VoteStrategy,
    voter,
)

SPACE = {
    "learning_rate": FloatDistribution(1e-3, 10.0, log=True),
    "epochs": CategoricalDistribution([1, 2, 4, 8]),
}
DELTA = 1e-5
CLIP = 0.5

_x, _y = load_digits(return_X_y=True)
_order = np.random.default_rng(0).permutation(len(_x))
PIXELS = np.hstack([_x / 16.0, np.ones((len(_x), 1))])[_order]
LABELS = _y[_order]
TEST = slice(0, 300)  # public here: nobody's records are among them

app = ClientApp()


def own_data(context: Context) -> tuple[np.ndarray, np.ndarray]:
    """Returns the records that one client holds."""
    part, parts = (int(context.node_config[k]) for k in ("partition-id", "num-partitions"))
    return PIXELS[300 + part :: parts], LABELS[300 + part :: parts]


def train(weights: np.ndarray, x: np.ndarray, y: np.ndarray, params: dict[str, Any]) -> np.ndarray:
    """Softmax regression, in full batches; no privacy of its own."""
    for _ in range(params["epochs"]):
        logits = x @ weights
        errors = np.exp(logits - logits.max(axis=1, keepdims=True))
        errors /= errors.sum(axis=1, keepdims=True)
        errors[np.arange(len(y)), y] -= 1.0
        weights = weights - params["learning_rate"] * x.T @ errors / len(x)
    return weights


@voter(app, policy=VotePolicy(max_epsilon=10.0, server="trusted", ledger="run"))
def objective(params: dict[str, Any], context: Context) -> float:
    """What a few rounds on the client's own data come to, by their loss on a part of them."""
    x, y = own_data(context)
    held_out = np.arange(len(x)) % 4 == 0
    weights = np.zeros((x.shape[1], 10))
    for _ in range(5):
        change = train(weights, x[~held_out], y[~held_out], params) - weights
        weights = weights + change * min(1.0, CLIP / max(np.linalg.norm(change), 1e-12))
    logits = x[held_out] @ weights
    picked = logits[np.arange(len(logits)), y[held_out]]
    return float(np.mean(np.log(np.exp(logits).sum(axis=1)) - picked))


@app.train()
def local_training(message: Message, context: Context) -> Message:
    """One round at one client. Every client has the same weight: FedAvg's own would be a size."""
    config = message.content.config_records["config"]
    start = message.content.array_records["arrays"].to_numpy_ndarrays()[0]
    params = {"learning_rate": float(config["learning_rate"]), "epochs": int(config["epochs"])}
    weights = train(start, *own_data(context), params)
    content = {
        "arrays": ArrayRecord([weights]),
        "metrics": MetricRecord({"num-examples": 1}),
    }
    return Message(RecordDict(content), reply_to=message)


def accuracy(weights: np.ndarray) -> float:
    """Accuracy on the public test records."""
    return float(np.mean(np.argmax(PIXELS[TEST] @ weights, axis=1) == LABELS[TEST]))


def run(clients: int, rounds: int, noise_multiplier: float, epsilon: float) -> odp.Release:
    """Returns one release: the recipe, the model, and what both cost together."""
    nodes = [{"partition-id": i, "num-partitions": clients} for i in range(clients)]
    grid = InProcessGrid(app, nodes)
    vote = FederatedVote(
        SPACE,
        candidates=40,
        k=5,
        epsilon=epsilon,
        delta=DELTA,
        adjacency="null_client",
        clients=clients,
        secure_aggregation=PlainSum(),
    )
    private_training = DifferentialPrivacyServerSideFixedClipping(
        FedAvg(fraction_train=1.0, fraction_evaluate=0.0, min_available_nodes=clients),
        noise_multiplier=noise_multiplier,
        clipping_norm=CLIP,
        num_sampled_clients=clients,
    )
    # The vote is held before the first round, and its winner is in every client's configuration.
    strategy = VoteStrategy(vote, private_training, grid.server_context())
    result = strategy.start(
        grid=grid,
        initial_arrays=ArrayRecord([np.zeros((PIXELS.shape[1], 10))]),
        num_rounds=rounds,
    )
    recipe = strategy.release
    assert recipe is not None
    print(f"recipe: {recipe.params}, epsilon {recipe.guarantee.epsilon(DELTA):.3f}")
    weights = result.arrays.to_numpy_ndarrays()[0]
    # Every client takes part in every round, so a round is one Gaussian mechanism about clients:
    # the noise is noise_multiplier times what one client's clipped update moves the sum by.
    training = odp.dp_sgd(noise_multiplier=noise_multiplier, sample_rate=1.0, steps=rounds)
    whole = recipe.with_training(odp.per_client(training), artifact=weights.tobytes())
    print(f"test accuracy {accuracy(weights):.3f}")
    print(f"epsilon of both together, about one client: {whole.guarantee.epsilon(DELTA):.3f}")
    return whole


def main() -> None:
    """Runs the example."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clients", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--noise", type=float, default=4.0)
    parser.add_argument("--epsilon", type=float, default=2.0, help="of the vote")
    parser.add_argument("--quick", action="store_true")
    options = parser.parse_args()
    logging.getLogger("flwr").setLevel(logging.ERROR)
    clients, rounds = (30, 4) if options.quick else (options.clients, options.rounds)
    print(run(clients, rounds, options.noise, options.epsilon).statement())


if __name__ == "__main__":
    main()
