"""What is public about the inputs of a model: a table, an array of numbers, or tokens."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, TypeAlias

import numpy as np
import numpy.typing as npt

from optuna_dp.core import validation
from optuna_dp.core.arrays import FloatArray
from optuna_dp.core.json_entries import Entry, stored
from optuna_dp.core.value_types import JsonObject
from optuna_dp.errors import InvalidArgumentError, Text
from optuna_dp.preparation import frames
from optuna_dp.preparation.columns import Column, Number, as_text, column_from_json, numbers_of
from optuna_dp.preparation.frames import Rows

# Features of tables and arrays, and ids of tokens.
Encoded: TypeAlias = npt.NDArray[np.float32] | npt.NDArray[np.int64]


class Inputs(ABC):
    """The public description of a record's input, and its encoding."""

    @property
    @abstractmethod
    def shape(self) -> tuple[int, ...]:
        """The shape of one encoded record."""

    @property
    @abstractmethod
    def width(self) -> int:
        """How wide a model's first layer is: its features, or the vocabulary of its embedding."""

    @abstractmethod
    def encode(self, rows: Rows) -> Encoded:
        """Returns the encoded records, (n, *shape)."""

    @abstractmethod
    def made_up(self, rng: np.random.Generator, count: int) -> Rows:
        """Returns made-up raw rows, in the form of the records, all of them ordinary."""

    @abstractmethod
    def odd(self) -> Rows:
        """Returns a few raw rows that are hardly ordinary, in the form of the records."""

    @abstractmethod
    def words(self) -> dict[str, str]:
        """Returns what is public, by column, for the statement."""


def _columns_to_json(columns: tuple[tuple[str, Column], ...]) -> list[list[object]]:
    return [[name, column.to_json()] for name, column in columns]


def _columns_from_json(data: Iterable[tuple[str, JsonObject]]) -> tuple[tuple[str, Column], ...]:
    return tuple((name, column_from_json(record)) for name, record in data)


@dataclass(frozen=True)
class TableInputs(Entry, Inputs):
    """The columns of a table, without its target.

    Attributes:
        columns: By name, in the order of their features.
    """

    constants: ClassVar[dict[str, Any]] = {"kind": "table"}

    columns: tuple[tuple[str, Column], ...] = field(
        metadata=stored(write=_columns_to_json, read=_columns_from_json)
    )

    def __post_init__(self) -> None:
        if not self.columns:
            raise InvalidArgumentError(
                "columns", (), allowed="there must be one besides the target"
            )
        names = [name for name, _ in self.columns]
        if not all(isinstance(name, str) for name in names) or len({*names}) < len(names):
            raise InvalidArgumentError(
                "columns", names, allowed="each must have a name of its own"
            )

    @property
    def shape(self) -> tuple[int, ...]:
        return (self.width,)

    @property
    def width(self) -> int:
        return len(self.names)

    @property
    def names(self) -> tuple[str, ...]:
        """What each feature is called; the last one is constant."""
        names = [f"{name}{of}" for name, column in self.columns for of in column.names]
        return (*names, "constant")

    def encode(self, rows: Rows) -> npt.NDArray[np.float32]:
        values = frames.columns_of(rows, [name for name, _ in self.columns])
        blocks = []
        for name, column in self.columns:
            _refuse_times(name, column, values[name])
            blocks.append(column.encode(values[name]).astype(np.float32))
        return np.hstack([*blocks, np.ones((len(blocks[0]), 1), dtype=np.float32)])

    def made_up(self, rng: np.random.Generator, count: int) -> dict[str, list[object]]:
        return {name: column.made_up(rng, count) for name, column in self.columns}

    def odd(self) -> dict[str, list[object]]:
        return {name: column.odd() for name, column in self.columns}

    def words(self) -> dict[str, str]:
        return {name: column.in_words() for name, column in self.columns}


def _refuse_times(name: str, column: Column, values: npt.NDArray[Any]) -> None:
    if isinstance(column, Number) and values.dtype.kind in "mM":
        raise InvalidArgumentError(
            name,
            Text(f"a column of type {values.dtype}"),
            problem="the schema says that it has numbers, and it has times",
            fix="For times give days, for example (datetime.date(2015, 1, 1), "
            "datetime.date(2026, 1, 1)). For durations give a column of numbers.",
        )


@dataclass(frozen=True)
class ArrayInputs(Entry, Inputs):
    """Numbers of one range in an array of one shape, such as the pixels of an image.

    Attributes:
        size: The shape of one record.
        low: What becomes -1; smaller numbers are clipped.
        high: What becomes 1; larger numbers are clipped.
    """

    constants: ClassVar[dict[str, Any]] = {"kind": "array"}

    size: tuple[int, ...]
    low: float
    high: float

    def __post_init__(self) -> None:
        if not self.size:
            raise InvalidArgumentError(
                "shape", (), allowed="it must have an axis", fix="For example 1, 28, 28"
            )
        for side in self.size:
            validation.whole("shape", side, 1)
        # A number knows what a range may be.
        Number(self.low, self.high)
        object.__setattr__(self, "low", float(self.low))
        object.__setattr__(self, "high", float(self.high))

    @property
    def shape(self) -> tuple[int, ...]:
        return self.size

    @property
    def width(self) -> int:
        return math.prod(self.size)

    def encode(self, rows: Rows) -> npt.NDArray[np.float32]:
        values = frames.array_of(rows)
        own = values.shape[1:]
        is_same = [side for side in own if side > 1] == [side for side in self.size if side > 1]
        if not is_same and own != (self.width,):
            raise InvalidArgumentError(
                "rows",
                Text(f"records of shape {own}"),
                problem=f"the schema says {self.size}",
                fix="Move the axes, for example x.transpose(0, 3, 1, 2), or make another schema.",
            )
        places = Number(self.low, self.high).encode(numbers_of(values.ravel()))[:, 0]
        return places.astype(np.float32).reshape(len(values), *self.size)

    def made_up(self, rng: np.random.Generator, count: int) -> FloatArray:
        if len(self.size) != 3:
            return rng.uniform(self.low, self.high, (count, *self.size))
        # Neighboring pixels of a picture are alike, and convolutions answer to that.
        channels, height, width = self.size
        squares = rng.uniform(self.low, self.high, (count, channels, 4, 4))
        down, across = np.arange(height) * 4 // height, np.arange(width) * 4 // width
        return np.asarray(squares[:, :, down][:, :, :, across])

    def odd(self) -> FloatArray:
        values = [self.low, self.high, self.high + 9.0 * (self.high - self.low)]
        return np.stack([np.full(self.size, value) for value in values])

    def words(self) -> dict[str, str]:
        shape = " x ".join(map(str, self.size))
        return {"input": f"{shape} numbers from {self.low:g} to {self.high:g}, clipped beyond"}


@dataclass(frozen=True)
class TokenInputs(Entry, Inputs):
    """Token ids: texts that a public tokenizer has cut, or lists of words of a public list.

    Attributes:
        vocabulary: How many ids there are, from 0 on; or the words, whose ids are 2 and on.
        length: How many tokens a record has: longer ones are cut off, shorter ones are filled up.
        padding: The id that fills up. With words it is 0.
        unknown: The id of whatever is no token. With words it is 1.
    """

    constants: ClassVar[dict[str, Any]] = {"kind": "tokens"}

    vocabulary: Any
    length: int
    padding: int = 0
    unknown: int = 0

    def __post_init__(self) -> None:
        validation.whole("length", self.length, 1)
        if isinstance(self.vocabulary, list | tuple):
            object.__setattr__(self, "vocabulary", list(self.vocabulary))
            object.__setattr__(self, "unknown", 1)
            words = list(map(as_text, self.vocabulary))
            if not words or len(set(words)) < len(words) or self.padding != 0:
                raise InvalidArgumentError(
                    "vocabulary",
                    Text(f"{len(words)} words"),
                    allowed="each word must be there once",
                )
            return
        validation.whole("vocabulary", self.vocabulary, 2)
        for name in ("padding", "unknown"):
            if validation.whole(name, getattr(self, name)) >= self.vocabulary:
                raise InvalidArgumentError(
                    name,
                    getattr(self, name),
                    allowed=f"it must be below vocabulary={self.vocabulary}",
                )

    @property
    def shape(self) -> tuple[int, ...]:
        return (self.length,)

    @property
    def width(self) -> int:
        is_list = isinstance(self.vocabulary, list)
        return len(self.vocabulary) + 2 if is_list else int(self.vocabulary)

    def encode(self, rows: Rows) -> npt.NDArray[np.int64]:
        ids = np.full((len(rows), self.length), self.padding, dtype=np.int64)
        places = None
        if isinstance(self.vocabulary, list):
            places = {as_text(word): place for place, word in enumerate(self.vocabulary, start=2)}
        for row, tokens in enumerate(frames.plain_rows(rows)):
            for place, token in enumerate(_tokens(tokens)[: self.length]):
                ids[row, place] = self._id(token, places)
        return ids

    def _id(self, token: Any, places: Mapping[str, int] | None) -> int:
        if places is not None:
            return places.get(as_text(token), self.unknown)
        try:
            number = int(token)
        except Exception:  # A token that is no id.
            return self.unknown
        return number if 0 <= number < self.width else self.unknown

    def made_up(self, rng: np.random.Generator, count: int) -> list[list[object]]:
        if isinstance(self.vocabulary, list):
            words = rng.integers(len(self.vocabulary), size=(count, self.length))
            return [[self.vocabulary[place] for place in row] for row in words]
        return [*map(list, rng.integers(self.width, size=(count, self.length)).tolist())]

    def odd(self) -> list[list[object]]:
        first = self.made_up(np.random.default_rng(1), 1)[0]
        return [[], first[:1], first * 2]

    def words(self) -> dict[str, str]:
        kind = "words of a list" if isinstance(self.vocabulary, list) else "tokens"
        return {"input": f"{self.length} {kind} of {self.width:,} ids; longer texts are cut off"}


def _tokens(value: Any) -> Sequence[object]:
    """Returns the tokens of a record; none if it is missing; of a text, its words."""
    if isinstance(value, str):
        return value.split()
    try:
        return list(value)
    except TypeError:  # Missing.
        return []
