"""Records to score that are copies of those trained on, as a mask or an index makes them."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

_SAMPLE = 200  # Records to score that are looked for, evenly spaced.
_FEWEST = 20
# Of the sample: how many have to be the one and only copy of one trained record. Tables of few
# different rows have equal rows by chance, but hardly ever exactly one on either side.
_LARGEST_SHARE = 0.9


def are_copied(trained_array: Any, scored_array: Any) -> bool:
    """Returns whether almost all records to score are equal to one trained record each.

    Args:
        trained_array: The first part of the trained records, an array of numpy or PyTorch; the
            first axis is that of the records.
        scored_array: The first part of the records to score, as above.
    """
    trained_rows, scored_rows = _rows(trained_array), _rows(scored_array)
    if trained_rows is None or scored_rows is None or len(scored_rows) < _FEWEST:
        return False
    if trained_rows.shape[1] != scored_rows.shape[1] or trained_rows.dtype != scored_rows.dtype:
        return False
    places = np.unique(np.linspace(0, len(scored_rows) - 1, _SAMPLE).astype(np.int64))
    sample_rows = scored_rows[places]
    # One number of each record sorts out most: that of which the sample has most values.
    column = max(range(sample_rows.shape[1]), key=lambda i: np.unique(sample_rows[:, i]).size)
    counts = [_counts(rows, sample_rows, column) for rows in (trained_rows, scored_rows)]
    single_copies = sum(
        counts[0].get(row.tobytes(), 0) == 1 == counts[1][row.tobytes()] for row in sample_rows
    )
    return single_copies > _LARGEST_SHARE * len(sample_rows)


def _rows(array: Any) -> npt.NDArray[Any] | None:
    """Returns records as rows of numbers, without a copy; None if they are not in this memory."""
    try:
        values = np.asarray(array.detach() if hasattr(array, "detach") else array)
    except (RuntimeError, TypeError):  # On a GPU, or of a type that numpy does not have.
        return None
    if values.ndim == 0 or values.dtype.kind not in "biuf" or not values.size:
        return None
    return values.reshape(len(values), -1)


def _counts(
    rows: npt.NDArray[Any], sample_rows: npt.NDArray[Any], column: int
) -> dict[bytes, int]:
    """Returns how many rows are equal to a row of the sample, by their bytes."""
    counts: dict[bytes, int] = {}
    for index in np.flatnonzero(np.isin(rows[:, column], sample_rows[:, column])):
        row = rows[index].tobytes()
        counts[row] = counts.get(row, 0) + 1
    return counts
