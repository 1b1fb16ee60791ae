"""A softmax regression by DP-SGD in numpy, whose faults are arguments, and made-up records."""

from __future__ import annotations

import numpy as np

import optuna_dp as odp

SIZE, FEATURES, CLASSES = 300, 30, 3
NORM, RATE, STEPS, NOISE = 0.5, 0.1, 120, 1.5
TRAINING = odp.dp_sgd(noise_multiplier=NOISE, sample_rate=RATE, steps=STEPS)
EVENT = odp.compose(TRAINING, odp.scoring.score_event(8.0))


def records(size=SIZE, features=FEATURES, classes=CLASSES, seed=0):
    rng = np.random.default_rng(seed)
    centres = 0.3 * rng.normal(size=(classes, features))
    y = rng.integers(0, classes, size)
    return centres[y] + rng.normal(size=(size, features)), y


DATA = records()


def probabilities(weights, x):
    logits = x @ weights[1:] + weights[0]
    logits = np.exp(logits - logits.max(axis=1, keepdims=True))
    return logits / logits.sum(axis=1, keepdims=True)


def gradients(weights, x, y, fault):
    """One row for each record, the bias first, before clipping."""
    if fault == "BatchNorm" and len(x) > 1:
        x = (x - x.mean(axis=0)) / (x.std(axis=0) + 1e-5)
    error = probabilities(weights, x)
    error[np.arange(len(y)), y] -= 1
    ones = np.concatenate([np.ones((len(x), 1)), x], axis=1)
    return (ones[:, :, None] * error[:, None, :]).reshape(len(x), -1)


def clipped_sum(each, fault, norm=NORM):
    if fault == "clips the mean":
        mean = each.sum(axis=0) / (RATE * SIZE)
        return mean * min(1, norm / max(np.linalg.norm(mean), 1e-12)) * RATE * SIZE
    judged = (
        each[:, CLASSES:] if fault == "an unclipped layer" else each
    )  # the biases are left out
    factor = np.minimum(1, norm / np.maximum(np.linalg.norm(judged, axis=1, keepdims=True), 1e-12))
    scaled = each * factor
    if fault == "an unclipped layer":
        scaled[:, :CLASSES] = each[:, :CLASSES]
    return scaled.sum(axis=0)


def batches(rng, size, fault, rate, steps):
    order: list[int] = []
    for _ in range(steps):
        if fault == "shuffled epochs":
            if len(order) < rate * size:
                order = [*order, *rng.permutation(size)]
            chosen, order = order[: round(rate * size)], order[round(rate * size) :]
            yield np.array(chosen)
        else:
            yield np.flatnonzero(rng.random(size) < rate)


def losses(weights, x, y):
    return -np.log(probabilities(weights, x)[np.arange(len(y)), y] + 1e-12)


def train(canaries, data, *, fault="", lr=1.0, noise=NOISE, rate=RATE, steps=STEPS):
    """DP-SGD with canaries among its examples; returns the weights."""
    x, y = data
    rng = np.random.default_rng()
    noise_rng = np.random.default_rng(0) if fault == "default_rng(0)" else rng
    if fault == "half the noise":
        noise = noise / 2
    if fault == "statistics of private data":
        x = (x - x.mean(axis=0)) / (x.std(axis=0) + 1e-9)
    weights = np.zeros((x.shape[1] + 1, y.max() + 1))
    best, worse = np.inf, 0
    for step, batch in enumerate(batches(rng, len(x), fault, rate, steps)):
        each = gradients(weights, x[batch], y[batch], fault)
        each = canaries.examples(each, NORM)
        added = noise_rng.normal(0, noise * NORM, weights.size)
        if fault == "noise once per epoch" and step % 10:
            added = np.zeros(weights.size)
        noisy = canaries.observe(clipped_sum(each, fault) + added)
        weights = weights - lr / (rate * len(x)) * noisy.reshape(weights.shape)
        if fault == "early stopping":
            loss = float(losses(weights, np.asarray(x), y).mean())
            best, worse = min(best, loss), worse + (loss > best)
            if worse == 10:
                break
    return weights


class Plain:
    """In place of canaries where none are wanted."""

    def examples(self, each, norm):
        return each

    def observe(self, noisy):
        return noisy


def score(weights, data=DATA):
    right = probabilities(weights, np.asarray(data[0])).argmax(axis=1) == data[1]
    return odp.scoring.private_accuracy(right, size=SIZE, noise_multiplier=8.0)


def objective(trial, data, fault="", **settings):
    """Trains and scores; faults of the score are arguments as well."""
    lr = trial.suggest_float("lr", 1.0, 2.0, log=True)
    weights = train(Plain(), data, fault=fault, lr=lr, **settings)
    x, y = np.asarray(data[0]), data[1]
    exact = float(np.mean(probabilities(weights, x).argmax(axis=1) == y))
    if fault == "exact accuracy":
        return exact
    if fault == "a share in float32":
        return float(np.float32(exact))
    if fault == "a share in float16":
        return float(np.float16(exact))
    if fault == "exact log loss":
        return -float(losses(weights, x, y).mean())
    if fault == "noise in whole numbers":  # no fault
        count = round(len(y) * exact) + round(np.random.default_rng().normal(0, 8))
        return count / len(y)
    if fault == "an exact attribute":
        trial.set_user_attr("accuracy", exact)
    if fault == "exact reports":
        trial.report(exact, 1)
    return score(weights, data)
