"""Handwritten digits split over clients: how good is the private choice? (arXiv 2510.04902, VI.)

Each client trains all 100 candidates of the paper (learning rate x decay x momentum) on its own
records, scores them on records it held out, and votes; the votes are those of FederatedVote, with
its own noise. The winner's accuracy is that of a model trained with it by FedAvg, against the best
candidate (Opt) and the average one (RandGuess).

One run is a new split, new local trainings and new global trainings of all candidates; the 95 %
intervals are Student's, over runs, each run averaging over several votes.
"""

from __future__ import annotations

import itertools
import logging
import math
from typing import Any

import numpy as np
from figures import COLOURS, DELTA, main
from flwr.app import Context
from flwr.clientapp import ClientApp
from optuna.distributions import CategoricalDistribution
from plotly.subplots import make_subplots
from scipy import stats
from sklearn.datasets import load_digits

from optuna_dp.federated import FederatedVote, InProcessGrid, PlainSum, VotePolicy, voter
from optuna_dp.voting import argmax, ballot

# The three largest are scaled to this model (0.5, 0.1, 0.05 in the paper); the others are as bad.
RATES = [2.0, 0.5, 0.2, 5e-4, 1e-4, 1e-6, 5e-7, 1e-7, 5e-8, 1e-8]
DECAYS = [0.0, 0.1, 0.25, 0.99, 1.0]  # factor per epoch of one local training
MOMENTA = [0.0, 0.9]
CANDIDATES = list(itertools.product(RATES, DECAYS, MOMENTA))
SPACE = {"candidate": CategoricalDistribution(list(range(len(CANDIDATES))))}
EPSILONS = [0.1, 0.25, 0.5, 1.0, 3.0]
K = 5
LOCAL_EPOCHS, ROUNDS, EPOCHS_PER_ROUND, BATCH = 10, 5, 5, 32

X, Y = load_digits(return_X_y=True)
X = np.hstack([X / 16.0, np.ones((len(X), 1))]).astype(np.float32)
TEST = np.random.default_rng(0).random(len(X)) < 0.2

app = ClientApp()


@voter(app, policy=VotePolicy(max_epsilon=1e6, server="trusted"))
def objective(params: dict[str, Any], context: Context) -> float:
    """What the client has measured before; all candidates are trained at once, for speed."""
    return float(SCORES[int(context.node_config["client"])][params["candidate"]])


SCORES: list[np.ndarray] = []


def split(n: int, concentration: float | None, rng: np.random.Generator) -> list[np.ndarray]:
    """Returns each client's training records: equal parts, or Dirichlet shares of labels."""
    train = rng.permutation(np.flatnonzero(~TEST))
    if concentration is None:
        return np.array_split(train, n)
    owners = np.empty(len(train), dtype=int)
    for label in range(10):
        mine = Y[train] == label
        owners[mine] = rng.choice(n, mine.sum(), p=rng.dirichlet(np.full(n, concentration)))
    return [train[owners == client] for client in range(n)]


def descend(weights: np.ndarray, records: np.ndarray, epochs: int,
            rng: np.random.Generator) -> None:  # fmt: skip
    """Trains softmax regressions of all candidates at once on some records, in place."""
    rate, decay, momentum = (
        np.array(c, dtype=np.float32)[:, None, None] for c in zip(*CANDIDATES, strict=True)
    )
    velocity = np.zeros_like(weights)
    one_hot = np.eye(10, dtype=np.float32)[Y]
    for epoch in range(epochs):
        step = rate * decay**epoch  # 0 ** 0 is 1: decay 0 trains for one epoch
        parts = max(len(records) // BATCH, 1)
        for batch in np.array_split(rng.permutation(records), parts):
            logits = X[batch] @ weights
            errors = np.exp(logits - logits.max(axis=2, keepdims=True))
            errors /= errors.sum(axis=2, keepdims=True)
            errors -= one_hot[batch]
            velocity *= momentum
            velocity -= (X[batch].T @ errors) / np.float32(len(batch))
            weights += step * velocity


def accuracy(weights: np.ndarray, records: np.ndarray) -> np.ndarray:
    return np.mean(np.argmax(X[records] @ weights, axis=2) == Y[records], axis=1)


def start() -> np.ndarray:
    """Random weights, as in a network: from zero the smallest step already classifies well, and
    the paper's tiny learning rates would not be bad."""
    weights = np.random.default_rng(1).normal(0.0, 0.3, (X.shape[1], 10)).astype(np.float32)
    return np.repeat(weights[None], len(CANDIDATES), axis=0)


def local_scores(records: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Accuracy of every candidate on a third of the client's records, trained on the others."""
    if len(records) < 3:
        return np.zeros(len(CANDIDATES))  # nothing to say: every candidate ties
    held_out = max(len(records) // 3, 1)
    weights = start()
    descend(weights, records[held_out:], LOCAL_EPOCHS, rng)
    return accuracy(weights, records[:held_out])


def federated_accuracy(parts: list[np.ndarray], rng: np.random.Generator) -> np.ndarray:
    """Test accuracy of every candidate after FedAvg (arXiv 1602.05629)."""
    weights = start()
    total = sum(len(part) for part in parts)
    for _ in range(ROUNDS):
        average = np.zeros_like(weights)
        for part in parts:
            if len(part):
                local = weights.copy()
                descend(local, part, EPOCHS_PER_ROUND, rng)
                average += np.float32(len(part) / total) * local
        weights = average
    return accuracy(weights, np.flatnonzero(TEST))


def private_choices(n: int, epsilon: float, votes: int) -> list[int]:
    """Winners of independent votes, each at this epsilon: repetitions, not rounds of one."""
    grid = InProcessGrid(app, [{"client": i} for i in range(n)])
    chosen = []
    for _ in range(votes):
        vote = FederatedVote(
            SPACE,
            k=K,
            epsilon=epsilon,
            delta=DELTA,
            direction="maximize",
            secure_aggregation=PlainSum(),  # the sum is the same; SecAgg+ costs time only
            progress=lambda text: None,
        )
        chosen.append(vote.start(grid, grid.server_context()).params["candidate"])
    return chosen


def one_run(n: int, concentration: float | None, votes: int, rng: np.random.Generator) -> Any:
    parts = split(n, concentration, rng)
    SCORES[:] = [local_scores(part, rng) for part in parts]
    reached = federated_accuracy(parts, rng)
    result = {"Opt": float(reached.max()), "RandGuess": float(reached.mean())}
    for epsilon in EPSILONS:
        chosen = private_choices(n, epsilon, votes)
        result[f"{epsilon:g}"] = float(np.mean(reached[chosen]))
    chosen = [
        argmax(np.sum([ballot(s, K, maximize=True) for s in SCORES], axis=0)) for _ in range(votes)
    ]
    result["inf"] = float(np.mean(reached[chosen]))
    return result


def interval(values: list[float]) -> float:
    """Half the width of a 95 % interval of the mean, over independent runs."""
    spread = float(np.std(values, ddof=1)) / math.sqrt(len(values))
    return float(stats.t.ppf(0.975, len(values) - 1)) * spread


def study(quick: bool, seed: int) -> tuple[Any, dict[str, Any]]:
    logging.getLogger("optuna_dp").setLevel(logging.ERROR)
    sizes = [10, 25] if quick else [10, 25, 50, 100, 250]
    splits = [None, 0.5] if quick else [None, 30.0, 5.0, 0.5]
    runs, votes = (2, 3) if quick else (5, 10)
    names = ["iid" if c is None else f"Dirichlet({c:g})" for c in splits]
    figure = make_subplots(1, len(splits), shared_yaxes=True, subplot_titles=names)
    results: dict[str, Any] = {"runs": runs, "votes_per_run": votes, "k": K, "delta": DELTA}
    for column, (name, concentration) in enumerate(zip(names, splits, strict=True), start=1):
        for i, n in enumerate(sizes):
            rng = np.random.default_rng([seed, n, column])
            found = [one_run(n, concentration, votes, rng) for _ in range(runs)]
            mean = {key: float(np.mean([f[key] for f in found])) for key in found[0]}
            half = {key: interval([f[key] for f in found]) for key in found[0]}
            results[f"{name} n={n}"] = {
                key: [round(mean[key], 3), round(half[key], 3)] for key in mean
            }
            print(
                f"{name:14s} n {n:3d}  "
                + "  ".join(f"{key}: {mean[key]:.3f}±{half[key]:.3f}" for key in mean),
                flush=True,
            )
            keys = [key for key in mean if key not in ("Opt", "RandGuess")]
            for label, at, line in (
                (f"n = {n}", keys, {"color": COLOURS[i]}),
                (f"Opt, n = {n}", ["Opt"] * len(keys), {"color": COLOURS[i], "dash": "dot"}),
            ):
                figure.add_scatter(
                    x=keys,
                    y=[mean[key] for key in at],
                    error_y={"array": [half[key] for key in at]},
                    name=label,
                    line=line,
                    showlegend=column == 1,
                    row=1,
                    col=column,
                )
        figure.update_xaxes(title_text="epsilon", type="category", col=column)
    return figure, results


if __name__ == "__main__":
    main("dp_hype_digits", __doc__, study)
