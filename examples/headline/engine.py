"""DP-SGD in numpy, several models at once: softmax regression, or one hidden layer of tanh units.

Poisson-sampled batches, per-example clipping, Gaussian noise, sums divided by the expected size of
a batch; plain steps, momentum or Adam. Per-example gradients are outer products, so that their
norms have a closed form and no gradient of one example is ever written down.

The noise is numpy's, seeded by the operating system unless a generator is given.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float32]
Labels = npt.NDArray[np.int64]
Optimiser = Literal["sgd", "momentum", "adam"]
# One tensor per layer, (models, inputs, outputs). The constant input is the last.
Weights = list[Floats]

# The usual ones of momentum and of Adam.
MOMENTUM, BETAS, TINY = 0.9, (0.9, 0.999), 1e-8


@dataclass(frozen=True)
class Model:
    """What is trained.

    Attributes:
        classes: Number of classes.
        hidden: Number of tanh units; 0 for a softmax regression.
        optimiser: How steps are made of noisy gradients.
        spread: The hidden layer starts with normal weights of variance spread^2 / features.
    """

    classes: int
    hidden: int = 0
    optimiser: Optimiser = "sgd"
    spread: float = 1.0

    def start(self, models: int, features: int, rng: np.random.Generator) -> Weights:
        """Zeros; a hidden layer gets normal weights."""
        if not self.hidden:
            return [np.zeros((models, features, self.classes), dtype=np.float32)]
        first = rng.standard_normal((models, features, self.hidden), dtype=np.float32)
        last = np.zeros((models, self.hidden + 1, self.classes), dtype=np.float32)
        return [first * np.float32(self.spread / math.sqrt(features)), last]


def train(
    model: Model,
    x: Floats,
    y: Labels,
    rates: npt.ArrayLike,
    norms: npt.ArrayLike,
    *,
    noise_multiplier: npt.ArrayLike,
    sample_rate: float,
    steps: int,
    batch: float,
    decay: float = 1.0,
    shrinkage: float = 0.0,
    records: npt.NDArray[np.int64] | None = None,
    rng: np.random.Generator | None = None,
) -> Weights:
    """Trains one model per (learning rate, clipping norm), each with batches and noise of its own.

    Args:
        model: What is trained.
        x: Features with a constant last, (n, features).
        y: Labels, (n,).
        rates: Learning rates, (models,).
        norms: Clipping norms, (models,).
        noise_multiplier: Standard deviation of the noise in clipping norms; one, or (models,).
        sample_rate: Chance of a record to be in a batch.
        steps: Number of steps.
        batch: What sums are divided by.
        decay: The learning rate falls in a line to this share of itself.
        shrinkage: Weights lose this share of themselves per unit of learning rate and step.
        records: Which records a model learns from, (models, most), filled up with -1; None: all.
        rng: For experiments that are repeated; a new one by default.

    Returns:
        The weights after the last step.
    """
    rng = np.random.default_rng() if rng is None else rng
    clip = np.asarray(norms, dtype=np.float32)
    models = len(clip)
    weights = model.start(models, x.shape[1], rng)
    step = _Steps(model.optimiser, np.asarray(rates, dtype=np.float32)[:, None, None])
    noise = np.broadcast_to(np.asarray(noise_multiplier, dtype=np.float32), (models,))
    scale = (noise * clip)[:, None, None]
    one_hot = np.eye(model.classes, dtype=np.float32)[y]
    squares = np.einsum("nf,nf->n", x, x)
    counts = np.full(models, len(x)) if records is None else np.sum(records >= 0, axis=1)
    for taken in range(steps):
        index, used = _batches(rng, sample_rate, counts)
        if records is not None:
            index = np.take_along_axis(records, index, axis=1)
        totals = clipped_sums(weights, x[index], one_hot[index], squares[index], clip, used)
        for total in totals:
            if scale.any():
                total += scale * rng.standard_normal(total.shape, dtype=np.float32)
            total /= np.float32(batch)
        for total, layer in zip(totals, weights, strict=True):
            total += np.float32(shrinkage) * layer
        step(weights, totals, 1.0 - (1.0 - decay) * taken / steps)
    return weights


def predict(weights: Weights, x: Floats) -> Labels:
    """Predicted labels, (models, n)."""
    found: Labels = np.argmax(logits(weights, x), axis=2)
    return found


def logits(weights: Weights, x: Floats) -> Floats:
    """Outputs of the last layer, (models, n, classes); of one model without the first axis."""
    return _activations(weights, x)[1]


def accuracies(weights: Weights, x: Floats, y: Labels) -> npt.NDArray[np.float64]:
    """Shares of correct predictions, (models,); not private."""
    found: npt.NDArray[np.float64] = np.mean(predict(weights, x) == y, axis=1)
    return found


def one_of(weights: Weights, place: int) -> Weights:
    """One of several models."""
    return [layer[place : place + 1] for layer in weights]


def _batches(
    rng: np.random.Generator, rate: float, counts: npt.NDArray[np.int64]
) -> tuple[Labels, npt.NDArray[np.bool_]]:
    """Poisson samples of ``counts[m]`` records each: places, and which of them are real.

    The gaps between the members of a Poisson sample are geometric, so one draws as many numbers
    as there are members, not as there are records.
    """
    most = int(counts.max())
    guess = most * rate
    width = int(guess + 6.0 * math.sqrt(guess) + 6.0)
    places = np.cumsum(rng.geometric(rate, size=(len(counts), width)), axis=1) - 1
    while places[:, -1].min() < most:
        more = np.cumsum(rng.geometric(rate, size=(len(counts), width)), axis=1)
        places = np.concatenate([places, places[:, -1:] + more], axis=1)
    used = places < counts[:, None]
    longest = max(1, int(used.sum(axis=1).max()))
    used = used[:, :longest]
    return np.where(used, places[:, :longest], 0), used


def _activations(weights: Weights, features: Floats) -> tuple[Floats | None, Floats]:
    """Outputs of the tanh units with a constant last (None without), and the last layer's."""
    if len(weights) == 1:
        return None, features @ weights[0]
    units = np.tanh(features @ weights[0])
    inner = np.concatenate([units, np.ones_like(units[..., :1])], axis=-1)
    return inner, inner @ weights[1]


def clipped_sums(
    weights: Weights,
    features: Floats,
    targets: Floats,
    squares: Floats,
    clip: Floats,
    used: npt.NDArray[np.bool_],
) -> Weights:
    """Sums of the clipped gradients of every model's batch, a tensor per layer.

    The gradient of one example in a layer is the outer product of the layer's input and of the
    loss's derivative by the layer's output, and its squared norm is the product of theirs.
    """
    inner, top = _activations(weights, features)
    top -= top.max(axis=-1, keepdims=True)
    np.exp(top, out=top)
    top /= top.sum(axis=-1, keepdims=True)
    top -= targets
    layers = [(features, top)]
    total = squares * np.einsum("mbc,mbc->mb", top, top)
    if inner is not None:
        units = inner[..., :-1]
        back = (top @ weights[1][:, :-1].transpose(0, 2, 1)) * (1.0 - units * units)
        total = squares * np.einsum("mbh,mbh->mb", back, back)
        total += np.einsum("mbh,mbh->mb", inner, inner) * np.einsum("mbc,mbc->mb", top, top)
        layers = [(features, back), (inner, top)]
    share = np.minimum(1.0, clip[:, None] / np.sqrt(np.maximum(total, 1e-24))) * used
    for _, errors in layers:
        errors *= share[..., None].astype(np.float32)
    return [inputs.transpose(0, 2, 1) @ errors for inputs, errors in layers]


class _Steps:
    """Makes steps of gradients."""

    def __init__(self, optimiser: Optimiser, rates: Floats) -> None:
        self._optimiser = optimiser
        self._rates = rates
        self._first: Weights | None = None
        self._second: Weights | None = None
        self._taken = 0

    def __call__(self, weights: Weights, gradients: Weights, share: float = 1.0) -> None:
        """Moves the weights by ``share`` of a full step."""
        self._taken += 1
        rates = self._rates * np.float32(share)
        if self._optimiser == "sgd":
            for layer, gradient in zip(weights, gradients, strict=True):
                layer -= rates * gradient
            return
        if self._first is None or self._second is None:
            self._first = [np.zeros_like(layer) for layer in weights]
            self._second = [np.zeros_like(layer) for layer in weights]
        if self._optimiser == "momentum":
            for layer, gradient, moved in zip(weights, gradients, self._first, strict=True):
                moved *= MOMENTUM
                moved += gradient
                layer -= rates * moved
            return
        shrunk = [1.0 - beta**self._taken for beta in BETAS]
        parts = zip(weights, gradients, self._first, self._second, strict=True)
        for layer, gradient, mean, square in parts:
            mean += (1.0 - BETAS[0]) * (gradient - mean)
            square += (1.0 - BETAS[1]) * (gradient * gradient - square)
            layer -= rates * (mean / shrunk[0]) / (np.sqrt(square / shrunk[1]) + TINY)
