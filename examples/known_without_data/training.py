"""DP-SGD in numpy for networks of any depth: many repetitions and learning rates at once.

Poisson-sampled batches, per-example clipping, Gaussian noise, sums divided by the expected size of
a batch. Every layer is linear with a constant input, so one example's gradient in a layer is an
outer product, and its norm has a closed form. The learning rates of one repetition share batches
and noise: they are compared in pairs.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float32]
Labels = npt.NDArray[np.int64]
Optimiser = Literal["sgd", "momentum", "adam", "adamw"]
OPTIMISERS: tuple[Optimiser, ...] = ("sgd", "momentum", "adam", "adamw")
# What PyTorch takes for Adam, and what it advises for momentum.
MOMENTUM, BETAS, TINY, DECAY = 0.9, (0.9, 0.999), 1e-8, 0.01


@dataclass(frozen=True)
class Model:
    """A network.

    Attributes:
        widths: Units of the hidden layers; () for a softmax regression.
        unit: "tanh" or "relu".
        normalised: Whether every hidden layer is normalised over its units (LayerNorm without
            weights) before its non-linearity.
    """

    widths: tuple[int, ...] = ()
    unit: str = "tanh"
    normalised: bool = False

    def __str__(self) -> str:
        if not self.widths:
            return "softmax"
        norm = " LayerNorm" if self.normalised else ""
        return f"{len(self.widths)}x{self.widths[0]} {self.unit}{norm}"

    def start(self, features: int, classes: int, rng: np.random.Generator) -> list[Floats]:
        """Zeros for a softmax regression; PyTorch's default for a network, the bias last."""
        if not self.widths:
            return [np.zeros((features + 1, classes), dtype=np.float32)]
        layers = []
        sizes = [features, *self.widths, classes]
        for inputs, outputs in itertools.pairwise(sizes):
            reach = 1.0 / math.sqrt(inputs)
            layers.append(rng.uniform(-reach, reach, (inputs + 1, outputs)).astype(np.float32))
        return layers

    def logits(self, weights: list[Floats], x: Floats) -> Floats:
        """Outputs for inputs without the constant, (..., n, classes)."""
        return self.forward(weights, x)[1]

    def forward(self, weights: list[Floats], x: Floats) -> tuple[list[tuple], Floats]:
        """What the way back needs of each layer, and the outputs."""
        kept: list[tuple] = []
        below = with_constant(x)
        for layer in weights[:-1]:
            z = below @ layer
            spread = None
            if self.normalised:
                z = z - z.mean(axis=-1, keepdims=True)
                spread = np.sqrt((z * z).mean(axis=-1, keepdims=True) + 1e-5)
                z = z / spread
            out = np.tanh(z) if self.unit == "tanh" else np.maximum(z, 0.0)
            kept.append((below, z, spread, out))
            below = with_constant(out)
        kept.append((below, None, None, None))
        return kept, below @ weights[-1]

    def errors(self, weights: list[Floats], kept: list[tuple], top: Floats) -> list[Floats]:
        """Derivatives of the loss by each layer's output, from the topmost one's."""
        found = [top]
        for place in range(len(weights) - 2, -1, -1):
            _, z, spread, out = kept[place]
            back = found[0] @ np.swapaxes(weights[place + 1][..., :-1, :], -1, -2)
            back = back * (1.0 - out * out) if self.unit == "tanh" else back * (out > 0.0)
            if spread is not None:
                along = (back * z).mean(axis=-1, keepdims=True)
                back = (back - back.mean(axis=-1, keepdims=True) - z * along) / spread
            found.insert(0, back)
        return found


def with_constant(x: Floats) -> Floats:
    """Inputs and a constant last."""
    return np.concatenate([x, np.ones_like(x[..., :1])], axis=-1)


def train(
    model: Model,
    x: Floats,
    y: Labels,
    members: list[npt.NDArray[np.intp]],
    classes: int,
    *,
    optimiser: Optimiser,
    rates: npt.NDArray[np.float64],
    noise_multiplier: float,
    sample_rates: npt.NDArray[np.float64],
    batch: float,
    steps: int,
    clipping_norm: float = 1.0,
    kept: float = 1.0,
    rng: np.random.Generator,
) -> list[Floats]:
    """Returns weights (repetitions, rates, inputs, outputs) of each layer.

    Args:
        model: What is trained.
        x: Features, (n, features).
        y: Labels, (n,).
        members: For each repetition, the records that are trained on.
        classes: Number of classes.
        optimiser: How steps are made of noisy gradients.
        rates: Learning rates.
        noise_multiplier: Over the clipping norm.
        sample_rates: Chance of a record to be in a batch, one a repetition.
        batch: What sums are divided by.
        steps: Number of steps.
        clipping_norm: Of one example's gradient.
        kept: What every step leaves of the weights before it; less than 1 with weight decay.
        rng: Source of starts, batches and noise.
    """
    one_hot = np.eye(classes, dtype=np.float32)
    starts = [model.start(x.shape[1], classes, rng) for _ in members]
    weights = [
        np.repeat(np.stack(parts)[:, None], len(rates), axis=1)
        for parts in zip(*starts, strict=True)
    ]
    step = _Steps(optimiser, weights, np.asarray(rates, dtype=np.float32))
    for _ in range(steps):
        if kept < 1.0:
            for layer in weights:
                layer *= np.float32(kept)
        drawn = [
            own[rng.random(len(own)) < rate]
            for own, rate in zip(members, sample_rates, strict=True)
        ]
        most = max(1, *(len(rows) for rows in drawn))
        index = np.zeros((len(drawn), most), dtype=np.intp)
        used = np.zeros((len(drawn), 1, most), dtype=np.float32)
        for place, rows in enumerate(drawn):
            index[place, : len(rows)] = rows
            used[place, 0, : len(rows)] = 1.0
        inputs, top = model.forward(weights, x[index][:, None])
        top -= top.max(axis=-1, keepdims=True)
        np.exp(top, out=top)
        top /= top.sum(axis=-1, keepdims=True)
        top -= one_hot[y[index]][:, None]
        errors = model.errors(weights, inputs, top)
        squares = sum(
            np.einsum("...i,...i->...", below[0], below[0]) * np.einsum("...i,...i->...", e, e)
            for below, e in zip(inputs, errors, strict=True)
        )
        share = used * np.minimum(1.0, clipping_norm / np.sqrt(np.maximum(squares, 1e-20)))
        gradients = []
        for below, e in zip(inputs, errors, strict=True):
            total = np.swapaxes(below[0], -1, -2) @ (e * share[..., None])
            shape = (total.shape[0], 1, *total.shape[2:])
            noise = rng.standard_normal(shape, dtype=np.float32)
            gradients.append(
                (total + np.float32(noise_multiplier * clipping_norm) * noise) / batch
            )
        step(gradients)
    return weights


def accuracies(
    model: Model, weights: list[Floats], x: Floats, y: Labels, members: list[npt.NDArray[np.intp]]
) -> npt.NDArray[np.float64]:
    """Shares of correct predictions on each repetition's test records, (repetitions, rates)."""
    found = []
    for place, rows in enumerate(members):
        own = [layer[place] for layer in weights]
        hits = np.argmax(model.logits(own, x[rows]), axis=-1) == y[rows]
        found.append(hits.mean(axis=-1))
    return np.array(found)


class _Steps:
    """Makes steps of gradients, as PyTorch's optimisers do."""

    def __init__(self, optimiser: Optimiser, weights: list[Floats], rates: Floats) -> None:
        self._optimiser, self._weights = optimiser, weights
        self._rates = rates[None, :, None, None]
        self._first = [np.zeros_like(layer) for layer in weights]
        self._second = [np.zeros_like(layer) for layer in weights]
        self._taken = 0

    def __call__(self, gradients: list[Floats]) -> None:
        self._taken += 1
        parts = zip(self._weights, gradients, self._first, self._second, strict=True)
        for layer, gradient, mean, square in parts:
            if self._optimiser == "sgd":
                layer -= self._rates * gradient
            elif self._optimiser == "momentum":
                mean *= MOMENTUM
                mean += gradient
                layer -= self._rates * mean
            else:
                if self._optimiser == "adamw":
                    layer *= 1.0 - DECAY * self._rates
                mean += (1.0 - BETAS[0]) * (gradient - mean)
                square += (1.0 - BETAS[1]) * (gradient * gradient - square)
                shrunk = [1.0 - beta**self._taken for beta in BETAS]
                layer -= (
                    self._rates
                    * (mean / np.float32(shrunk[0]))
                    / (np.sqrt(square / np.float32(shrunk[1])) + TINY)
                )
