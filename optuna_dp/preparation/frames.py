"""Tables as they come: data frames of pandas and Polars, mappings, and arrays."""

from __future__ import annotations

import contextlib
import copy
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias, TypeGuard

import numpy as np
import numpy.typing as npt

from optuna_dp.errors import InvalidArgumentError, Text, type_of

if TYPE_CHECKING:
    import torch

# Rows as they come: a data frame of pandas or Polars, a mapping from names to columns, a tensor,
# an array, or a list of rows.
Rows: TypeAlias = Any
# A column as it comes: a series of pandas or Polars, a tensor, an array or a list.
Values: TypeAlias = Any
# The type of a column: pandas', one of another package for pandas, Polars', or numpy's.
_Type: TypeAlias = Any


def is_frame(rows: Rows) -> bool:
    """Returns whether rows are a data frame of pandas or Polars."""
    return hasattr(rows, "columns") and hasattr(rows, "to_numpy")


def length_of(rows: Rows) -> int:
    """Returns how many rows there are."""
    return len(next(iter(rows.values())) if isinstance(rows, Mapping) else rows)


def names_of(rows: Rows) -> list[str] | None:
    """Returns the names of the columns; None if the rows are an array, which has none."""
    if is_frame(rows):
        return [*rows.columns]
    return [*rows] if isinstance(rows, Mapping) else None


def columns_of(rows: Rows, names: Sequence[str]) -> dict[str, npt.NDArray[Any]]:
    """Returns some columns by name, each of shape (n,).

    Args:
        rows: A data frame, a mapping from names to columns, or an array (n, columns) with the
            columns in the order of the names.
        names: The columns.

    Raises:
        InvalidArgumentError: If it is nothing of the kind, or a column is not there.
    """
    own_names = names_of(rows)
    if own_names is None:
        values = _table_of(rows) if isinstance(rows, list | tuple) else array_of(rows)
        if values.ndim != 2 or values.shape[1] != len(names):
            raise InvalidArgumentError(
                "rows",
                Text(f"an array of shape {values.shape}"),
                allowed=f"it must have one column for each of the schema's {len(names)}",
                fix="Give a data frame, or an array with the schema's columns in their order. If "
                "the target is an array of its own: schema.encode(x, y).",
            )
        return {name: values[:, place] for place, name in enumerate(names)}
    _refuse_missing(names, own_names)
    columns = {name: _named_column(rows, name) for name in names}
    lengths = {column.shape for column in columns.values()}
    if len(lengths) != 1 or len(next(iter(lengths))) != 1:
        raise InvalidArgumentError(
            "rows",
            Text(f"columns of shapes {sorted(lengths)}"),
            allowed="all must have one length",
        )
    return columns


def _refuse_missing(names: Sequence[str], own_names: Sequence[str]) -> None:
    """Refuses a table without some column."""
    missing = [name for name in names if name not in own_names]
    if missing:
        raise InvalidArgumentError(
            "rows",
            Text(f"a table without {', '.join(map(repr, missing))}"),
            problem="the schema has these columns",
            fix=f"The table has {', '.join(map(repr, own_names))}.",
        )


def _named_column(rows: Rows, name: str) -> npt.NDArray[Any]:
    """Returns a column of a table, and names it in the error if it is a single value."""
    try:
        return column_of(rows[name])
    except InvalidArgumentError:
        raise InvalidArgumentError(
            "rows",
            Text(f"a table whose {name!r} is a value of type {type(rows[name]).__name__}"),
            allowed="each column must be a list or an array, with a value for each row",
            fix=f"A table of one row: {{{name!r}: [value], ...}}.",
        ) from None


def column_of(values: Values) -> npt.NDArray[Any]:
    """Returns a column as an array, shape (n,).

    Values of a list stay as they are: numpy would make texts of numbers beside a text, and it
    refuses lists of unequal lengths, so what one value becomes would depend on the others.
    """
    if not isinstance(values, list | tuple):
        return array_of(values)
    column = np.empty(len(values), dtype=object)
    for place, value in enumerate(values):
        column[place] = value
    return column


def _table_of(rows: Sequence[Rows]) -> npt.NDArray[Any]:
    """Returns rows that are lists as an array, (n, columns), with their values as they are."""
    are_lists = all(isinstance(row, list | tuple) for row in rows)
    if not rows or not are_lists or len({*map(len, rows)}) != 1:
        return array_of(rows)
    return np.stack([column_of(row) for row in rows])


def array_of(rows: Rows) -> npt.NDArray[Any]:
    """Returns rows as an array of numpy, with an axis of records."""
    if _is_tensor(rows):
        rows = rows.detach().cpu().numpy()
    try:
        values = np.asarray(rows)
    except ValueError:  # Rows of unequal lengths.
        values = np.asarray(0.0)
    if values.ndim == 0:
        raise InvalidArgumentError(
            "rows",
            type_of(rows),
            allowed="it must be a data frame, a mapping from names to columns, or an array",
            fix="A data set of PyTorch: encode(data.data, data.targets), or arrays made of its "
            "items.",
        )
    return values


def plain_rows(rows: Rows) -> Rows:
    """Returns rows that can be read one by one: of tensors and columns as arrays."""
    if hasattr(rows, "__array__") and not isinstance(rows, list):
        return array_of(rows)
    return rows


def selected(rows: Rows, places: npt.NDArray[np.int64]) -> Rows:
    """Returns some rows, in the form that they have."""
    if isinstance(rows, Mapping):
        return {name: selected(column, places) for name, column in rows.items()}
    if hasattr(rows, "iloc"):
        # A row's number says how many are before it.
        return rows.iloc[places].reset_index(drop=True)
    if isinstance(rows, list | tuple):
        return [rows[place] for place in places]
    if is_frame(rows) or _is_tensor(rows) or hasattr(rows, "to_numpy"):  # Or a Polars series.
        return rows[places]
    return array_of(rows)[places]


def copied(rows: Rows) -> Rows:
    """Returns a copy of rows, for a function that may write into them."""
    if isinstance(rows, Mapping):
        return {name: copied(column) for name, column in rows.items()}
    if hasattr(rows, "clone"):  # A tensor, or a frame of Polars.
        return rows.clone()
    return copy.deepcopy(rows)


def with_columns(rows: Rows, names: Sequence[str]) -> Rows:
    """Returns a table with some of its columns only, in the form that it has.

    Raises:
        InvalidArgumentError: If a column is not there.
    """
    _refuse_missing(names, names_of(rows) or names)
    if isinstance(rows, Mapping):
        return {name: rows[name] for name in names}
    return rows[[*names]] if is_frame(rows) else rows


def with_column(rows: Rows, name: str, values: list[object]) -> Rows:
    """Returns a table with one column more, in the form that it has."""
    if isinstance(rows, Mapping):
        return {**rows, name: values}
    if hasattr(rows, "iloc"):
        return rows.assign(**{name: values})
    return rows.with_columns(_polars_series(name, None, values, same_types=False))


def in_the_form_of(
    rows: Rows, columns: Mapping[str, list[object]], *, same_types: bool = True
) -> Rows:
    """Returns columns as a table of the same form, with the same types where they can be had.

    Args:
        rows: A data frame, a mapping or an array.
        columns: The columns by name.
        same_types: Whether numbers have the types of the rows. A single missing value makes
            floats of whole numbers, so these types may tell of a record.
    """
    if hasattr(rows, "iloc"):
        return _pandas(rows, columns, same_types)
    if is_frame(rows):
        return _polars(rows, columns, same_types)
    if isinstance(rows, Mapping):
        return {
            name: _column_like(rows.get(name), column, same_types)
            for name, column in columns.items()
        }
    if isinstance(rows, list | tuple):
        return [[*row] for row in zip(*columns.values(), strict=True)]
    table = np.stack([_array(column) for column in columns.values()], axis=1)
    return array_like(rows, table, same_types=same_types)


def array_like(rows: Rows, values: Rows, *, same_types: bool = True) -> Rows:
    """Returns values as a tensor or an array of the same type, and the same shape of a row.

    Args:
        rows: A tensor, an array, or anything else, and the values are returned as they are then.
        values: An array, or lists of tokens: they are cut off or filled up by 0.
        same_types: As of :func:`in_the_form_of`.
    """
    if not _is_tensor(rows) and not isinstance(rows, np.ndarray):
        return values
    own = array_of(rows[:0])
    if isinstance(values, list):
        if own.ndim != 2 or own.dtype.kind not in "iuf":
            return values
        length = own.shape[1]
        values = np.asarray([[*row[:length], *[0] * (length - len(row))] for row in values])
    if own.ndim and np.prod(own.shape[1:]) == np.prod(values.shape[1:]):
        values = values.reshape(len(values), *own.shape[1:])
    values = _of_type(values, own.dtype) if same_types else values
    return sys.modules["torch"].tensor(values) if _is_tensor(rows) else values


def _is_tensor(rows: object) -> TypeGuard[torch.Tensor]:
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(rows, torch.Tensor)


def _column_like(like: Values, column: list[object], same_types: bool) -> Values:
    """Returns a column in the form that another one has."""
    if isinstance(like, list | tuple):
        return column
    if hasattr(like, "iloc"):
        return _series(like.dtype, column, same_types)
    if hasattr(like, "to_numpy"):
        return _polars_series("", like.dtype, column, same_types)
    return array_like(like, _array(column), same_types=same_types)


def _pandas(rows: Rows, columns: Mapping[str, list[object]], same_types: bool) -> Rows:
    return sys.modules["pandas"].DataFrame(
        {
            name: _series(rows[name].dtype if name in rows else None, column, same_types)
            for name, column in columns.items()
        }
    )


def _series(dtype: _Type, column: list[object], same_types: bool) -> Values:
    pandas = sys.modules["pandas"]
    series = pandas.Series(column)
    if not same_types and getattr(dtype, "kind", "") in "biufO":
        return series
    if dtype is None or isinstance(dtype, pandas.CategoricalDtype):
        return series  # Its categories are the records'.
    with contextlib.suppress(Exception):  # A type of another package's.
        if getattr(dtype, "kind", "") in "biuf":
            is_plain = isinstance(dtype, np.dtype)
            numbers = pandas.to_numeric(series, errors="coerce")
            if dtype.kind in "biu":  # Without fractions, and without gaps if it has none.
                numbers = numbers.round().fillna(0.0) if is_plain else numbers.round()
            return numbers.astype(dtype)
        if getattr(dtype, "tz", None) is not None:
            series = pandas.to_datetime(series).dt.tz_localize("UTC")
        return series.astype(dtype)
    return series


def _polars(rows: Rows, columns: Mapping[str, list[object]], same_types: bool) -> Rows:
    return sys.modules["polars"].DataFrame(
        [
            _polars_series(name, rows.schema.get(name), column, same_types)
            for name, column in columns.items()
        ]
    )


def _polars_series(name: str, dtype: _Type, column: list[object], same_types: bool) -> Values:
    polars = sys.modules["polars"]
    if not same_types and dtype is not None and not dtype.is_temporal():
        dtype = None
    values: list[Any] = [None if value != value else value for value in column]
    if dtype is not None and dtype.is_temporal():
        values = [None if value is None else np.datetime64(value).item() for value in values]
    elif dtype is not None and dtype.is_integer():
        values = [round(value) if isinstance(value, float) else value for value in values]
    return polars.Series(name, values, dtype=dtype, strict=False)


def _of_type(values: npt.NDArray[Any], dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    """Returns values with a type of numbers, if it is one; what is none is 0 in whole numbers."""
    if dtype.kind not in "biuf":
        return values
    numbers = np.empty(values.shape, dtype=np.float64)
    for place, value in np.ndenumerate(values):
        try:
            numbers[place] = value
        except (TypeError, ValueError):
            numbers[place] = np.nan
    if dtype.kind == "f":
        return numbers.astype(dtype)
    ends = (0, 1) if dtype.kind == "b" else (np.iinfo(dtype).min, np.iinfo(dtype).max)
    return np.clip(np.nan_to_num(numbers.round()), *ends).astype(dtype)


def _array(column: list[object]) -> npt.NDArray[Any]:
    kinds = {*map(type, column)}
    if kinds <= {int, float}:
        return np.asarray(column, dtype=np.int64 if kinds == {int} else np.float64)
    return column_of(column)
