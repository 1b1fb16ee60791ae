"""Accuracy over the noise of a weight, and over the rehearsal's size, on many small tasks.

    python run.py --minutes 50        # appends curves to curves.csv, in a fixed order
    python run.py --quick             # a few curves with two repetitions, to the screen
    python run.py --collapse          # the curves of the page's figure
    python run.py --one-run           # one training at the rule, on the headline's splits
    python tables.py                  # the page's numbers, from curves.csv

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
from rehearsed import rehearsed
from schema_tasks import NAMES, Task, load
from training import OPTIMISERS, Model, Optimiser, accuracies, train, with_constant

import optuna_dp as odp
from optuna_dp.planning.batch import noise_of_training

DELTA = 1e-5
# From a fiftieth to 2.6, by factors of 1.5.
NOISES = 0.02 * 1.5 ** np.arange(13)
CURVES = Path(__file__).with_name("curves.csv")
FIGURE = Path(__file__).with_name("figure.csv")
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

    def work(self) -> float:
        """Multiplications, about."""
        task = load(self.task)
        sizes = [task.x.shape[1], *self.model.widths, task.classes]
        weights = sum((a + 1) * b for a, b in itertools.pairwise(sizes))
        return 6.0 * weights * self.batch * self.steps * self.repetitions * len(NOISES)

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
        if batch <= task.records and setting.work() <= _MOST_WORK:
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


def collect(minutes: float, most_work: float) -> None:
    """Appends curves until the time is over, those that take more work than so much left out."""
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
        setting = draw(NAMES[number % len(NAMES)], rng)
        if setting.work() > most_work:
            continue
        rows = curve(setting, rng)
        with CURVES.open("a", newline="") as file:
            writer = csv.DictWriter(file, FIELDS)
            writer.writerows({"curve": number, **row} for row in rows)


def collapse() -> None:
    """Writes the figure's curves: one model, batch and length, all optimisers and epsilons."""
    with FIGURE.open("w", newline="") as file:
        writer = csv.DictWriter(file, FIELDS)
        writer.writeheader()
        for optimiser in OPTIMISERS:
            for epsilon in (1.0, 3.0, 8.0):
                setting = Setting("digits", Model(), optimiser, epsilon, 64, 211)
                rows = curve(setting, np.random.default_rng(int(epsilon)))
                writer.writerows({"curve": f"{optimiser} {epsilon:g}", **row} for row in rows)


def one_run(repetitions: int = 24) -> None:
    """One training at the rule, on the headline's splits: no pilots, no score."""
    print("| task | epsilon | batch, steps | noise of a weight | rehearsal | its rate |")
    print("|---|---|---|---|---|---|")
    for name, records, epsilons in (
        ("digits", 1348, (1.0, 3.0, 8.0)),
        ("breast_cancer", 427, (1.0, 3.0)),
        ("breast_cancer, [0, 1]", 427, (1.0, 3.0)),
    ):
        task, place = load(name), NAMES.index(name.split(",")[0])
        draws = [np.random.default_rng([r, place]).random(len(task.x)) for r in range(repetitions)]
        splits = [(np.flatnonzero(d >= 0.25), np.flatnonzero(d < 0.25)) for d in draws]
        inputs = with_constant(odp.made_up_inputs(*task.schema))
        for epsilon in epsilons:
            more = odp.batch_choices(epsilon=epsilon, records=records, epochs=10, work=4).favored
            usual = math.ceil(10 * records / 64)
            for batch, steps in ((64, usual), (more.batch_size, more.steps)):
                noise = noise_of_training(epsilon, DELTA, min(batch / records, 1.0), steps)
                public = {"noise_multiplier": noise, "steps": steps, "batch_size": batch}
                found = rehearsed(
                    lambda weights, x: x @ weights[0],
                    [np.zeros((task.x.shape[1] + 1, task.classes))],
                    inputs,
                    **public,
                )
                weights = train(
                    Model(),
                    task.x,
                    task.y,
                    [pair[0] for pair in splits],
                    task.classes,
                    optimiser="sgd",
                    rates=np.array([odp.learning_rate(**public), found]),
                    noise_multiplier=noise,
                    sample_rates=np.full(repetitions, min(batch / records, 1.0)),
                    batch=batch,
                    steps=steps,
                    rng=np.random.default_rng([8, place]),
                )
                hits = accuracies(Model(), weights, task.x, task.y, [pair[1] for pair in splits])
                means, errors = hits.mean(axis=0), hits.std(axis=0, ddof=1) / repetitions**0.5
                shown = " | ".join(
                    f"{100 * mean:.1f} ± {196 * error:.1f}"
                    for mean, error in zip(means, errors, strict=True)
                )
                row = f"{name} | {epsilon:g} | {batch}, {steps} | {shown}"
                print(f"| {row} | {found:.2g} |", flush=True)


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
    parser.add_argument("--most-work", type=float, default=_MOST_WORK)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--collapse", action="store_true")
    parser.add_argument("--one-run", action="store_true")
    given = parser.parse_args()
    if given.collapse:
        collapse()
    if given.one_run:
        one_run()
    if given.quick:
        quick()
    if given.minutes:
        collect(given.minutes, given.most_work)


if __name__ == "__main__":
    main()
