"""Numbers in a model that were computed from the records, as a layer that standardizes has them.

People put the mean and the deviation of their features into a buffer. No noise covers these
numbers, and they leave with the model.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from optuna_dp.errors import InvalidArgumentError
from optuna_dp.training.records import ArrayRecords, Records

# A statistic in single precision differs from one in double precision by less, and the rounded
# constants that papers print by more.
_ALIKE = 2e-5
# Of a number that was written down, and of how many numbers they are counted.
_DIGITS, _LOOKED_AT = 4, 4096
# Of the records' axes besides the first: pixels, but not channels.
_AXES_OF_IMAGES = 4


def refuse_statistics(model: nn.Module, records: Records) -> None:
    """Refuses a model that holds the mean or the deviation of the records.

    Args:
        model: The user's model.
        records: The training's records; those in arrays are looked at.

    Raises:
        InvalidArgumentError: If a number that is not trained is one of these.
    """
    fixed = {
        name: numbers
        for name, tensor in (*model.named_buffers(), *model.named_parameters())
        if tensor.is_floating_point() and not tensor.requires_grad
        if _is_computed(numbers := tensor.detach().double().cpu().numpy().ravel())
    }
    if not fixed:
        return
    sizes = {numbers.size for numbers in fixed.values()}
    for word, statistic in _statistics(records, sizes):
        for name, numbers in fixed.items():
            if numbers.size == statistic.size and np.allclose(numbers, statistic, _ALIKE, 0.0):
                raise InvalidArgumentError(
                    "model",
                    model,
                    problem=f"its {name!r} holds the {word} of the records, without noise, and it "
                    "leaves with the model",
                    fix="Say in which public range the numbers lie, odp.Schema(...), or let a "
                    "LayerNorm or a GroupNorm scale each record by itself.",
                )


def _is_computed(numbers: npt.NDArray[np.float64]) -> bool:
    """Returns whether one of the numbers has more digits than people write."""
    if not np.isfinite(numbers).all():
        return False
    written = [float(f"{number:.{_DIGITS}g}") for number in numbers[:_LOOKED_AT]]
    return not np.allclose(numbers[:_LOOKED_AT], written, 1e-6, 0.0)


def _statistics(
    records: Records, sizes: set[int]
) -> Iterator[tuple[str, npt.NDArray[np.float64]]]:
    """Yields statistics of the records that have one of some sizes, each with its name."""
    for array in records.first_arrays() if isinstance(records, ArrayRecords) else ():
        values = array.detach().cpu().numpy() if isinstance(array, torch.Tensor) else array
        if values.dtype.kind not in "fiub":
            continue
        axes: list[tuple[int, ...]] = [(0,), tuple(range(values.ndim))]
        if values.ndim == _AXES_OF_IMAGES:
            axes.append((0, 2, 3))
        for over in axes:
            kept = [length for axis, length in enumerate(values.shape) if axis not in over]
            if int(np.prod(kept)) in sizes:
                with np.errstate(all="ignore"):
                    yield "mean", np.mean(values, over, dtype=np.float64).ravel()
                    for ddof in (0, 1):
                        deviation = np.std(values, over, dtype=np.float64, ddof=ddof).ravel()
                        yield "standard deviation", deviation
                        yield "variance", deviation**2
