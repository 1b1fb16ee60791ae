"""Clients with records of a data set, and the training of all 100 candidates of the paper.

A softmax regression stands for the paper's networks: small enough to be trained a hundred times by
every one of 250 clients, and its best learning rates are as rare among the candidates.
"""

from __future__ import annotations

import itertools

import numpy as np
from sklearn.datasets import load_breast_cancer, load_digits

# The three largest are scaled to this model (0.5, 0.1, 0.05 in the paper); the others are as bad.
RATES = [2.0, 0.5, 0.2, 5e-4, 1e-4, 1e-6, 5e-7, 1e-7, 5e-8, 1e-8]
DECAYS = [0.0, 0.1, 0.25, 0.99, 1.0]  # factor per epoch of one local training
MOMENTA = [0.0, 0.9]
CANDIDATES = list(itertools.product(RATES, DECAYS, MOMENTA))
LOCAL_EPOCHS, ROUNDS, EPOCHS_PER_ROUND, BATCH = 10, 5, 5, 32


class DataSet:
    """Records and labels, a fifth of them for testing.

    Args:
        name: ``"digits"`` or ``"breast_cancer"``, of scikit-learn.
    """

    def __init__(self, name: str) -> None:
        loader = {"digits": load_digits, "breast_cancer": load_breast_cancer}[name]
        x, self.y = loader(return_X_y=True)
        x = x / 16.0 if name == "digits" else (x - x.mean(axis=0)) / x.std(axis=0)
        self.x = np.hstack([x, np.ones((len(x), 1))]).astype(np.float32)
        self.classes = int(self.y.max()) + 1
        self.test = np.random.default_rng(0).random(len(x)) < 0.2

    def split(
        self, n: int, concentration: float | None, rng: np.random.Generator
    ) -> list[np.ndarray]:
        """Returns each client's training records: equal parts, or Dirichlet shares of labels."""
        train = rng.permutation(np.flatnonzero(~self.test))
        if concentration is None:
            return np.array_split(train, n)
        owners = np.empty(len(train), dtype=int)
        for label in range(self.classes):
            mine = self.y[train] == label
            shares = rng.dirichlet(np.full(n, concentration))
            owners[mine] = rng.choice(n, mine.sum(), p=shares)
        return [train[owners == client] for client in range(n)]

    def descend(
        self, weights: np.ndarray, records: np.ndarray, epochs: int, rng: np.random.Generator
    ) -> None:
        """Trains softmax regressions of all candidates at once on some records, in place."""
        rate, decay, momentum = (
            np.array(c, dtype=np.float32)[:, None, None] for c in zip(*CANDIDATES, strict=True)
        )
        velocity = np.zeros_like(weights)
        one_hot = np.eye(self.classes, dtype=np.float32)[self.y]
        for epoch in range(epochs):
            step = rate * decay**epoch  # 0 ** 0 is 1: decay 0 trains for one epoch
            parts = max(len(records) // BATCH, 1)
            for batch in np.array_split(rng.permutation(records), parts):
                logits = self.x[batch] @ weights
                errors = np.exp(logits - logits.max(axis=2, keepdims=True))
                errors /= errors.sum(axis=2, keepdims=True)
                errors -= one_hot[batch]
                velocity *= momentum
                velocity -= (self.x[batch].T @ errors) / np.float32(len(batch))
                weights += step * velocity

    def accuracy(self, weights: np.ndarray, records: np.ndarray) -> np.ndarray:
        return np.mean(np.argmax(self.x[records] @ weights, axis=2) == self.y[records], axis=1)

    def start(self) -> np.ndarray:
        """Random weights, as in a network: from zero the smallest step already classifies well,
        and the paper's tiny learning rates would not be bad."""
        shape = (self.x.shape[1], self.classes)
        weights = np.random.default_rng(1).normal(0.0, 0.3, shape).astype(np.float32)
        return np.repeat(weights[None], len(CANDIDATES), axis=0)

    def local_scores(self, records: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """Accuracy of every candidate on a third of a client's records, trained on the others."""
        if len(records) < 3:
            return np.zeros(len(CANDIDATES))  # nothing to say: every candidate ties
        held_out = max(len(records) // 3, 1)
        weights = self.start()
        self.descend(weights, records[held_out:], LOCAL_EPOCHS, rng)
        return self.accuracy(weights, records[:held_out])

    def federated_accuracy(self, parts: list[np.ndarray], rng: np.random.Generator) -> np.ndarray:
        """Test accuracy of every candidate after FedAvg (arXiv 1602.05629)."""
        weights = self.start()
        total = sum(len(part) for part in parts)
        for _ in range(ROUNDS):
            average = np.zeros_like(weights)
            for part in parts:
                if len(part):
                    local = weights.copy()
                    self.descend(local, part, EPOCHS_PER_ROUND, rng)
                    average += np.float32(len(part) / total) * local
            weights = average
        return self.accuracy(weights, np.flatnonzero(self.test))
