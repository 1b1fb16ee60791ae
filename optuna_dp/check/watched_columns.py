"""Columns that a schema describes wrongly: most of their values are not what it says.

In a study nobody is told how many values are unknown, because that number is a statistic of the
records. A check runs on made-up records, or on some that one may look at.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import numpy.typing as npt

from optuna_dp.check.objective_report import Finding
from optuna_dp.preparation import frames
from optuna_dp.preparation.columns import Categories, Column, Date, text_of
from optuna_dp.preparation.schema import Schema

# Of the values that are not missing: from this share on they are pointed out.
_MANY = 0.5
# Values of a column that are looked at, evenly spaced.
_SAMPLE = 10_000


@contextmanager
def watching_encodings(findings: dict[str, Finding]) -> Iterator[None]:
    """Notes columns whose values are not what the schema says that encodes them meanwhile.

    Args:
        findings: Each is put in here, by the name of its column.
    """
    original = Schema.encode
    # Within an encoding a function of the script may encode what it made: made-up rows first, and
    # the records last.
    inner: list[tuple[Schema, tuple[Any, ...]]] = []
    depth = 0

    @functools.wraps(original)
    def noting(self: Schema, *arguments: Any, **settings: Any) -> Any:
        nonlocal depth
        depth += 1
        try:
            encoded = original(self, *arguments, **settings)
        finally:
            depth -= 1
        given = (*arguments, settings.get("targets"))[:2]
        if "rows" in settings:
            given = settings["rows"], settings.get("targets")
        if depth:
            inner[:] = [(self, given)]
            return encoded
        for schema, rows_and_targets in ((self, given), *inner):
            for finding in _findings(schema, *rows_and_targets):
                findings[finding.about] = finding
        inner.clear()
        return encoded

    Schema.encode = noting  # type: ignore[method-assign]
    try:
        yield
    finally:
        Schema.encode = original  # type: ignore[method-assign]


def _findings(schema: Schema, rows: Any, targets: Any) -> Iterator[Finding]:
    """Yields what is to be said of columns, and of the targets."""
    there = frames.names_of(rows)
    described = dict(schema.described_columns)
    target = described.pop(schema.target_name or "", None)
    values = frames.columns_of(rows, list(described)) if described else {}
    columns = [(name, column, values[name]) for name, column in described.items()]
    name = str(schema.target_name)
    if target is not None and targets is not None:
        columns.append((name, target, frames.column_of(targets)))
    elif target is not None and there is not None and name in there:
        columns.append((name, target, frames.columns_of(rows, [name])[name]))
    for name, column, found in columns:
        share, what = _share_of_others(column, found)
        if share > _MANY:
            yield Finding(
                "values beyond the schema",
                f"Column {name}: {100 * share:.0f} % of the values that are not missing {what}.",
                "describe the column as it comes: its list with the very words, its range in the "
                "column's units, numbers with a decimal point. If these values are rare in the "
                "real records, leave it.",
                certain=False,
                about=name,
            )


def _share_of_others(column: Column, values: npt.NDArray[Any]) -> tuple[float, str]:
    """Returns which share of the values present is none that a column describes, in words."""
    places = np.unique(np.linspace(0, max(len(values) - 1, 0), _SAMPLE).astype(np.int64))
    present = values[places[: len(values)]]
    present = present[[text_of(value) != "" for value in present]]
    if not len(present):
        return 0.0, ""
    if isinstance(column, Categories):
        return float(np.mean(column.codes(present) == len(column.values))), "are none of its list"
    is_unread = column.encode(present)[:, 1] == 1.0
    low, high = column.bounds
    numbers = column.numbers(present)
    is_outside = (numbers < low) | (numbers > high)
    kind = "a day or a time" if isinstance(column, Date) else "a number"
    if is_unread.mean() > _MANY:
        return float(is_unread.mean()), f"are not {kind}"
    return float(np.mean(is_unread | is_outside)), "lie outside of its range"
