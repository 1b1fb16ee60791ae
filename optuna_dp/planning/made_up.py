"""Inputs made up from a public schema, for the rehearsal (``rehearsal.py``)."""

from __future__ import annotations

from typing import Any

import numpy as np

from optuna_dp import validation
from optuna_dp.arrays import FloatArray
from optuna_dp.errors import InvalidArgumentError

_SEED = 0


def made_up_inputs(*columns: tuple[float, float] | int, rows: int = 256) -> FloatArray:
    """Returns inputs that look like the public description of the records, and like nothing else.

    The scale of the columns matters, for it is what the rehearsal depends on: a range that is ten
    times too wide makes the learning rate about ten times too small. A standardised feature is
    given as the range (-1.73, 1.73), which has standard deviation 1. Describe columns by what is
    public. Minima and maxima that were read off private records are not.

    Args:
        *columns: For each feature a range (low, high), drawn uniformly, or for each block of
            features that are zero except for a single one, its width, a whole number from 2 on.
        rows: Number of inputs, at least 1.

    Returns:
        (rows, features); the same each time.

    Raises:
        InvalidArgumentError: If a column is neither.

    Example:
        >>> import optuna_dp as odp
        >>> odp.made_up_inputs((0, 1), (-1.73, 1.73), 5, rows=100).shape
        (100, 7)
    """
    count = validation.whole("rows", rows, 1)
    if not columns:
        raise InvalidArgumentError("columns", columns, "there must be at least one")
    rng = np.random.default_rng(_SEED)
    parts = []
    for column in columns:
        if isinstance(column, tuple | list):
            low, high = _range(column)
            parts.append(rng.uniform(low, high, (count, 1)))
        else:
            width = validation.whole("columns", column, 2)
            parts.append(np.eye(width)[rng.integers(width, size=count)])
    return np.hstack(parts)


def made_up_images(
    *shape: int, low: float = 0.0, high: float = 1.0, rows: int = 256
) -> FloatArray:
    """Returns images of a public shape and range: squares of even brightness.

    Neighbouring pixels of a picture are alike, and convolutions answer to that; so a picture is
    about four squares wide and high, each uniform in the range.

    Args:
        *shape: Channels, height, width.
        low: Darkest value.
        high: Brightest value, above ``low``.
        rows: Number of images, at least 1.

    Returns:
        (rows, channels, height, width); the same each time.

    Raises:
        InvalidArgumentError: If an argument is not allowed.
    """
    count = validation.whole("rows", rows, 1)
    if len(shape) != 3:
        raise InvalidArgumentError("shape", shape, "it must be channels, height, width")
    channels, height, width = (validation.whole("shape", side, 1) for side in shape)
    bottom, top = _range((low, high))
    rng = np.random.default_rng(_SEED)
    squares = rng.uniform(bottom, top, (count, channels, 4, 4))
    down, across = np.arange(height) * 4 // height, np.arange(width) * 4 // width
    return np.asarray(squares[:, :, down][:, :, :, across])


def _range(given: Any) -> tuple[float, float]:
    if len(given) != 2:
        raise InvalidArgumentError("columns", given, "a range must be (low, high)")
    low, high = (validation.number("columns", value) for value in given)
    if not -np.inf < low < high < np.inf:
        raise InvalidArgumentError("columns", given, "a range must be (low, high) with low < high")
    return low, high
