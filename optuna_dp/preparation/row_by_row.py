"""A user's own preparation, tried on made-up rows: whether it prepares each row by itself.

Each made-up row alone must give the row that it gives among the others, and no row may change when
another one is replaced or left out. The first finds scalers, encoders, imputation and whatever
else is fitted on the rows that it is given; the second finds a function that treats a single row
in a way of its own. As many rows as there are records must give what two halves of them give: that
finds one that treats a few rows in a way of its own. No record is read.
"""

from __future__ import annotations

import contextlib
import dis
import functools
import inspect
import sysconfig
import types
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from optuna_dp.errors import InvalidArgumentError, Text
from optuna_dp.preparation import frames
from optuna_dp.preparation.frames import Rows
from optuna_dp.training.prepared import PreparedRecords

# What a function may return: features, a tuple of features and targets, or what a schema's encode
# returned.
Prepared: TypeAlias = Any
Prepare: TypeAlias = Callable[[Rows], Prepared]

# By how much a row may differ when it is prepared alone, for the rounding of matrix products.
_ROUNDING = 1e-5
# Made-up rows that are replaced by others: the hardly ordinary ones, and two more.
_REPLACED = (*range(6), 10, 19)
_LIBRARIES = tuple({sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib")})
_REMEDY = (
    "Use public numbers in place of what is computed from the rows: the ranges and lists of the "
    "schema. No mean, range, list of values or count of the rows may be in it, no fit, no "
    "neighbours, and nothing drawn at random."
)


def try_out(prepare: Prepare, rows: Rows) -> None:
    """Refuses a function that does not prepare each made-up row by itself.

    Args:
        prepare: The function.
        rows: Made-up rows.

    Raises:
        InvalidArgumentError: If it fails on them, a row depends on others, or a feature is no
            number in any of them.
    """
    count = frames.length_of(rows)
    everywhere = np.arange(count)
    prepared = functools.partial(prepared_parts, prepare, are_made_up=True)
    together = prepared(rows)
    _refuse_other(together, prepared(rows), "it draws at random, or counts its calls")
    shapes = [part.shape[1:] for part in together]
    alone = [
        prepared(frames.selected(rows, everywhere[row : row + 1]), shapes) for row in range(count)
    ]
    lengths = [len(parts[0]) for parts in alone]
    if max(lengths) > 1:
        raise _refusal(f"it made {max(lengths)} rows of one")
    _refuse_other(
        together,
        _stacked(alone),
        "a made-up row that is prepared alone gives something else than among others",
    )
    ends = np.cumsum(lengths)
    for row in range(count):
        place = slice(ends[row] - lengths[row], ends[row])
        remaining_rows = [np.delete(part, place, axis=0) for part in together]
        left_out = prepared(frames.selected(rows, np.delete(everywhere, row)))
        _refuse_other(remaining_rows, left_out, "made-up rows change when another one is left out")
        for by in {0, 2, 3, 4, count - 1} - {row} if row in _REPLACED else ():
            order = np.where(everywhere == row, by, everywhere)
            replaced = prepared(frames.selected(rows, order))
            new_place = slice(place.start, place.start + lengths[by])
            _refuse_other(
                remaining_rows,
                [np.delete(part, new_place, axis=0) for part in replaced],
                "made-up rows change when another one is replaced",
            )
    if any(len(part) and np.isnan(part).all(axis=0).any() for part in together):
        raise InvalidArgumentError(
            "prepare",
            Text("a function without a result"),
            allowed="one of its features is no number in any made-up row, so it was not tried "
            "there",
            fix="A few made-up values are missing, and a mean of all rows is no number then: use "
            "public numbers. Or the schema does not describe the columns as they come: give a "
            "range for numbers, and a list for texts.",
        )


def try_on_many(prepare: Prepare, rows: Rows) -> None:
    """Refuses a function that treats many made-up rows as it does not treat half of them.

    Args:
        prepare: The function.
        rows: Made-up rows, about as many as there are records.

    Raises:
        InvalidArgumentError: If it fails on them, or a row depends on others.
    """
    halves = np.array_split(np.arange(frames.length_of(rows)), 2)
    prepared = functools.partial(prepared_parts, prepare, are_made_up=True)
    _refuse_other(
        prepared(rows),
        _stacked([prepared(frames.selected(rows, half)) for half in halves]),
        "many made-up rows give something else than two halves of them",
    )


def prepared_parts(
    prepare: Prepare,
    rows: Rows,
    shapes: Sequence[tuple[int, ...]] | None = None,
    *,
    are_made_up: bool = False,
) -> tuple[npt.NDArray[Any], ...]:
    """Returns what a function makes of rows: the features, and the targets if it returns them.

    Args:
        prepare: The function. It gets a copy, because it may write into its rows.
        rows: The rows.
        shapes: Of each part of one prepared row, for a function that may squeeze a single one.
        are_made_up: As of :func:`result_of`.

    Raises:
        InvalidArgumentError: If it fails, or returns nothing of the kind.
    """
    return parts_of(result_of(prepare, rows, are_made_up=are_made_up), shapes)


def result_of(prepare: Prepare, rows: Rows, *, are_made_up: bool = False) -> Prepared:
    """Returns what a function makes of a copy of rows, as it returns it.

    Args:
        prepare: The function.
        rows: The rows.
        are_made_up: Whether they are. The words of an error may quote records otherwise.

    Raises:
        InvalidArgumentError: If it fails.
    """
    try:
        with np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Of missing values, in made-up rows too.
            return prepare(frames.copied(rows))
    except InvalidArgumentError:
        raise
    except Exception as error:
        raise InvalidArgumentError(
            "prepare",
            Text(f"a function that failed on {frames.length_of(rows)} rows"),
            problem=f"{type(error).__name__}: {error}" if are_made_up else type(error).__name__,
            fix="It must take rows in the form of the records, a single row too, with missing "
            "values and with values out of range.",
        ) from error


def parts_of(
    prepared: Prepared, shapes: Sequence[tuple[int, ...]] | None = None
) -> tuple[npt.NDArray[Any], ...]:
    """Returns what a function returned as arrays: the features, and the targets if there are any.

    Raises:
        InvalidArgumentError: If it is nothing of the kind.
    """
    if isinstance(prepared, PreparedRecords):
        return prepared.parts
    parts = prepared if isinstance(prepared, tuple) else (prepared,)
    if shapes is None or len(shapes) != len(parts):
        arrays = tuple(map(_array, parts))
    else:
        arrays = tuple(map(_array, parts, shapes))
    if len(arrays) > 2 or len({len(array) for array in arrays}) > 1:
        raise InvalidArgumentError(
            "prepare",
            Text(f"a function that returns {len(arrays)} arrays"),
            allowed="it must return features, or a tuple of features and targets of the same "
            "length",
        )
    return arrays


def held_from_outside(prepare: Prepare) -> list[str]:
    """Returns what a function uses that is neither its rows nor code, each by name and type.

    Numbers and texts are among them: what they are is not told, because they may have been
    computed from the records. What is written in the code itself is not among them. Schemas are
    not either, because a statement shows them.
    """
    held: dict[str, str] = {}
    _collect(prepare, held, set())
    return [f"{name} ({kind})" for name, kind in sorted(held.items())]


def _collect(function: object, held: dict[str, str], seen: set[int]) -> None:
    if id(function) in seen:
        return
    seen.add(id(function))
    for name, value in _values(function):
        value = inspect.unwrap(value) if inspect.isfunction(value) else value
        if inspect.isfunction(value) or isinstance(value, functools.partial):
            if not _is_of_library(value):
                _collect(value, held, seen)
        elif inspect.ismethod(value) or inspect.isbuiltin(value):
            if not _is_code(value.__self__):
                held[name] = type(value.__self__).__name__
        elif not _is_code(value):
            held[name] = type(value).__name__


def _is_of_library(function: object) -> bool:
    """Returns whether a function was installed, and not written by the curator."""
    code = getattr(function, "__code__", None)
    return code is not None and code.co_filename.startswith(_LIBRARIES)


def _is_code(value: object) -> bool:
    """Returns whether a value is a module, a class, a function of numpy, or shown elsewhere."""
    names = {kind.__name__ for kind in type(value).__mro__}
    return (
        isinstance(value, types.ModuleType | type | np.ufunc)
        or value is None
        or not names.isdisjoint({"Schema", "_ArrayFunctionDispatcher"})
    )


def _values(function: object) -> Iterator[tuple[str, object]]:
    if isinstance(function, functools.partial):
        yield from ((f"argument {place}", value) for place, value in enumerate(function.args))
        yield from function.keywords.items()
        yield "function", function.func
        return
    function = inspect.unwrap(function) if inspect.isfunction(function) else function
    if not inspect.isfunction(function):
        yield getattr(function, "__name__", type(function).__name__), function
        return
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        with contextlib.suppress(ValueError):  # A name that has no value yet.
            yield name, cell.cell_contents
    for name in _global_names(function.__code__):
        if name in function.__globals__:
            yield name, function.__globals__[name]
    for parameter in inspect.signature(function).parameters.values():
        if parameter.default is not parameter.empty:
            yield parameter.name, parameter.default


def _global_names(code: types.CodeType) -> Iterator[str]:
    """Returns the names that code, and the functions within it, look up outside."""
    for instruction in dis.get_instructions(code):
        if instruction.opname in ("LOAD_GLOBAL", "LOAD_NAME"):
            yield str(instruction.argval)
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _global_names(constant)


def _array(part: Prepared, shape: tuple[int, ...] | None = None) -> npt.NDArray[Any]:
    kind = type(part).__name__
    if frames.is_frame(part):
        part = part.to_numpy()
    if hasattr(part, "toarray"):  # A sparse matrix of scipy.
        part = part.toarray()
    is_squeezed = shape is not None and np.shape(part) == shape
    values = np.asarray("")
    if part is not None:
        values = frames.array_of([part] if is_squeezed and not shape else part)
    values = values[None] if is_squeezed and shape else values
    if values.dtype.kind == "O":
        try:
            values = values.astype(np.float64)
        except (TypeError, ValueError):
            values = np.asarray("")
    if values.dtype.kind not in "biuf" or values.ndim == 0:
        raise InvalidArgumentError(
            "prepare",
            Text(f"a function that returns a {kind}, not all of it numbers"),
            allowed="prepared rows must be numbers",
            fix="Let it end with the encoding by a schema of the columns that it made: return "
            "schema.encode(rows).",
        )
    return values.astype(np.float32) if values.dtype == np.float64 else values


def _stacked(parts: list[tuple[npt.NDArray[Any], ...]]) -> list[npt.NDArray[Any]] | None:
    try:
        return [np.concatenate(arrays) for arrays in zip(*parts, strict=True)]
    except ValueError:  # Rows of other widths, or with other parts.
        return None


def _refuse_other(
    first: Sequence[npt.NDArray[Any]], second: Sequence[npt.NDArray[Any]] | None, reason: str
) -> None:
    """Refuses prepared rows that are not the same."""
    if second is None or len(first) != len(second):
        raise _refusal(reason)
    for one, other in zip(first, second, strict=True):
        if one.shape != other.shape or not _are_same(one, other):
            raise _refusal(reason)


def _are_same(one: npt.NDArray[Any], other: npt.NDArray[Any]) -> bool:
    """Returns whether rows are the same but for rounding, which each feature has of its own."""
    numbers, others = (rows.astype(np.float64).reshape(len(rows), -1) for rows in (one, other))
    sizes = np.where(np.isfinite(numbers) & (numbers != 0.0), np.abs(numbers), np.nan)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # A feature without a number.
        usual = np.nan_to_num(np.nanmedian(sizes, axis=0)) if len(sizes) else 0.0
    allowed = _ROUNDING * (usual + np.nan_to_num(sizes))
    with np.errstate(invalid="ignore"):
        is_close = np.abs(numbers - others) <= allowed
    return bool(np.all(is_close | (numbers == others) | (np.isnan(numbers) & np.isnan(others))))


def _refusal(reason: str) -> InvalidArgumentError:
    return InvalidArgumentError(
        "prepare",
        Text("a function of several rows"),
        allowed=f"each row must be prepared by itself, and {reason}",
        fix=_REMEDY,
    )
