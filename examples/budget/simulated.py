"""A budget study at high speed: pilots, then one run, for many splits of the digits at once.

For choosing settings, not for results: pilots are calibrated as if they were Gaussian mechanisms
(the last run is not), nothing goes through a study, and randomness is seeded. Splits have seeds of
their own, disjoint from those of ``examples/headline``.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import optuna

import optuna_dp as odp

sys.path.insert(0, str(Path(__file__).parents[1] / "headline"))

from engine import Model, Optimiser, predict, train
from tasks import load

Floats = npt.NDArray[np.float64]
Labels = npt.NDArray[np.int64]

DELTA, EPOCHS, TEST_SHARE, AT_ONCE = 1e-5, 10, 0.25, 320
SPACES = {
    "sgd": ((0.01, 10.0), (0.05, 5.0)),
    "momentum": ((0.001, 1.0), (0.05, 5.0)),
    "adam": ((1e-4, 1.0), (0.05, 5.0)),
}


@dataclass(frozen=True)
class Setting:
    """One way to spend a budget on the digits.

    Attributes:
        epsilon: In all, at delta 1e-5.
        ladder: Pilots on each rung; every rung takes an equal share of the pilots' budget.
        increase: Noise of the last run over that of a single one.
        length: Of a pilot, as a share of the last run's.
        score_share: What a score takes of its pilot's squared budget.
        hidden: Units of the hidden layer; 0 for a softmax regression.
        optimiser: How steps are made.
        proposer: Of the first rung: "random", or "tpe", random for its first half.
        rate_power: Pilots use the searched learning rate times r to this power, r being noise
            times root of steps of the last run over that of the pilot.
        length_power: The learning rate is also multiplied by the root of (steps of the last run
            over steps of the pilot) to this power.
        clip_power: As rate_power, for the clipping norm.
        batch: Expected size of a batch.
        only_rate: A clipping norm that is fixed; 0 if it is searched over.
    """

    epsilon: float = 1.0
    ladder: tuple[int, ...] = (16,)
    increase: float = 1.08
    length: float = 1.0
    score_share: float = 0.2
    hidden: int = 0
    optimiser: Optimiser = "sgd"
    proposer: str = "random"
    rate_power: float = 1.0
    length_power: float = 0.0
    clip_power: float = 0.0
    batch: int = 64
    only_rate: float = 0.0


def private_records(split: int) -> npt.NDArray[np.bool_]:
    """Which digits are private; the others are for the test."""
    count = len(load("digits")[1])
    drawn = np.random.default_rng([7_000_000, split]).random(count)
    return np.asarray(drawn >= TEST_SHARE)


def least(cost: Callable[[float], float], target: float, low: float, high: float) -> float:
    """The least argument, to 0.2 %, at which a falling cost is within the target."""
    while high / low > 1.002:
        middle = math.sqrt(low * high)
        low, high = (low, middle) if cost(middle) <= target else (middle, high)
    return high


@cache
def noise_of_one(epsilon: float, rate: float, steps: int) -> float:
    """Noise multiplier of one training for the whole budget."""

    def cost(noise: float) -> float:
        event = odp.dp_sgd(noise_multiplier=noise, sample_rate=rate, steps=steps)
        return odp.Guarantee(event).epsilon(DELTA)

    return least(cost, epsilon, 0.3, 200.0)


@cache
def left_for_pilots(epsilon: float, rate: float, steps: int, increase: float) -> float:
    """What the pilots may cost together, as mu of a Gaussian mechanism."""
    noise = increase * noise_of_one(epsilon, rate, steps)
    final = odp.dp_sgd(noise_multiplier=noise, sample_rate=rate, steps=steps)

    def cost(noise: float) -> float:
        return odp.Guarantee(odp.compose(final, odp.gaussian(noise))).epsilon(DELTA)

    return 1.0 / least(cost, epsilon, 0.2, 1000.0)


def noise_for_mu(mu: float, rate: float, steps: int) -> float:
    """Of a DP-SGD that is about as private as a Gaussian mechanism (central limit)."""
    return 1.0 / math.sqrt(math.log1p((mu / rate) ** 2 / steps))


def smoothed(points: Floats, scores: Floats) -> Floats:
    """Means of a Gaussian process at its own points; its settings by likelihood."""
    z = (scores - scores.mean()) / max(scores.std(), 1e-9)
    squares = ((points[:, None] - points[None]) ** 2).sum(axis=-1)
    best, found = -math.inf, z
    for length in (0.2, 0.35, 0.6, 1.0):
        kernel = np.exp(-squares / (2 * length**2))
        for noise in (0.02, 0.1, 0.3, 0.7):
            full = (1 - noise) * kernel + noise * np.eye(len(z))
            solved = np.linalg.solve(full, z)
            value = -0.5 * z @ solved - 0.5 * np.linalg.slogdet(full)[1]
            if value > best:
                best, found = value, (1 - noise) * kernel @ solved
    return found


class Experiment:
    """One setting on many splits at once."""

    def __init__(self, setting: Setting, splits: range, seed: int) -> None:
        self.setting = setting
        self.x, self.y = load("digits")
        self.rng = np.random.default_rng([seed, 11])
        self.private = [private_records(split) for split in splits]
        rows = [np.flatnonzero(mask) for mask in self.private]
        self.own = np.full((len(rows), max(map(len, rows))), -1)
        for i, row in enumerate(rows):
            self.own[i, : len(row)] = row
        self.n = round((1.0 - TEST_SHARE) * len(self.y))
        self.rate = setting.batch / self.n
        self.steps = math.ceil(EPOCHS * self.n / setting.batch)
        self.pilot_steps = max(1, round(setting.length * self.steps))
        self.final = setting.increase * noise_of_one(setting.epsilon, self.rate, self.steps)
        self.mu = left_for_pilots(setting.epsilon, self.rate, self.steps, setting.increase)
        self.seed = seed

    def predicted(self, points: Floats, split: Labels, noise: float, steps: int) -> Labels:
        """Trains at points of the unit square; predictions for all digits, (points, n)."""
        setting = self.setting
        longer = math.sqrt(self.steps / steps) ** setting.length_power
        ratio = self.final * math.sqrt(self.steps) / (noise * math.sqrt(steps))
        low, high = np.log(np.array(SPACES[setting.optimiser])).T
        values = np.exp(low + points * (high - low))
        if setting.only_rate:
            values[:, 1] = setting.only_rate
        found = []
        for at in np.array_split(np.arange(len(points)), math.ceil(len(points) / AT_ONCE)):
            weights = train(
                Model(10, setting.hidden, setting.optimiser),
                self.x,
                self.y,
                longer * ratio**setting.rate_power * values[at, 0],
                ratio**setting.clip_power * values[at, 1],
                noise_multiplier=noise,
                sample_rate=self.rate,
                steps=steps,
                batch=setting.batch,
                records=self.own[split[at]],
                rng=self.rng,
            )
            found.append(predict(weights, self.x))
        return np.concatenate(found)

    def scores(self, points: Floats, count: int) -> tuple[Floats, float]:
        """Noisy scores of a rung's pilots at points (splits, k, 2), and the pilots' noise."""
        mu = self.mu / math.sqrt(len(self.setting.ladder) * count)
        score_mu = mu * math.sqrt(self.setting.score_share)
        training_mu = mu * math.sqrt(1.0 - self.setting.score_share)
        noise = noise_for_mu(training_mu, self.rate, self.pilot_steps)
        splits, k, _ = points.shape
        split = np.repeat(np.arange(splits), k)
        right = self.predicted(points.reshape(-1, 2), split, noise, self.pilot_steps) == self.y
        share = [right[i, self.private[s]].sum() / self.n for i, s in enumerate(split)]
        noisy = share + self.rng.standard_normal(len(split)) / (2 * self.n * score_mu)
        return noisy.reshape(splits, k), noise

    def proposed(self, count: int) -> tuple[Floats, Floats, float]:
        """The first rung with TPE, which sees each score before it proposes the next point."""
        studies = [
            optuna.create_study(
                direction="maximize",
                sampler=optuna.samplers.TPESampler(
                    n_startup_trials=max(1, count // 2), seed=1000 * self.seed + i
                ),
            )
            for i in range(len(self.private))
        ]
        points, scores = np.empty((len(studies), count, 2)), np.empty((len(studies), count))
        for j in range(count):
            asked = [study.ask() for study in studies]
            points[:, j] = [[t.suggest_float(name, 0, 1) for name in "ab"] for t in asked]
            found, noise = self.scores(points[:, j : j + 1], count)
            scores[:, j] = found[:, 0]
            for study, trial, value in zip(studies, asked, scores[:, j], strict=True):
                study.tell(trial, value)
        return points, scores, noise

    def run(self) -> dict[str, Any]:
        """Test accuracies, (splits,), with the best score and with the best smoothed score."""
        first, *rest = self.setting.ladder
        splits = len(self.private)
        if self.setting.proposer == "tpe":
            points, scores, noise = self.proposed(first)
        else:
            points = self.rng.random((splits, first, 2))
            scores, noise = self.scores(points, first)
        level = np.stack([smoothed(p, s) for p, s in zip(points, scores, strict=True)])
        level *= scores.std(axis=1, keepdims=True)
        noises, judged = [noise], level
        for count in rest:
            kept = np.argsort(-scores, axis=1)[:, :count]
            points = np.take_along_axis(points, kept[..., None], axis=1)
            level = np.take_along_axis(level, kept, axis=1)
            scores, noise = self.scores(points, count)
            noises.append(noise)
            # What the first rung's model said counts for a little.
            judged = scores - scores.mean(axis=1, keepdims=True) + 0.3 * level
        result: dict[str, Any] = {"noises": noises, "final": self.final}
        every = np.arange(splits)
        for name, by in (("best", scores), ("model", judged)):
            chosen = points[every, np.argmax(by, axis=1)]
            right = self.predicted(chosen, every, self.final, self.steps) == self.y
            result[name] = [float(right[i, ~self.private[i]].mean()) for i in every]
        return result
