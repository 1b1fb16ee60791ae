"""The cut of a diamond, of five, by nine numbers: judges what the twelve tasks chose.

Needs ``pip install --no-deps plotnine``, of which only a file is read. The defaults were written
down before any training: numbers with a hidden layer, and a quarter of the numbers, as in
``tasks/many.py``.
"""

import csv
from importlib.util import find_spec
from pathlib import Path

import numpy as np
from networks import BEYOND, STANDARD, Array, tables, trained
from task import Task, choices

import optuna_dp as odp

INSTALL = "The diamonds are in another package: pip install --no-deps plotnine"
CUTS = ("Fair", "Good", "Very Good", "Premium", "Ideal")
COLOURS = "DEFGHIJ"
CLARITIES = ("I1", "SI2", "SI1", "VS2", "VS1", "VVS2", "VVS1", "IF")
# Public ranges: carats, per cent, per cent, dollars, and millimetres.
RANGES = {
    "carat": (0.0, 2.0),
    "depth": (58.0, 66.0),
    "table": (52.0, 64.0),
    "price": (0.0, 12_000.0),
    "x": (3.5, 8.5),
    "y": (3.5, 8.5),
    "z": (2.0, 5.5),
}


def load() -> tuple[Array, Array]:
    """Numbers from -sqrt(3) to sqrt(3) by public ranges, the two grades among them; the cut."""
    found = find_spec("plotnine")
    if found is None or found.origin is None:
        raise FileNotFoundError(INSTALL)
    x, y = [], []
    with (Path(found.origin).parent / "data" / "diamonds.csv").open() as file:
        for row in csv.DictReader(file):
            shares = [
                min(max((float(row[name]) - low) / (high - low), 0.0), 1.0)
                for name, (low, high) in RANGES.items()
            ]
            shares.append(COLOURS.index(row["color"]) / (len(COLOURS) - 1))
            shares.append(CLARITIES.index(row["clarity"]) / (len(CLARITIES) - 1))
            x.append(shares)
            y.append(CUTS.index(row["cut"]))
    low, high = STANDARD
    return (low + (high - low) * np.array(x)).astype(np.float32), np.array(y)


def task() -> Task:
    x, y = load()
    transforms = tables(x.shape[1], 128)
    return Task(
        name="diamonds",
        x=x,
        y=y,
        space=choices(features=tuple(transforms), width=(0, 32)),
        good={"features": "raw", "width": 32},
        poor={"features": "a quarter", "width": 0},
        train=trained(transforms, lambda: odp.made_up_inputs(*[STANDARD] * x.shape[1]), 5),
        records=20_000,
        test=8_000,
        batch=512,
        steps=391,
        epsilons=(0.1, 0.3, 1.0),
        beyond=BEYOND,
    )
