"""A training of a few noisy steps, to be checked, and what a check finds in an objective."""

from __future__ import annotations

import secrets

import numpy as np

import optuna_dp as odp

SIZE = 40
TRAINING = odp.dp_sgd(noise_multiplier=1.0, sample_rate=0.1, steps=5)
EVENT = odp.compose(TRAINING, odp.scoring.score_event(8.0))
X = np.random.default_rng(0).normal(size=(SIZE, 3))
Y = X[:, 0] > 0


def train(rate, data=(X, Y)):
    """A few noisy steps; the noise is fresh."""
    x, y = data
    rng = np.random.default_rng(secrets.randbits(128))
    weights = np.zeros(3)
    for _ in range(5):
        batch = rng.random(len(x)) < 0.1
        signs = np.where(y[batch], 1.0, -1.0)
        weights += rate * (np.tanh(signs @ x[batch]) + rng.normal(size=3))
    return weights


def score(weights, data=(X, Y)):
    return odp.scoring.private_accuracy(
        (data[0] @ weights > 0) == data[1], size=SIZE, noise_multiplier=8.0
    )


def names(objective, event=EVENT, **settings):
    report = odp.check_objective(objective, event, **settings)
    return [found.name for found in report.findings]
