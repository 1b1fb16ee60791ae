"""DP-GIBO (arXiv 2502.06044) beside a noisy max, on hyperparameters of a kernel regression.

::

    python examples/compare/dp_gibo.py           # some minutes
    python examples/compare/dp_gibo.py --quick

DP-GIBO walks downhill: in each of 30 steps it evaluates the loss of every private record at a few
settings, makes a gradient of each record's losses by a Gaussian process, clips it, and adds
Gaussian noise to the mean. This follows a public program of that name; of the paper the abstract
was read. Two things are simpler here: the settings of a step are the place itself and one along
each axis, at the distance where the process knows the gradient best, and no loss is printed.

*What is private*: the 3,000 records that are scored. The 150 that are trained on are public for
both methods: DP-GIBO trains without noise. One record is replaced by another.

*The rival* spends the same privacy on one choice: as many settings drawn from the same box as
DP-GIBO evaluates, and the exponential mechanism (Gumbel noise) over their mean scores, each
record's score being ``1 - min(loss, 1)``. DP-GIBO starts in the middle of the box. It
needs a start at which losses change with the setting: on a plateau it finds no way down.

Simulation: numpy's noise, seeded. Nothing printed here is private.
"""

from __future__ import annotations

import argparse

import numpy as np

import optuna_dp as odp
from optuna_dp.core.arrays import FloatArray

FEATURES, INFORMATIVE = 10, 3
DIMENSION = FEATURES + 1
TRAIN, PRIVATE, TEST = 150, 3000, 3000
# Logarithms: a length for each feature, and what is added to the diagonal.
LOW = np.array([0.0] * FEATURES + [np.log(1e-3)])
HIGH = np.array([4.0] * FEATURES + [0.0])
STEPS, DELTA = 30, 1e-5
CLIPS, RATE = (0.05, 0.5), 1.0
_JITTER = 5e-6


class Task:
    """A regression of which 3 of 10 features matter; the search must find which."""

    def __init__(self, seed: int) -> None:
        rng = np.random.default_rng([1, seed])
        count = TRAIN + PRIVATE + TEST
        x = rng.normal(size=(count, FEATURES))
        z = x[:, rng.permutation(FEATURES)[:INFORMATIVE]]
        y = np.sin(2.0 * z[:, 0]) + z[:, 1] * z[:, 2] + 0.1 * rng.normal(size=count)
        y = (y - y[:TRAIN].mean()) / y[:TRAIN].std()
        ends = (TRAIN, TRAIN + PRIVATE)
        (self.x, self.private, self.test) = np.split(x, ends)
        (self.y, self.private_y, self.test_y) = np.split(y, ends)

    def losses(self, setting: FloatArray, *, test: bool = False) -> FloatArray:
        """Returns half the squared error of each record, shape (n,)."""
        x, y = (self.test, self.test_y) if test else (self.private, self.private_y)
        scale = np.exp(-setting[:FEATURES])
        kernel = _kernel(self.x * scale, self.x * scale) + np.exp(setting[-1]) * np.eye(TRAIN)
        predicted = _kernel(x * scale, self.x * scale) @ np.linalg.solve(kernel, self.y)
        return np.asarray(0.5 * (predicted - y) ** 2)


def _kernel(a: FloatArray, b: FloatArray) -> FloatArray:
    squares = (a**2).sum(axis=1)[:, None] + (b**2).sum(axis=1) - 2.0 * a @ b.T
    return np.asarray(np.exp(-0.5 * np.maximum(squares, 0.0)))


def places() -> tuple[FloatArray, FloatArray]:
    """Returns where a step evaluates, relative to the place, and the process's weights.

    The first of shape (d + 1, d). The gradient is expected to be weights @ losses, shape (d,).
    """
    best, found = np.inf, None
    for distance in np.geomspace(1e-3, 3.0, 60):
        at = np.vstack([np.zeros(DIMENSION), distance * np.eye(DIMENSION)])
        among = _kernel(at, at) + _JITTER * np.eye(len(at))
        to_gradient = at.T * _kernel(np.zeros((1, DIMENSION)), at)
        weights = np.linalg.solve(among, to_gradient.T).T
        variance = DIMENSION - float(np.sum(weights * to_gradient))
        if variance < best:
            best, found = variance, (at, weights)
    assert found is not None
    return found


def dp_gibo(task: Task, mu: float, clip: float, rng: np.random.Generator) -> FloatArray:
    """Returns the setting after all steps. mu-Gaussian-DP for the scored records."""
    at, weights = places()
    noise = 2.0 * clip * np.sqrt(STEPS) / (PRIVATE * mu)
    setting = (LOW + HIGH) / 2
    squares = np.zeros(DIMENSION)
    for _ in range(STEPS):
        losses = np.stack([task.losses(np.clip(setting + step, LOW, HIGH)) for step in at], axis=1)
        gradients = losses @ weights.T
        norms = np.linalg.norm(gradients, axis=1, keepdims=True)
        clipped = gradients * np.minimum(1.0, clip / np.maximum(norms, 1e-12))
        gradient = clipped.mean(axis=0) + noise * rng.normal(size=DIMENSION)
        squares += gradient**2
        setting = np.clip(setting - RATE * gradient / (np.sqrt(squares) + 1e-8), LOW, HIGH)
    return setting


def noisy_max(task: Task, epsilons: list[float], rng: np.random.Generator) -> list[FloatArray]:
    """Returns the setting that the exponential mechanism chooses, for each pure epsilon."""
    settings = rng.uniform(LOW, HIGH, size=(STEPS * (DIMENSION + 1), DIMENSION))
    scores = np.array([np.mean(1.0 - np.minimum(task.losses(s), 1.0)) for s in settings])
    noise = [2.0 / (PRIVATE * epsilon) * rng.gumbel(size=len(scores)) for epsilon in epsilons]
    return [settings[int(np.argmax(scores + one))] for one in noise]


def same_privacy(mu: float) -> tuple[float, float]:
    """Returns epsilon of mu-Gaussian-DP, and the pure epsilon of a choice that costs as much."""
    target = odp.Guarantee(odp.gaussian(noise_multiplier=1.0 / mu)).epsilon(DELTA)
    low, high = target, 20.0
    for _ in range(40):
        middle = (low + high) / 2
        cost = odp.Guarantee(odp.bounded_range(middle)).epsilon(DELTA)
        low, high = (middle, high) if cost <= target else (low, middle)
    return target, low


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="one task and one mu")
    quick = parser.parse_args().quick
    mus, seeds = ((0.5,), 1) if quick else ((0.1, 0.5), 3)
    found: dict[str, list[float]] = {}
    costs = {mu: same_privacy(mu) for mu in mus}
    for seed in range(seeds):
        task = Task(seed)
        chosen = noisy_max(
            task, [pure for _, pure in costs.values()], np.random.default_rng([2, seed])
        )
        for mu, setting in zip(mus, chosen, strict=True):
            name = f"mu {mu:g}, epsilon {costs[mu][0]:.2f}"
            found.setdefault(f"{name}: noisy max", []).append(
                float(task.losses(setting, test=True).mean())
            )
            for clip in CLIPS:
                walked = dp_gibo(task, mu, clip, np.random.default_rng([3, seed]))
                found.setdefault(f"{name}: DP-GIBO, clip {clip}", []).append(
                    float(task.losses(walked, test=True).mean())
                )
    for name, losses in found.items():
        each = " ".join(f"{loss:.3f}" for loss in losses)
        print(f"{name:45} test loss {np.mean(losses):.3f}  ({each})", flush=True)


if __name__ == "__main__":
    main()
