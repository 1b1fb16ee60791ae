"""Measures semi-real landscapes: accuracy of real DP-SGD runs over 320 settings.

DP-HyPO's Setting E.1 (arXiv 2306.05734v2): 16 learning rates from 1e-4 to 10 on a logarithmic grid
times 20 clipping norms from 0.3 to 6, here for a softmax regression on data that ship with
scikit-learn, so that all of it can be run offline::

    python examples/dp_hypo/landscapes.py             # what is not in landscapes.npz yet
    python examples/dp_hypo/landscapes.py --quick     # one noise multiplier, one run per setting

Every run is DP-SGD proper: Poisson-sampled batches, per-example clipping, Gaussian noise, its own
randomness. Many settings are trained at once, as slices of one array. The file holds the number of
correct predictions on the held-out records, per run; it grows by one array per data set and noise
multiplier and the script resumes where it stopped. The measurement itself is not private.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

FILE = Path(__file__).with_name("landscapes.npz")
LEARNING_RATES = 10.0 ** (np.arange(-12, 4) / 3.0)
CLIPPING_NORMS = 0.3 * np.arange(1, 21)
NOISE_MULTIPLIERS = (0.5, 0.7, 1.0, 1.4, 2.0, 2.8, 4.0, 5.6, 8.0, 16.0, 32.0, 64.0, 128.0)
# Of shorter runs, for pilots that are cheaper and not only noisier.
SHORTER = (5.0, 2.5)
SHORTER_NOISE_MULTIPLIERS = (2.0, 4.0, 8.0, 16.0, 32.0, 64.0)
SEEDS = 5
BATCH, EPOCHS = 64, 10.0

Array = npt.NDArray[np.float32]


@dataclass(frozen=True)
class Task:
    """Records with a constant feature; the split does not look at them."""

    train_x: Array
    train_y: npt.NDArray[np.int64]
    valid_x: Array
    valid_y: npt.NDArray[np.int64]

    @property
    def sample_rate(self) -> float:
        return BATCH / len(self.train_x)

    def steps(self, epochs: float = EPOCHS) -> int:
        return int(np.ceil(epochs * len(self.train_x) / BATCH))


def load(name: str) -> Task:
    from sklearn import datasets

    if name == "digits":
        x, y = datasets.load_digits(return_X_y=True)
        x = x / 16.0
    else:
        x, y = datasets.load_breast_cancer(return_X_y=True)
        # Scaled by the data's own spread, which a private study would have to fix beforehand.
        x = np.clip((x - x.mean(axis=0)) / x.std(axis=0), -3.0, 3.0)
    x = np.hstack([x, np.ones((len(x), 1))]).astype(np.float32)
    held_out = np.random.default_rng(0).random(len(x)) < 0.25
    return Task(x[~held_out], y[~held_out], x[held_out], y[held_out])


def settings() -> tuple[Array, Array]:
    """Learning rate and clipping norm of each of the 320 settings, learning rates outermost."""
    rates, norms = np.meshgrid(LEARNING_RATES, CLIPPING_NORMS, indexing="ij")
    return rates.ravel().astype(np.float32), norms.ravel().astype(np.float32)


def train(
    task: Task,
    rates: Array,
    norms: Array,
    noise_multiplier: float,
    rng: np.random.Generator,
    epochs: float = EPOCHS,
) -> Array:
    """Trains one model per (rate, norm) by DP-SGD, each with batches and noise of its own.

    Returns:
        Weights, (models, features, classes).
    """
    n, features = task.train_x.shape
    classes = int(task.train_y.max()) + 1
    models = len(rates)
    weights = np.zeros((models, features, classes), dtype=np.float32)
    lengths = np.linalg.norm(task.train_x, axis=1)
    one_hot = np.eye(classes, dtype=np.float32)[task.train_y]
    step_size = (rates / BATCH)[:, None, None]
    scale = (noise_multiplier * norms)[:, None, None]
    for _ in range(task.steps(epochs)):
        # Poisson sampling: every record independently; rows are padded with weight zero.
        model, record = np.nonzero(rng.random((models, n), dtype=np.float32) < task.sample_rate)
        counts = np.bincount(model, minlength=models)
        place = np.arange(len(model)) - np.repeat(np.cumsum(counts) - counts, counts)
        index = np.zeros((models, int(counts.max())), dtype=np.int64)
        index[model, place] = record
        used = np.arange(index.shape[1]) < counts[:, None]
        x = task.train_x[index]
        logits = x @ weights
        errors = np.exp(logits - logits.max(axis=2, keepdims=True))
        errors /= errors.sum(axis=2, keepdims=True)
        errors -= one_hot[index]
        # One example's gradient is the outer product of its features and its errors.
        size = lengths[index] * np.linalg.norm(errors, axis=2)
        errors *= (np.minimum(1.0, norms[:, None] / np.maximum(size, 1e-12)) * used)[:, :, None]
        noise = rng.standard_normal(weights.shape, dtype=np.float32)
        weights -= step_size * (x.transpose(0, 2, 1) @ errors + scale * noise)
    return weights


def correct(task: Task, weights: Array) -> npt.NDArray[np.int64]:
    """Numbers of correct predictions on the held-out records, by model."""
    result: npt.NDArray[np.int64] = np.sum(
        np.argmax(task.valid_x @ weights, axis=2) == task.valid_y, axis=1
    )
    return result


def measure(
    task: Task, noise_multiplier: float, seed: int, epochs: float = EPOCHS
) -> npt.NDArray[np.int16]:
    """:func:`correct` of one run per setting; (320,)."""
    shorter = [] if epochs == EPOCHS else [round(1000 * epochs)]
    rng = np.random.default_rng([seed, round(1000 * noise_multiplier), *shorter])
    rates, norms = settings()
    found = [
        correct(task, train(task, rates[part], norms[part], noise_multiplier, rng, epochs))
        for part in np.array_split(np.arange(len(rates)), 8)
    ]
    return np.concatenate(found).astype(np.int16)


def key(name: str, noise_multiplier: float, epochs: float = EPOCHS) -> str:
    return f"{name} {noise_multiplier:g}" + ("" if epochs == EPOCHS else f" {epochs:g} epochs")


def measured_at() -> dict[float, tuple[float, ...]]:
    """The noise multipliers of the file, by epochs."""
    return {EPOCHS: NOISE_MULTIPLIERS, **dict.fromkeys(SHORTER, SHORTER_NOISE_MULTIPLIERS)}


def read() -> dict[str, npt.NDArray[np.int16]]:
    if not FILE.exists():
        return {}
    with np.load(FILE) as stored:
        return dict(stored)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a check, nothing is written")
    options = parser.parse_args()
    names = ("digits", "breast_cancer")
    if options.quick:
        accuracy = measure(load("breast_cancer"), 1.0, 0) / len(load("breast_cancer").valid_y)
        print(f"breast_cancer, noise 1: best {accuracy.max():.3f}, mean {accuracy.mean():.3f}")
        return
    stored = read()
    whole = [(e, m, name) for e, ms in measured_at().items() for m in ms for name in names]
    for epochs, noise, name in whole:
        if key(name, noise, epochs) in stored:
            continue
        start = time.perf_counter()
        task = load(name)
        runs = np.stack([measure(task, noise, seed, epochs) for seed in range(SEEDS)])
        stored[key(name, noise, epochs)] = runs
        np.savez_compressed(FILE, **stored)
        accuracy = runs.mean(axis=0) / len(task.valid_y)
        print(
            f"{key(name, noise, epochs)}: best {accuracy.max():.3f}, mean {accuracy.mean():.3f}, "
            f"{time.perf_counter() - start:.0f} s",
            flush=True,
        )


if __name__ == "__main__":
    main()
