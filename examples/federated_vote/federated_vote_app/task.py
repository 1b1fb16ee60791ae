"""The learning task: softmax regression on a client's own digits."""

from __future__ import annotations

import functools

import numpy as np
from optuna.distributions import BaseDistribution, CategoricalDistribution
from sklearn.datasets import load_digits

SEARCH_SPACE: dict[str, BaseDistribution] = {
    "learning_rate": CategoricalDistribution([3.0, 1.0, 0.3, 0.1, 1e-3, 1e-5, 1e-7]),
    "momentum": CategoricalDistribution([0.0, 0.9]),
}
EPOCHS = 5
BATCH = 32


@functools.lru_cache(maxsize=1)
def _digits() -> tuple[np.ndarray, np.ndarray]:
    x, y = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(x))
    return np.hstack([x / 16.0, np.ones((len(x), 1))])[order], y[order]


def own_data(partition: int, partitions: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns the records that one client holds."""
    x, y = _digits()
    return x[partition::partitions], y[partition::partitions]


def local_loss(params: dict[str, float], x: np.ndarray, y: np.ndarray) -> float:
    """Trains on three quarters of the client's records; returns the error rate on the rest."""
    rng = np.random.default_rng()
    held_out = rng.random(len(x)) < 0.25
    train_x, train_y = x[~held_out], y[~held_out]
    weights = np.zeros((x.shape[1], 10))
    velocity = np.zeros_like(weights)
    for _ in range(EPOCHS):
        for batch in np.array_split(rng.permutation(len(train_x)), max(len(train_x) // BATCH, 1)):
            logits = train_x[batch] @ weights
            errors = np.exp(logits - logits.max(axis=1, keepdims=True))
            errors /= errors.sum(axis=1, keepdims=True)
            errors[np.arange(len(batch)), train_y[batch]] -= 1.0
            velocity = params["momentum"] * velocity - train_x[batch].T @ errors / len(batch)
            weights += params["learning_rate"] * velocity
    return float(np.mean(np.argmax(x[held_out] @ weights, axis=1) != y[held_out]))
