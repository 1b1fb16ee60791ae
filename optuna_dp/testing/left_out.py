"""The records of a check without the last one."""

from __future__ import annotations

from typing import Any

import numpy as np

from optuna_dp.errors import InvalidArgumentError


def without_last(data: Any) -> Any:
    """Returns records without the last one, in the form that they have.

    Args:
        data: An array or tensor of records, or a tuple or list of some of equal length.

    Raises:
        InvalidArgumentError: If it is neither.
    """
    parts = list(data) if isinstance(data, tuple | list) else [data]
    arrays = [np.asarray(part) for part in parts]
    if not arrays or any(a.ndim == 0 for a in arrays):
        raise InvalidArgumentError("data", type(data).__name__, "it must be arrays of records")
    if len({len(a) for a in arrays}) > 1 or len(arrays[0]) < 2:
        raise InvalidArgumentError(
            "data", [len(a) for a in arrays], "there must be two records or more, as many in each"
        )
    if not isinstance(data, tuple | list):
        return data[:-1]
    return type(data)([part[:-1] for part in parts])
