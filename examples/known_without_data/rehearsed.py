"""The rehearsal in numpy with which the stored results of these examples were made.

It is not the package's: it had bounds, which fit small dense models only, and another target for
models without a hidden layer. ``odp.rehearse_module`` and ``odp.train`` have neither.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from scipy.optimize import brentq

import optuna_dp as odp

SIZE, LINEAR_SIZE = 1.0, 1.7
LARGEST_STEP = 5.0
LEAST_NOISE, LARGEST_NOISE = 0.08, 0.6
_DRAWS, _TOLERANCE = 8, 0.05
_BETAS, _TINY, _MOMENTUM = (0.9, 0.999), 1e-8, 0.9

Array = Any


def rehearsed(
    logits: Callable[[list[Array], Array], Array],
    weights: Sequence[Array],
    inputs: Array,
    *,
    optimizer: Any = "sgd",
    noise_multiplier: float,
    steps: int,
    batch_size: float,
) -> float:
    """Returns the constant rate at which noise alone moves the logits by the target.

    Args:
        logits: From a list of weights and inputs, (inputs, features), to (inputs, classes).
        weights: As they are before the training.
        inputs: Made-up inputs.
        optimizer: "sgd", "momentum", "adam" or "adamw".
        noise_multiplier: Noise of one step over the clipping norm.
        steps: Number of steps.
        batch_size: Expected number of records in a batch.
    """
    start = [np.asarray(layer, dtype=float) for layer in weights]
    inputs = np.asarray(inputs, dtype=float)
    before = np.asarray(logits(start, inputs))
    size = LINEAR_SIZE if sum(layer.ndim > 1 for layer in start) <= 1 else SIZE
    deviation = noise_multiplier / batch_size
    is_sgd = optimizer in ("sgd", "momentum")
    largest = math.inf
    rate = LEAST_NOISE / math.sqrt(steps)
    if is_sgd:
        largest = LARGEST_STEP * (1.0 if optimizer == "sgd" else 1.0 - _MOMENTUM)
        rate = min(rate / deviation, largest)
    walks = [_walk(start, optimizer, rate, deviation, steps, draw) for draw in range(_DRAWS)]
    count = sum(layer.size for layer in start)
    squares = [sum(float(np.sum(change**2)) for change in moved) for moved in walks]
    noise = math.sqrt(np.mean(squares) / count)
    low, high = (min(rate * wanted / noise, largest) for wanted in (LEAST_NOISE, LARGEST_NOISE))

    def excess(log_rate: float) -> float:
        times = math.exp(log_rate) / rate
        changes = []
        for moved in walks:
            now = [old + times * change for old, change in zip(start, moved, strict=True)]
            change = np.asarray(logits(now, inputs)) - before
            changes.append(np.mean(np.var(change, axis=1)))
        found[log_rate] = math.log(math.sqrt(np.mean(changes)) / size)
        return found[log_rate]

    found: dict[float, float] = {}
    if excess(math.log(low)) >= 0.0:
        return low
    if excess(math.log(high)) <= 0.0:
        return high
    brentq(excess, math.log(low), math.log(high), xtol=_TOLERANCE)
    return math.exp(min(found, key=lambda log_rate: abs(found[log_rate])))


def noise_per_weight(optimizer: Any, rate: float, **public: Any) -> float:
    """Returns the noise of a weight that a constant rate makes."""
    tiny = 1e-6  # the rate is in proportion, and so small a one is not capped
    return tiny * rate / odp.learning_rate(optimizer, **public, noise_per_weight=tiny)


def _walk(
    start: list[Array], optimizer: str, rate: float, deviation: float, steps: int, draw: int
) -> list[Array]:
    """Returns by how much noise alone moves the weights."""
    rng = np.random.default_rng(draw)
    now = [layer.copy() for layer in start]
    first, second = ([np.zeros_like(layer) for layer in start] for _ in range(2))
    for t in range(steps):
        for layer, mean, square in zip(now, first, second, strict=True):
            gradient = rng.normal(0.0, deviation, layer.shape)
            if optimizer == "sgd":
                layer -= rate * gradient
            elif optimizer == "momentum":
                mean *= _MOMENTUM
                mean += gradient
                layer -= rate * mean
            else:
                mean += (1.0 - _BETAS[0]) * (gradient - mean)
                square += (1.0 - _BETAS[1]) * (gradient * gradient - square)
                root = np.sqrt(square / (1.0 - _BETAS[1] ** (t + 1))) + _TINY
                layer -= rate * mean / (1.0 - _BETAS[0] ** (t + 1)) / root
    return [new - old for new, old in zip(now, start, strict=True)]
