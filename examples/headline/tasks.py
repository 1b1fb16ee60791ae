"""Two data sets that ship with scikit-learn, split afresh for every repetition.

A record is a test, validation or training record by a draw of its own, whatever the others are.
The numbers that the accounting and the noise need are fixed beforehand from the size of the data
set: expected numbers of records, batch and steps.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float32]
Labels = npt.NDArray[np.int64]

NAMES = ("digits", "breast_cancer")
EPOCHS = 10
TEST_SHARE = VALIDATION_SHARE = 0.25
RECORDS_PER_PARTITION = 10
BATCH = 64


@dataclass(frozen=True)
class Size:
    """What is public about a data set: its size, and what follows from it.

    Attributes:
        train: Expected number of training records.
        valid: Expected number of validation records.
        batch: Expected size of a batch.
        classes: Number of classes.
    """

    train: int
    valid: int
    batch: int
    classes: int

    def sampling(self, everything: bool = False) -> tuple[float, int]:
        """Sampling rate and steps of ten epochs on the training (or on all private) records."""
        n = self.train + self.valid if everything else self.train
        return self.batch / n, math.ceil(EPOCHS * n / self.batch)

    @property
    def partitions(self) -> int:
        return round(self.train / RECORDS_PER_PARTITION)


@dataclass(frozen=True)
class Split:
    """Features with a constant last, and labels."""

    train: tuple[Floats, Labels]
    valid: tuple[Floats, Labels]
    test: tuple[Floats, Labels]

    @property
    def everything(self) -> tuple[Floats, Labels]:
        """Training and validation records."""
        return (
            np.concatenate([self.train[0], self.valid[0]]),
            np.concatenate([self.train[1], self.valid[1]]),
        )


@lru_cache(maxsize=2)
def load(name: str) -> tuple[Floats, Labels]:
    """All records of a data set: (n, features + 1) and (n,)."""
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


@lru_cache(maxsize=2)
def size_of(name: str) -> Size:
    x, y = load(name)
    private = len(x) * (1.0 - TEST_SHARE)
    return Size(
        train=round(private * (1.0 - VALIDATION_SHARE)),
        valid=round(private * VALIDATION_SHARE),
        batch=BATCH,
        classes=int(y.max()) + 1,
    )


def split(name: str, repetition: int) -> Split:
    """The split of one repetition, the same for all arms."""
    x, y = load(name)
    rng = np.random.default_rng([repetition, NAMES.index(name)])
    test = rng.random(len(x)) < TEST_SHARE
    valid = ~test & (rng.random(len(x)) < VALIDATION_SHARE)
    train = ~test & ~valid
    return Split((x[train], y[train]), (x[valid], y[valid]), (x[test], y[test]))
