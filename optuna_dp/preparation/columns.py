"""Columns of a table: what is public about their values, and how a value becomes features.

Each value is encoded by itself. No value raises an error or a warning: one that is missing, odd
or out of range has a public code, and how many of them there are is told to nobody.
"""

from __future__ import annotations

import datetime
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, TypeAlias

import numpy as np
import numpy.typing as npt

from optuna_dp.core import validation
from optuna_dp.core.arrays import FloatArray
from optuna_dp.core.json_entries import Entry, stored
from optuna_dp.errors import InvalidArgumentError, type_of

# Of a list, on a page; its JSON has them all.
_SHOWN_VALUES = 60
_SECONDS_OF_A_DAY = 86_400.0
_EPOCH = datetime.datetime(1970, 1, 1)
# What a whole number may be, to have a float of its own.
_LARGEST_EXACT = 2.0**53
# How many values a column has that are hardly ordinary; the first one is missing.
ODD = 6
_RANGE = "a range is a pair (low, high) with low < high, where most values lie"


@dataclass(frozen=True)
class Number(Entry):
    """A column of numbers, with the public range in which most values lie.

    A value becomes two features: its place in the range, from -1 to 1, and whether it is missing
    (1, and the place is then 0). Values outside of the range are clipped to it. What is no number
    is missing; a text such as "12.5" is the number.

    Attributes:
        low: The lower end of the range.
        high: The upper end, above ``low``. Take the range in which most values lie, and not what
            is possible at all: ranges ten times too wide cost up to 14 points of accuracy
            (``docs/results/preparation.md``). It must not be computed from the records.
        scale: "range": the range is the scale. "private": nobody knows where most values lie, and
            (low, high) is what is possible at all. The scale is then drawn from the records with
            noise, once in a study, and charged for: :func:`optuna_dp.draw_ranges`.
        drawn: The range that was drawn with noise; None if none was. Not to be given.

    Raises:
        InvalidArgumentError: If an argument is not allowed.
    """

    constants: ClassVar[dict[str, Any]] = {"kind": "number"}

    low: float
    high: float
    scale: str = "range"
    drawn: tuple[float, float] | None = field(default=None, metadata=stored(optional=True))

    def __post_init__(self) -> None:
        for low, high in filter(None, [(self.low, self.high), self.drawn]):
            ends = [validation.number("bounds", end) for end in (low, high)]
            if not (ends[0] < ends[1] and math.isfinite(ends[1] - ends[0])):
                raise InvalidArgumentError("bounds", (low, high), allowed=_RANGE)
        if self.scale not in ("range", "private"):
            raise InvalidArgumentError(
                "scale", self.scale, allowed="it must be 'range' or 'private'"
            )
        object.__setattr__(self, "low", float(self.low))
        object.__setattr__(self, "high", float(self.high))

    @property
    def is_open(self) -> bool:
        """Whether its range has to be drawn with noise first."""
        return self.scale == "private" and self.drawn is None

    @property
    def bounds(self) -> tuple[float, float]:
        """The range that values are clipped to."""
        return self.drawn or (self.low, self.high)

    @property
    def names(self) -> tuple[str, ...]:
        """What each feature is called, after the column's name."""
        return "", " is missing"

    def numbers(self, values: npt.NDArray[Any]) -> FloatArray:
        """Returns values in the units of :attr:`bounds`, NaN for what is no number."""
        return numbers_of(values)

    def encode(self, values: npt.NDArray[Any]) -> FloatArray:
        """Returns the features of values, shape (n, 2)."""
        return _of_numbers(self.numbers(values), *self.bounds)

    def targets(self, values: npt.NDArray[Any]) -> FloatArray:
        """Returns values as targets, shape (n,): from -1 to 1, NaN for a missing one."""
        low, high = self.bounds
        return _places(numbers_of(values), low, high)

    def decoded(self, places: FloatArray) -> FloatArray:
        """Returns the numbers at places from -1 to 1."""
        low, high = self.bounds
        return low + (np.asarray(places, dtype=np.float64) + 1.0) / 2.0 * (high - low)

    def made_up(self, rng: np.random.Generator, count: int) -> list[object]:
        """Returns made-up values within the range."""
        return [*map(float, rng.uniform(*self.bounds, count))]

    def odd(self) -> list[object]:
        """Returns :data:`ODD` values: missing, both ends, far beyond them, and a small one."""
        low, high = self.bounds
        width = high - low
        return [math.nan, low, high, high + 9.0 * width, low - 9.0 * width, low + width / 1e3]

    def in_words(self) -> str:
        """Returns what is public about the values, for the statement."""
        if self.drawn:
            return (
                f"a number from {self.drawn[0]:.6g} to {self.drawn[1]:.6g}, drawn with noise "
                f"within {self.low:g} to {self.high:g}, clipped beyond"
            )
        return f"a number from {self.low:g} to {self.high:g}, clipped beyond"


@dataclass(frozen=True)
class Date(Entry):
    """A column of days or times, with the public range in which most of them lie.

    It is encoded as a :class:`Number` is. A time with a zone is taken in universal time.

    Attributes:
        low: The first day or time, as ISO text such as "2015-01-31", or a date.
        high: The last one.

    Raises:
        InvalidArgumentError: If an argument is not allowed.
    """

    constants: ClassVar[dict[str, Any]] = {"kind": "date"}
    is_open: ClassVar[bool] = False

    low: str
    high: str

    def __post_init__(self) -> None:
        for name in ("low", "high"):
            value = getattr(self, name)
            if math.isnan(_days(value)):
                raise InvalidArgumentError(
                    name,
                    value,
                    allowed="it must be a day or a time",
                    fix="For example '2026-03-31'.",
                )
            if not isinstance(value, str):
                object.__setattr__(self, name, str(np.datetime64(value)))
        if not self.bounds[0] < self.bounds[1]:
            raise InvalidArgumentError("bounds", (self.low, self.high), allowed=_RANGE)

    @property
    def bounds(self) -> tuple[float, float]:
        """The range that values are clipped to, in days since 1970."""
        return _days(self.low), _days(self.high)

    @property
    def names(self) -> tuple[str, ...]:
        """What each feature is called, after the column's name."""
        return "", " is missing"

    def numbers(self, values: npt.NDArray[Any]) -> FloatArray:
        """Returns values in the units of :attr:`bounds`, NaN for what is no day or time."""
        return _days_of(values)

    def encode(self, values: npt.NDArray[Any]) -> FloatArray:
        """Returns the features of values, shape (n, 2)."""
        return _of_numbers(self.numbers(values), *self.bounds)

    def made_up(self, rng: np.random.Generator, count: int) -> list[object]:
        """Returns made-up values within the range."""
        return [*map(_time, rng.uniform(*self.bounds, count))]

    def odd(self) -> list[object]:
        """Returns :data:`ODD` values: missing, both ends, far beyond them, and an early one."""
        low, high = self.bounds
        width = high - low
        last = min(high + 9.0 * width, _days("9999-12-30"))
        first = max(low - 9.0 * width, _days("0001-01-02"))
        return [None, *map(_time, (low, high, last, first, low + width / 1e3))]

    def in_words(self) -> str:
        """Returns what is public about the values, for the statement."""
        return f"a time from {self.low} to {self.high}, clipped beyond"


@dataclass(frozen=True)
class Categories(Entry):
    """A column with a public list of values.

    A value becomes one feature for each value of the list, one for anything else, and one for
    missing; the one that it is has 1 and the others 0. Values are compared as texts, without
    spaces around them, with whole numbers written without a point: 1, 1.0, "1" and True are one
    value.

    Attributes:
        values: The values, at least one. They must not be read off the records.

    Raises:
        InvalidArgumentError: If there is none, or two of them are the same.
    """

    constants: ClassVar[dict[str, Any]] = {"kind": "categories"}
    is_open: ClassVar[bool] = False

    values: tuple[Any, ...]

    def __post_init__(self) -> None:
        if isinstance(self.values, str | bytes) or not isinstance(self.values, Sequence):
            raise InvalidArgumentError(
                "values",
                self.values,
                allowed="it must be a list",
                fix="For example ['no', 'yes'].",
            )
        object.__setattr__(self, "values", tuple(map(_plain, self.values)))
        texts = [text_of(value) for value in self.values]
        if not texts or "" in texts or len(set(texts)) < len(texts):
            raise InvalidArgumentError(
                "values",
                list(self.values),
                allowed="there must be a value, none of them missing, and each of them once",
            )

    @property
    def names(self) -> tuple[str, ...]:
        """What each feature is called, after the column's name."""
        return *(f" is {value}" for value in self.values), " is another", " is missing"

    def codes(self, values: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
        """Returns the place of each value in the list; one more for another, two for missing."""
        count = len(self.values)
        places = {text_of(value): place for place, value in enumerate(self.values)}
        places[""] = count + 1
        codes = [places.get(text_of(value), count) for value in values]
        return np.asarray(codes, dtype=np.int64)

    def encode(self, values: npt.NDArray[Any]) -> FloatArray:
        """Returns the features of values, shape (n, values + 2)."""
        return np.asarray(np.eye(len(self.values) + 2)[self.codes(values)])

    def made_up(self, rng: np.random.Generator, count: int) -> list[object]:
        """Returns made-up values of the list."""
        return [self.values[place] for place in rng.integers(len(self.values), size=count)]

    def odd(self) -> list[object]:
        """Returns :data:`ODD` values: missing, of both ends of the list, and unknown ones."""
        ends = self.values[0], self.values[-1]
        return [None, *ends, "a value of no list", "another of no list", ends[0]]

    def in_words(self) -> str:
        """Returns what is public about the values, for the statement."""
        shown = ", ".join(map(str, self.values[:_SHOWN_VALUES]))
        rest = len(self.values) - _SHOWN_VALUES
        more = f" and {rest:,} more, which stand in the JSON" if rest > 0 else ""
        return f"one of {shown}{more}; or another; or missing"


Column: TypeAlias = Number | Date | Categories
_KINDS: dict[str, type[Column]] = {"number": Number, "date": Date, "categories": Categories}


def column_of(name: str, value: object) -> Column:
    """Returns a column as it was described.

    Args:
        name: The column's name, for errors.
        value: A column; a pair (low, high) of numbers, days or times; a list of categories;
            ``bool``.

    Raises:
        InvalidArgumentError: If it is nothing of the kind.
    """
    try:
        column = _described(value)
    except InvalidArgumentError as error:
        raise InvalidArgumentError(name, value, problem=error.why, fix=error.fix) from None
    if column is None and hasattr(value, "dtype") and hasattr(value, "__len__"):
        raise InvalidArgumentError(
            name,
            type_of(value),
            problem="a schema is written down and not read off a table: a list that was read off "
            "the records is not public, because a record may be the only one with its value",
            fix="Write the values that are known beforehand, such as ['F', 'M']. All others have "
            "a code of their own.",
        )
    if column is None:
        raise InvalidArgumentError(
            name,
            value,
            allowed="it must say what is public about the column",
            fix="For example (20, 80) for the range in which most numbers lie, ['F', 'M'] for "
            "categories, or odp.Date('2015-01-01', '2026-01-01').",
        )
    return column


def _described(value: object) -> Column | None:
    if isinstance(value, Number | Date | Categories):
        return value
    if value is bool:
        return Categories((False, True))
    if isinstance(value, range):
        return Categories(tuple(value))
    if isinstance(value, tuple) and len(value) == 2 and not any(map(_is_text, value)):
        is_date = any(isinstance(end, datetime.date | np.datetime64) for end in value)
        return Date(*value) if is_date else Number(*value)
    if isinstance(value, list) and value:
        if len(value) == 2 and all(map(_is_number, value)) and not _are_codes(value):
            raise InvalidArgumentError(
                "values",
                value,
                problem="a list has the values of a category, and this looks like a range",
                fix=f"Write ({value[0]}, {value[1]}) for a range, or odp.Categories({value}).",
            )
        return Categories(tuple(value))
    return None


def column_from_json(data: object) -> Column:
    """Reads what ``to_json`` of a column wrote."""
    kind = data.get("kind") if isinstance(data, dict) else None
    if kind not in _KINDS:
        raise InvalidArgumentError(
            "data", data, allowed=f"a column's kind must be one of {list(_KINDS)}"
        )
    return _KINDS[kind].from_json(data)


def numbers_of(values: npt.NDArray[Any]) -> FloatArray:
    """Returns values as floats, each by itself; NaN for what is no number."""
    if values.dtype.kind in "biuf":
        return values.astype(np.float64)
    return np.asarray([_number(value) for value in values], dtype=np.float64)


def text_of(value: object) -> str:
    """Returns a value as categories compare it; empty if it is missing."""
    try:
        if value is None or value != value:  # NaN, and pandas' NaT.
            return ""
        text = as_text(value)
        if text.lower() in ("true", "false"):
            return "1" if text.lower() == "true" else "0"
        number = float(text)
    except Exception:  # pandas' NA has no truth value; a text that is no number is itself.
        return "" if type(value).__name__ in ("NAType", "NaTType") else as_text(value)
    if math.isnan(number):
        return ""
    if number.is_integer() and abs(number) < _LARGEST_EXACT:
        return str(int(number))
    return text if abs(number) >= _LARGEST_EXACT else repr(number)


def as_text(value: object) -> str:
    """Returns any value as a text, without spaces around it."""
    try:
        if isinstance(value, bytes):
            value = value.decode(errors="replace")
        return str(value).strip()
    except Exception:  # A whole number of too many digits, say.
        return f"a {type(value).__name__}"


def person_of(name: object) -> str | None:
    """Returns a person's name as a text; None if it is missing.

    Two persons must not share a text: only a whole number is written as others write it.
    """
    if isinstance(name, float | np.floating):
        # Whole numbers become floats where one is missing, and then large ones are not told apart.
        number = float(name)
        is_exact = number.is_integer() and abs(number) < _LARGEST_EXACT
        return str(int(number)) if is_exact else None
    return None if text_of(name) == "" else as_text(name)


def _places(numbers: FloatArray, low: float, high: float) -> FloatArray:
    """Returns where numbers lie in a range, from -1 to 1; NaN for a missing one."""
    clipped = np.clip(numbers, low, high)
    return np.asarray(2.0 * ((clipped - low) / (high - low)) - 1.0)


def _of_numbers(numbers: FloatArray, low: float, high: float) -> FloatArray:
    is_missing = np.isnan(numbers)
    places = np.where(is_missing, 0.0, _places(numbers, low, high))
    return np.stack([places, is_missing.astype(np.float64)], axis=1)


def _number(value: Any) -> float:
    try:
        return float(value)
    except Exception:  # A text, a missing value, a whole number beyond all floats.
        return math.nan


def _days_of(values: npt.NDArray[Any]) -> FloatArray:
    if values.dtype.kind == "M":
        values = values.astype("datetime64[us]")
    return np.asarray([_days(value) for value in values.tolist()], dtype=np.float64)


def _days(value: object) -> float:
    """Returns the days from 1970 to a day or a time; NaN for what is neither."""
    try:
        if isinstance(value, np.datetime64):
            value = value.astype("datetime64[us]").item()
        if isinstance(value, str):
            value = datetime.datetime.fromisoformat(value.strip().replace("Z", "+00:00"))
        if isinstance(value, datetime.datetime):
            if value.tzinfo is not None:
                value = value.astimezone(datetime.timezone.utc).replace(tzinfo=None)
            return float((value - _EPOCH).total_seconds() / _SECONDS_OF_A_DAY)
        if isinstance(value, datetime.date):
            return float((value - _EPOCH.date()).days)
    except Exception:  # Not a time, or one that no calendar has.
        return math.nan
    return math.nan


def _time(days: float) -> np.datetime64:
    return np.datetime64(round(days * _SECONDS_OF_A_DAY), "s")


def _plain(value: object) -> object:
    """Returns a category as JSON has it: of other types, such as days, its text."""
    value = value.item() if isinstance(value, np.generic) else value
    is_json = isinstance(value, str | int) or (isinstance(value, float) and math.isfinite(value))
    return value if is_json or not text_of(value) else as_text(value)


def _are_codes(values: list[object]) -> bool:
    """Returns whether numbers are rather two classes than the ends of a range."""
    return {*values} <= {-1, 0, 1, 2} and not any(isinstance(value, float) for value in values)


def _is_text(value: object) -> bool:
    return isinstance(value, str | bytes | bool)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float | np.number) and not isinstance(value, bool)
