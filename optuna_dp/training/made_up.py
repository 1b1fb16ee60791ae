"""Inputs made up from what is public about the records: their schema."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from optuna_dp.core import validation
from optuna_dp.core.arrays import FloatArray
from optuna_dp.errors import InvalidArgumentError

_ROWS = 256


def made_up_inputs(*columns: tuple[float, float] | int, rows: int = _ROWS) -> FloatArray:
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
        raise InvalidArgumentError("columns", columns, allowed="there must be at least one")
    rng = np.random.default_rng(0)
    parts = []
    for column in columns:
        if isinstance(column, tuple | list):
            low, high = _range_of(column)
            parts.append(rng.uniform(low, high, (count, 1)))
        else:
            width = validation.whole("columns", column, 2)
            parts.append(np.eye(width)[rng.integers(width, size=count)])
    return np.hstack(parts)


def made_up_images(
    *shape: int, low: float = 0.0, high: float = 1.0, rows: int = _ROWS
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
        raise InvalidArgumentError("shape", shape, allowed="it must be channels, height, width")
    channels, height, width = (validation.whole("shape", side, 1) for side in shape)
    bottom, top = _range_of((low, high))
    rng = np.random.default_rng(0)
    squares = rng.uniform(bottom, top, (count, channels, 4, 4))
    row_indices, column_indices = np.arange(height) * 4 // height, np.arange(width) * 4 // width
    return np.asarray(squares[:, :, row_indices][:, :, :, column_indices])


def made_up_tokens(vocabulary: int, length: int, *, rows: int = 32) -> npt.NDArray[np.int64]:
    """Returns texts of a public length: token ids, each equally likely.

    Args:
        vocabulary: How many tokens there are, at least 2: the width of the model's embedding.
        length: Tokens in a text, at least 1.
        rows: Number of texts, at least 1.

    Returns:
        (rows, length), whole numbers below ``vocabulary``; the same each time.

    Raises:
        InvalidArgumentError: If an argument is not allowed.

    Example:
        >>> import optuna_dp as odp
        >>> odp.made_up_tokens(50257, 64).shape
        (32, 64)
    """
    tokens = validation.whole("vocabulary", vocabulary, 2)
    shape = (validation.whole("rows", rows, 1), validation.whole("length", length, 1))
    return np.random.default_rng(0).integers(tokens, size=shape)


def features_of_order_one(*shape: int) -> FloatArray:
    """Returns made-up features between -1 and 1, for models that are told no schema.

    Args:
        *shape: Of one input.

    Returns:
        (256, *shape).
    """
    return np.random.default_rng(0).uniform(-1.0, 1.0, (_ROWS, *shape))


def _range_of(bounds: Sequence[float]) -> tuple[float, float]:
    if len(bounds) != 2:
        raise InvalidArgumentError("columns", bounds, allowed="a range must be (low, high)")
    low, high = (validation.number("columns", value) for value in bounds)
    if not -np.inf < low < high < np.inf:
        raise InvalidArgumentError(
            "columns", bounds, allowed="a range must be (low, high) with low < high"
        )
    return low, high
