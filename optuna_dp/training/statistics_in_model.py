"""Numbers in a model that were computed from the records, as a layer that standardizes has them.

People put the mean and the deviation of their features into a buffer. No noise covers these
numbers, and they leave with the model.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from optuna_dp.core.arrays import FloatArray
from optuna_dp.errors import InvalidArgumentError
from optuna_dp.training.record_arrays import Array
from optuna_dp.training.records import ArrayRecords, Records

# A statistic in single precision differs from one in double precision by less, and the rounded
# constants that papers print by more.
_ALIKE = 2e-5
# Of a number that was written down, and of how many numbers they are counted.
_DIGITS, _LOOKED_AT = 4, 4096
# Of the records' axes besides the first: pixels, but not channels.
_AXES_OF_IMAGES = 4
_RECORDS_AT_A_TIME = 4096

# Which axes of an array are averaged over.
Axes = tuple[int, ...]


def refuse_statistics(model: nn.Module, records: Records) -> None:
    """Refuses a model that holds the mean or the deviation of the records.

    Args:
        model: The user's model.
        records: The training's records; those in arrays are looked at.

    Raises:
        InvalidArgumentError: If a number that is not trained is one of these.
    """
    arrays = records.first_arrays() if isinstance(records, ArrayRecords) else []
    arrays = [array for array in arrays if "complex" not in str(array.dtype)]
    averages = [(array, axes, size) for array in arrays for axes, size in _averages(array)]
    sizes = {size for _, _, size in averages}
    # Only what has the size of an average: a frozen model may be larger than the memory.
    fixed = {
        name: np.asarray(
            value if isinstance(value, np.ndarray) else value.detach().double().cpu(), float
        ).ravel()
        for name, value in _fixed(model)
        if math.prod(value.shape) in sizes
    }
    fixed = {name: numbers for name, numbers in fixed.items() if _are_computed(numbers)}
    for array, axes, size in averages:
        names = [name for name, numbers in fixed.items() if numbers.size == size]
        for word, statistic in _statistics(array, axes) if names else ():
            for name in names:
                if np.allclose(fixed[name], statistic, _ALIKE, 0.0):
                    raise InvalidArgumentError(
                        "model",
                        model,
                        problem=f"its {name!r} holds the {word} of the records, without noise, "
                        "and it leaves with the model",
                        fix="Say in which public range the numbers lie, odp.Schema(...), or let a "
                        "LayerNorm or a GroupNorm scale each record by itself.",
                    )


def _fixed(model: nn.Module) -> Iterator[tuple[str, Array]]:
    """Yields the numbers of a model that are not trained, with their names."""
    kept = [
        (f"{path}.{attribute}" if path else attribute, value)
        for path, part in model.named_modules()
        for attribute, value in vars(part).items()
    ]
    for name, value in (*model.named_buffers(), *model.named_parameters(), *kept):
        if isinstance(value, torch.Tensor):
            if value.is_floating_point() and not value.requires_grad:
                yield name, value
        elif isinstance(value, np.ndarray) and value.dtype.kind == "f":
            yield name, value


def _are_computed(numbers: FloatArray) -> bool:
    """Returns whether one of the numbers has more digits than people write."""
    if not np.isfinite(numbers).all():
        return False
    written = [float(f"{number:.{_DIGITS}g}") for number in numbers[:_LOOKED_AT]]
    return not np.allclose(numbers[:_LOOKED_AT], written, 1e-6, 0.0)


def _averages(array: Array) -> Iterator[tuple[Axes, int]]:
    """Yields over which axes people average such an array, and how many numbers remain."""
    axes_of_averages: list[Axes] = [(0,), tuple(range(array.ndim))]
    if array.ndim == _AXES_OF_IMAGES:
        axes_of_averages.append((0, 2, 3))
    for axes in axes_of_averages:
        yield axes, math.prod(n for axis, n in enumerate(array.shape) if axis not in axes)


def _statistics(array: Array, axes: Axes) -> Iterator[tuple[str, FloatArray]]:
    """Yields the mean and the deviations of an array over some axes, each with its name."""
    count = math.prod(array.shape[axis] for axis in axes)
    with np.errstate(all="ignore"):
        mean = sum(part.sum(axes, keepdims=True) for part in _parts(array)) / count
        yield "mean", mean.ravel()
        squares = sum(((part - mean) ** 2).sum(axes) for part in _parts(array))
        for divisor in (count, count - 1):
            variance = np.asarray(squares).ravel() / divisor
            yield "variance", variance
            yield "standard deviation", np.sqrt(variance)


def _parts(array: Array) -> Iterator[FloatArray]:
    """Yields some records at a time, in double precision."""
    for first in range(0, len(array), _RECORDS_AT_A_TIME):
        part: npt.NDArray[np.float64] | torch.Tensor
        part = array[first : first + _RECORDS_AT_A_TIME]
        if isinstance(part, torch.Tensor):
            part = part.detach().double().cpu().numpy()
        yield part.astype(np.float64, copy=False)
