"""Other data of the same shape, on which a private run must not fail either."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from optuna_dp.errors import InvalidArgumentError

_ENORMOUS = 1e30


def variants(data: Any) -> list[tuple[str, Any]]:
    """Returns made-up data with words that say what is odd about each.

    Args:
        data: An array of records, or a tuple or list of arrays of equal length.

    Raises:
        InvalidArgumentError: If it is neither.
    """
    several = isinstance(data, tuple | list)
    arrays = [np.asarray(part) for part in (data if several else (data,))]
    if not arrays or any(a.ndim == 0 or a.dtype == object for a in arrays):
        raise InvalidArgumentError("data", type(data).__name__, "it must be arrays of records")
    if len({len(a) for a in arrays}) > 1 or len(arrays[0]) < 2:
        raise InvalidArgumentError(
            "data", [len(a) for a in arrays], "there must be two records or more, as many in each"
        )

    def changed(change: Callable[[Any], Any]) -> Any:
        parts = [change(a.copy()) for a in arrays]
        return type(data)(parts) if several else parts[0]

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
