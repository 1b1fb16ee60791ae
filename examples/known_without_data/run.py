"""Accuracy over the noise of a weight, and over the rehearsal's size, on many small tasks.

    python run.py --minutes 50        # appends curves to curves.csv, in a fixed order
    python run.py --quick             # a few curves with two repetitions, to the screen
    python run.py --tables            # the page's numbers, from curves.csv
    python run.py --digits            # one run at the rule, as in the headline

A curve is one task, model, optimiser, epsilon, batch and length, at fixed learning rates: those at
which the noise of a weight comes to each of NOISES. Curves are drawn at random from everything
that is in SPACE, a task after the other.
"""

from __future__ import annotations

import argparse
import csv
import itertools
import math
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
from tasks import NAMES, Task, load
from training import OPTIMISERS, Model, Optimiser, accuracies, train

import optuna_dp as odp
from optuna_dp.planning.batch import noise_of_training

DELTA = 1e-5
# From a fiftieth to 2.6, by factors of 1.5.
NOISES = 0.02 * 1.5 ** np.arange(13)
CURVES = Path(__file__).with_name("curves.csv")
SMALL = {
    "models": (
        Model(),
        Model((64,)),
        Model((32,), "relu"),
        Model((64, 64), "relu"),
        Model((32,) * 3, "tanh"),
        Model((32,) * 4, "relu", normalised=True),
    ),
    "epsilons": (0.3, 1.0, 3.0, 8.0),
    "batches": (32, 64, 256, None),
    "steps": (40, 100, 150, 300),
}
# Per epsilon of these the large task has as much signal as the small ones have of theirs.
LARGE = {
    "models": (Model(), Model((64,)), Model((32,), "relu"), Model((32, 32), "relu")),
    "epsilons": (0.1, 0.3, 1.0),
    "batches": (64, 256, 512),
    "steps": (100, 150, 300),
}
# Of multiplications of all repetitions and rates of one curve.
_MOST_WORK = 1.2e11
FIELDS = (
    *("curve", "task", "model", "optimiser", "epsilon", "batch", "steps", "noise_multiplier"),
    *("noise_per_weight", "learning_rate", "size", "size_on_data", "accuracy", "error"),
)


@dataclass(frozen=True)
class Setting:
    """What one curve is about."""

    task: str
    model: Model
    optimiser: Optimiser
    epsilon: float
    batch: int
    steps: int
    repetitions: int = 8

    def noise_multiplier(self) -> float:
        """Of a training that costs the whole epsilon."""
        rate = self.batch / load(self.task).records
        return noise_of_training(self.epsilon, DELTA, min(rate, 1.0), self.steps)

    def rate(self, noise_multiplier: float, noise_per_weight: float) -> float:
        tiny = 1e-6  # the rate is in proportion, and so small a one is not capped
        rate = odp.learning_rate(
            self.optimiser,
            noise_multiplier=noise_multiplier,
            steps=self.steps,
            batch_size=self.batch,
            noise_per_weight=tiny,
        )
        return rate * noise_per_weight / tiny


def draw(task_name: str, rng: np.random.Generator) -> Setting:
    """A setting of a task; at most so much work."""
    task = load(task_name)
    space = LARGE if task_name.startswith("flights") else SMALL
    while True:
        model = space["models"][rng.integers(len(space["models"]))]
        batch = space["batches"][rng.integers(len(space["batches"]))] or task.records
        setting = Setting(
            task_name,
            model,
            OPTIMISERS[rng.integers(len(OPTIMISERS))],
            float(space["epsilons"][rng.integers(len(space["epsilons"]))]),
            batch,
            int(space["steps"][rng.integers(len(space["steps"]))]),
            24 if task.records < 500 else 8 if task.records < 5000 else 4,
        )
        sizes = [task.x.shape[1], *model.widths, task.classes]
        weights = sum((a + 1) * b for a, b in itertools.pairwise(sizes))
        work = 6.0 * weights * batch * setting.steps * setting.repetitions * len(NOISES)
        if batch <= task.records and work <= _MOST_WORK:
            return setting


def curve(
    setting: Setting, rng: np.random.Generator, noises: npt.NDArray[np.float64] = NOISES
) -> list[dict[str, float | str]]:
    """One row per noise of a weight."""
    task = load(setting.task)
    multiplier = setting.noise_multiplier()
    rates = np.array([setting.rate(multiplier, c) for c in noises])
    splits = [task.split(rng) for _ in range(setting.repetitions)]
    learnt, tested = [pair[0] for pair in splits], [pair[1] for pair in splits]
    weights = train(
        setting.model,
        task.x,
        task.y,
        learnt,
        task.classes,
        optimiser=setting.optimiser,
        rates=rates,
        noise_multiplier=multiplier,
        sample_rates=np.full(len(splits), min(setting.batch / task.records, 1.0)),
        batch=setting.batch,
        steps=setting.steps,
        rng=rng,
    )
    found = accuracies(setting.model, weights, task.x, task.y, tested)
    made_up = odp.made_up_inputs(*task.schema, rows=256).astype(np.float32)
    own = task.x[rng.choice(len(task.x), min(256, len(task.x)), replace=False)]
    rows = []
    for place, c in enumerate(noises):
        rows.append(
            {
                "task": setting.task,
                "model": str(setting.model),
                "optimiser": setting.optimiser,
                "epsilon": setting.epsilon,
                "batch": setting.batch,
                "steps": setting.steps,
                "noise_multiplier": f"{multiplier:.5g}",
                "noise_per_weight": f"{c:.5g}",
                "learning_rate": f"{rates[place]:.4g}",
                "size": f"{size(setting.model, task, made_up, c, 1):.4g}",
                "size_on_data": f"{size(setting.model, task, own, c, 1):.4g}",
                "accuracy": f"{100 * found[:, place].mean():.3f}",
                "error": f"{100 * found[:, place].std(ddof=1) / len(splits) ** 0.5:.3f}",
            }
        )
    return rows


def size(
    model: Model, task: Task, inputs: npt.NDArray[np.float32], c: float, seed: int, draws: int = 8
) -> float:
    """What the rehearsal measures, from the end of a random walk of size c in every weight."""
    rng = np.random.default_rng(seed)
    squares = []
    for _ in range(draws):
        start = model.start(inputs.shape[1], task.classes, rng)
        end = [w + np.float32(c) * rng.standard_normal(w.shape, dtype=np.float32) for w in start]
        change = model.logits(end, inputs) - model.logits(start, inputs)
        squares.append((change.std(axis=1) ** 2).mean())
    return math.sqrt(float(np.mean(squares)))


def collect(minutes: float) -> None:
    """Appends curves until the time is over."""
    end = time.monotonic() + 60.0 * minutes
    known = set()
    if CURVES.exists():
        with CURVES.open() as file:
            known = {int(row["curve"]) for row in csv.DictReader(file)}
    else:
        CURVES.write_text(",".join(FIELDS) + "\n")
    number = -1
    while time.monotonic() < end:
        number += 1
        if number in known:
            continue
        rng = np.random.default_rng([2026, number])
        rows = curve(draw(NAMES[number % len(NAMES)], rng), rng)
        with CURVES.open("a", newline="") as file:
            writer = csv.DictWriter(file, FIELDS)
            writer.writerows({"curve": number, **row} for row in rows)


def quick() -> None:
    """A few curves with two repetitions."""
    for number, name in enumerate(("digits", "wine", "clouds 5 of 50")):
        for optimiser in ("sgd", "adam"):
            setting = Setting(name, Model(), optimiser, 1.0, 64, 100, repetitions=2)
            rows = curve(setting, np.random.default_rng(number))
            shown = " ".join(f"{float(row['accuracy']):5.1f}" for row in rows)
            print(f"{name:16} {optimiser:6} {shown}")
    print("noise of a weight:     ", " ".join(f"{c:5.2f}" for c in NOISES))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float)
    parser.add_argument("--quick", action="store_true")
    given = parser.parse_args()
    if given.quick:
        quick()
    if given.minutes:
        collect(given.minutes)


if __name__ == "__main__":
    main()
