"""Other data of the same shape, on which a private run must not fail, nor move further."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from optuna_dp.errors import InvalidArgumentError

_ENORMOUS = 1e30


def variants(data: Any) -> list[tuple[str, Any]]:
    """Returns made-up data with words that say what is odd about each.

    Args:
        data: An array or tensor of records, or a tuple or list of some of equal length.

    Raises:
        InvalidArgumentError: If it is neither.
    """
    arrays = _arrays(data)

    def changed(change: Callable[[Any], Any]) -> Any:
        return _like(data, [change(a.copy()) for a in arrays])

    return [
        ("one record is missing", changed(lambda a: a[:-1])),
        ("all records are alike", changed(lambda a: np.repeat(a[:1], len(a), axis=0))),
        ("one record has enormous values", changed(_with_enormous)),
        ("all values are zero", changed(np.zeros_like)),
    ]


def _with_enormous(array: Any) -> Any:
    if array.dtype.kind == "f":
        array[0] = _ENORMOUS
    return array


def records_in(data: Any) -> int:
    """Returns how many records there are."""
    return len(_arrays(data)[0])


def with_odd_record(data: Any, row: int, scale: float) -> Any:
    """Returns data in which one record is another: enormous values, and another label.

    Its gradient is far longer than any clipping norm, and all others stay as they are.

    Args:
        data: As for :func:`variants`.
        row: Of the record.
        scale: Of its values over the largest ones; of either sign.
    """
    arrays = [a.copy() for a in _arrays(data)]
    for number, array in enumerate(arrays):
        if array.dtype.kind == "f":
            largest = float(np.abs(array).max()) or 1.0
            array[row] = np.where(array[row] < 0, -1.0, 1.0) * scale * largest
        elif number:
            unequal_values = array[array != array[row]]
            array[row] = (
                unequal_values[0] if array.ndim == 1 and len(unequal_values) else array[row - 1]
            )
        else:
            array[row] = array.max() if scale > 0 else array.min()
    return _like(data, arrays)


def _arrays(data: Any) -> list[Any]:
    arrays = [np.asarray(part) for part in (data if isinstance(data, tuple | list) else (data,))]
    if not arrays or any(a.ndim == 0 or a.dtype == object for a in arrays):
        raise InvalidArgumentError("data", type(data).__name__, "it must be arrays of records")
    if len({len(a) for a in arrays}) > 1 or len(arrays[0]) < 2:
        raise InvalidArgumentError(
            "data", [len(a) for a in arrays], "there must be two records or more, as many in each"
        )
    return arrays


def _like(data: Any, arrays: list[Any]) -> Any:
    """Returns arrays in the form that the data has: of tensors, alone or several."""
    is_sequence = isinstance(data, tuple | list)
    torch = sys.modules.get("torch")
    parts = [
        torch.from_numpy(array) if torch is not None and isinstance(part, torch.Tensor) else array
        for part, array in zip(data if is_sequence else (data,), arrays, strict=True)
    ]
    return type(data)(parts) if is_sequence else parts[0]
