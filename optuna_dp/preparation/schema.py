"""What is public about the records, and their encoding by it: ``odp.Schema``."""

from __future__ import annotations

import functools
import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from optuna_dp.core import validation
from optuna_dp.core.arrays import FloatArray
from optuna_dp.core.value_types import JsonObject
from optuna_dp.errors import InvalidArgumentError, OptunaDPError, Text, type_of
from optuna_dp.preparation import frames
from optuna_dp.preparation.columns import (
    Categories,
    Column,
    Date,
    Number,
    column_from_json,
    column_of,
    numbers_of,
    person_of,
)
from optuna_dp.preparation.frames import Rows, Values
from optuna_dp.preparation.inputs import (
    ArrayInputs,
    Encoded,
    Inputs,
    TableInputs,
    TokenInputs,
)
from optuna_dp.preparation.row_by_row import (
    Prepare,
    Prepared,
    held_from_outside,
    parts_of,
    prepared_parts,
    result_of,
    try_on_many,
    try_out,
)
from optuna_dp.training.prepared import BY_ROW, BY_SCHEMA, NewRows, PreparedRecords

_FORMAT = {"format": "optuna-dp schema", "version": 1}
_INPUTS: dict[str, type[TableInputs | ArrayInputs | TokenInputs]] = {
    "table": TableInputs, "array": ArrayInputs, "tokens": TokenInputs
}  # fmt: skip
# The numbers of classes, or numbers.
Targets: TypeAlias = npt.NDArray[np.int64] | npt.NDArray[np.float32]
# Of a class that the schema does not list: PyTorch's losses leave such a record out.
NO_CLASS = -100
_MADE_UP_ROWS = 256
# About as many in the largest frame that a function is tried on.
_MADE_UP_NUMBERS = 1_000_000


class Schema:
    """What is public about the records: the ranges of numbers, and the lists of categories.

    Records become tensors by it alone, so no statistic of the records is in them::

        schema = odp.Schema(
            age=(20, 80),              # where most values lie; clipped beyond
            sex=["F", "M"],            # anything else has a code of its own
            died=["no", "yes"],
            target="died",
        )
        table = schema.encode(frame)   # a data frame of pandas or Polars, as it comes
        trained = odp.train(run, nn.Linear(schema.width, schema.outputs), table)

    For images, or other arrays of numbers of one range, see :meth:`images`; for texts see
    :meth:`tokens`.

    Guarantees:
        * A record's features depend on that record and on the schema only.
        * No value raises an error or a warning. What is missing, unknown or out of range has a
          public code, and how many there are is told to nobody.
        * With ``unit``, nobody has more than ``most`` records, and one person's rows do not decide
          which rows of another one are kept.

    The schema must be public. A range or a list that was read off the records is not, and no
    software can see where it came from.

    Args:
        columns: Columns by name, where names are no words of Python: ``{"blood pressure": (90,
            180)}``.
        target: The name of the column to predict: one with categories (a class), or with a range
            (a number). None: there is none.
        unit: The name of the column that says whose record it is, such as "patient". It is no
            feature. Names are compared as texts; 7 and 7.0 are one name, "007" is another. Rows
            without a name are left out.
        most: With ``unit``: how many records of one person are kept at most, the first ones.
        **named_columns: Columns by name. A pair (low, high) of numbers, days or times is the range
            in which most values lie, see :class:`optuna_dp.Number`; a list has categories, see
            :class:`optuna_dp.Categories`; ``bool`` is short for the list of the two.

    Attributes:
        width: How many features a record has; of tokens, how many ids there are: the width of a
            model's first layer.
        shape: The shape of the features of one record.
        outputs: How many outputs a model needs: one for each class, or one for a number; None
            without a target.

    Raises:
        InvalidArgumentError: If a column says nothing that is public, or the target is none.

    Example:
        >>> import optuna_dp as odp
        >>> schema = odp.Schema(age=(20, 80), sex=["F", "M"], died=["no", "yes"], target="died")
        >>> table = schema.encode({"age": [35, 95, None], "sex": ["F", "X", "M"],
        ...                        "died": ["no", "yes", "no"]})
        >>> table.x.shape, schema.width, schema.outputs
        ((3, 7), 7, 2)
        >>> table.x[:, 0].tolist()
        [-0.5, 1.0, 0.0]
    """

    def __init__(
        self,
        columns: Mapping[str, object] | None = None,
        /,
        *,
        target: str | None = None,
        unit: str | None = None,
        most: int | None = None,
        **named_columns: object,
    ) -> None:
        given = {**(columns or {}), **named_columns}
        described = {str(name): column_of(str(name), value) for name, value in given.items()}
        for argument, name in (("target", target), ("unit", unit)):
            if name is not None and not isinstance(name, str):
                raise InvalidArgumentError(
                    argument, name, allowed="it must be the name of a column"
                )
        if target is not None and target not in described:
            raise InvalidArgumentError(
                "target",
                target,
                allowed="it must be one of the columns",
                fix=f"Say what is public about it: {target}=['no', 'yes'] for classes, or "
                f"{target}=(low, high) for a number.",
            )
        if unit in described:
            raise InvalidArgumentError(
                "unit", unit, problem="it says whose record it is and is no feature",
                fix=f"Take {unit}= away from the columns.",
            )  # fmt: skip
        target_column = described.pop(target) if target is not None else None
        self._set(TableInputs(tuple(described.items())), target, target_column, unit, most)

    def _set(
        self,
        inputs: Inputs,
        target_name: str | None,
        target: Column | None,
        unit: str | None,
        most: int | None,
    ) -> None:
        if isinstance(target, Date):
            raise InvalidArgumentError(
                "target",
                target_name,
                allowed="it must have classes or be a number",
                fix="Give days.",
            )
        if isinstance(target, Number) and target.is_open:
            raise InvalidArgumentError(
                "target",
                target_name,
                allowed="its range must be public, because scores are in its units",
            )
        if isinstance(target, Categories) and len(target.values) < 2:
            raise InvalidArgumentError(
                "target", list(target.values), problem="it needs two classes"
            )
        if (unit is None) != (most is None):
            raise InvalidArgumentError(
                "most", most, problem="unit= and most= belong together",
                fix="For example unit='patient', most=1.",
            )  # fmt: skip
        if most is not None:
            validation.whole("most", most, 1)
        self._inputs = inputs
        self._target_name = target_name
        self._target = target
        self.unit = unit
        self.most = most

    @classmethod
    def images(
        cls, *shape: int, low: float = 0.0, high: float = 255.0, target: object = None
    ) -> Schema:
        """Returns the schema of images, or of other arrays of numbers of one range.

        They become numbers from -1 to 1, and ``encode`` takes them with their targets::

            schema = odp.Schema.images(1, 28, 28, target=range(10))
            records = schema.encode(pixels, labels)

        Args:
            *shape: Of one record, for images channels, height and width. Flat rows are given this
                shape; axes are not moved.
            low: What becomes -1.
            high: What becomes 1.
            target: The classes, as a list or a range; or the range of a number, as a pair. None:
                there is no target.

        Raises:
            InvalidArgumentError: If an argument is not allowed.
        """
        return cls._of(ArrayInputs(shape, low, high), target)

    @classmethod
    def tokens(
        cls,
        vocabulary: int | list[str],
        length: int,
        *,
        padding: int = 0,
        unknown: int = 0,
        target: object = None,
    ) -> Schema:
        """Returns the schema of texts as token ids, shape (n, length).

        Args:
            vocabulary: How many ids the public tokenizer has; or a public list of words. The words
                have the ids 2 and on, padding 0, and what is no word of the list 1. A list made of
                the records' words is not public.
            length: How many tokens a record has: longer ones are cut off, shorter ones filled up.
            padding: The id that fills up.
            unknown: The id of whatever is no id of the vocabulary.
            target: As for :meth:`images`.

        Raises:
            InvalidArgumentError: If an argument is not allowed.
        """
        return cls._of(TokenInputs(vocabulary, length, padding, unknown), target)

    @classmethod
    def _of(cls, inputs: Inputs, target: object) -> Schema:
        schema = cls.__new__(cls)
        column = None if target is None else column_of("target", target)
        schema._set(inputs, None if target is None else "target", column, None, None)
        return schema

    def __repr__(self) -> str:
        rows = "; ".join(f"{name}: {words}" for name, words in self.words().items())
        return f"Schema(<{rows}>)"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Schema) and self.to_json() == other.to_json()

    __hash__ = None  # type: ignore[assignment]

    @property
    def width(self) -> int:
        """See the class."""
        return self._inputs.width

    @property
    def shape(self) -> tuple[int, ...]:
        """See the class."""
        return self._inputs.shape

    @property
    def outputs(self) -> int | None:
        """See the class."""
        if self._target is None:
            return None
        return len(self._target.values) if isinstance(self._target, Categories) else 1

    @property
    def names(self) -> tuple[str, ...]:
        """What each feature of a table is called; of other inputs, nothing."""
        return self._inputs.names if isinstance(self._inputs, TableInputs) else ()

    @property
    def task(self) -> str | None:
        """What is predicted: "classes", "number", or None."""
        if self._target is None:
            return None
        return "classes" if isinstance(self._target, Categories) else "number"

    @property
    def open_columns(self) -> dict[str, tuple[float, float]]:
        """Columns whose range has to be drawn with noise, with what is possible at all."""
        return {
            name: (column.low, column.high)
            for name, column in self._columns()
            if isinstance(column, Number) and column.is_open
        }

    @property
    def drawn_ranges(self) -> dict[str, list[float]]:
        """Ranges that were drawn with noise, by the column's name."""
        return {
            name: list(column.drawn)
            for name, column in self._columns()
            if isinstance(column, Number) and column.drawn is not None
        }

    def _columns(self) -> tuple[tuple[str, Column], ...]:
        return self._inputs.columns if isinstance(self._inputs, TableInputs) else ()

    @property
    def target_name(self) -> str | None:
        """The name of the column to predict; None without a target."""
        return self._target_name

    @property
    def described_columns(self) -> dict[str, Column]:
        """What was said of each column of a table, and of the target, by name."""
        target = {} if self._target is None else {str(self._target_name): self._target}
        return {**dict(self._columns()), **target}

    def with_ranges(self, ranges: Mapping[str, tuple[float, float]]) -> Schema:
        """Returns a schema with ranges that were drawn with noise, by name."""
        columns = tuple(
            (name, Number(column.low, column.high, column.scale, ranges[name]))
            if name in ranges and isinstance(column, Number)
            else (name, column)
            for name, column in self._columns()
        )
        schema = Schema.__new__(Schema)
        schema._set(TableInputs(columns), self._target_name, self._target, self.unit, self.most)
        return schema

    def open_values(self, rows: Rows) -> dict[str, FloatArray]:
        """Returns the numbers of columns whose range has to be drawn, NaN where missing."""
        rows, _ = self._bounded(rows, None)
        values = frames.columns_of(rows, list(self.open_columns))
        return {name: numbers_of(column) for name, column in values.items()}

    # -- encoding ---------------------------------------------------------------------------------

    def encode(
        self, rows: Rows, targets: Values = None, *, prepare: Prepare | None = None
    ) -> PreparedRecords:
        """Returns records as tensors, for :func:`optuna_dp.train`.

        It is for training. With ``unit=`` the rows of a person beyond ``most`` are left out, and
        rows without a name. To predict new rows give them to
        :meth:`optuna_dp.Trained.predict` as they come: it leaves none out.

        Args:
            rows: All records, each once. Of a table: a data frame of pandas or Polars, a mapping
                from names to columns, or an array with the columns in the order of the schema.
                Columns that the schema does not name are left out. A column of the target may be
                missing, as where it is to be predicted. Of images: an array (n, ...). Of tokens: a
                list of lists, or an array.
            targets: The targets, shape (n,), where they are no column of the rows.
            prepare: A function from rows to prepared rows, which are used in their place. It gets
                the rows as they are given here, with the schema's columns, and returns an array or
                a tensor of features, a tuple of features and targets, or what ``encode`` of
                another schema returned. ``trained.predict`` applies it to new rows. **It must
                prepare each row by itself.** It is tried on made-up rows of this schema first:
                each row alone must give what it gives among others, and no row may change when
                another one is replaced or left out. It may leave rows out, by what is in them.

        Raises:
            InvalidArgumentError: If a column is missing, the rows have another shape, the range
                of a column has yet to be drawn with noise, or ``prepare`` does not prepare each
                row by itself. No value of a record raises an error, unless ``prepare`` does.

        Warns:
            UserWarning: If rows may be left out, and have no targets although the schema has one.
        """
        if self.open_columns:
            raise InvalidArgumentError(
                "schema",
                Text("a schema with open ranges"),
                problem=f"the range of {', '.join(map(repr, self.open_columns))} has to be drawn "
                "with noise first",
                fix="In the objective: odp.draw_ranges(run, schema, rows).encode(rows).",
            )
        if self.unit is not None and self._target is not None and targets is None:
            self._warn_of_new_rows(rows)
        with np.errstate(all="ignore"):  # Of values, which are private.
            rows, targets = self._bounded(rows, targets)
            if prepare is not None:
                return self._prepared(rows, targets, prepare)
            return PreparedRecords(
                x=self._inputs.encode(rows),
                y=self._targets(rows, targets),
                task=self.task,
                made_up_inputs=self.made_up_inputs(),
                notes={"word": BY_SCHEMA, "schema": self.to_json()},
                ranges=self.drawn_ranges,
            )

    def _prepared(self, rows: Rows, targets: Values, prepare: Prepare) -> PreparedRecords:
        if not callable(prepare):
            raise InvalidArgumentError(
                "prepare", type_of(prepare), allowed="it must be a function of rows"
            )
        names = self._names(frames.names_of(rows))
        if names is not None:
            rows = frames.with_columns(rows, names)
        pool = self._made_up_rows(rows)
        try_out(prepare, pool)
        count = min(frames.length_of(rows), max(_MADE_UP_ROWS, _MADE_UP_NUMBERS // self.width))
        try_on_many(prepare, self._made_up_rows(rows, max(count, 2)))
        result = self._prepared_of_made_up(prepare, rows)
        # A copy: what a schema encoded cannot be written to, and PyTorch warns of that.
        made_up = np.array(parts_of(result)[0])
        parts = prepared_parts(prepare, rows)
        if len(parts) == 1 and len(parts[0]) != frames.length_of(rows):
            raise InvalidArgumentError(
                "prepare",
                Text("a function that leaves rows out"),
                problem="its rows are not those of the targets any more",
                fix="Give it a table with the target, and let it return features and targets.",
            )
        y = parts[1] if len(parts) > 1 else self._targets(rows, targets)
        inner = result if isinstance(result, PreparedRecords) else None
        return PreparedRecords(
            x=parts[0],
            y=y,
            task=self.task,
            made_up_inputs=made_up,
            notes={
                "word": BY_ROW,
                "schema": self.to_json(),
                **({} if inner is None else {"then": inner.notes["schema"]}),
                "function": getattr(prepare, "__name__", type(prepare).__name__),
                "outside": held_from_outside(prepare),
            },
            ranges={**self.drawn_ranges, **({} if inner is None else inner.ranges)},
            new_rows=NewRows(
                functools.partial(self._new_features, prepare, names, parts),
                self._decoder(inner, are_own_targets=len(parts) == 1),
            ),
        )

    def _new_features(
        self,
        prepare: Prepare,
        names: list[str] | None,
        like: Sequence[npt.NDArray[Any]],
        rows: Rows,
    ) -> npt.NDArray[Any]:
        """Returns the features of rows that are to be predicted, all of them.

        Args:
            prepare: The function that prepared the training's records.
            names: The columns that it got there; None of an array.
            like: What it made of them.
            rows: The new rows. Where they have no targets, the function gets made-up ones, because
                the features must not depend on them.
        """
        there = frames.names_of(rows)
        if names is not None and there is not None:
            if self._target is not None and self._target_name in {*names} - {*there}:
                values = self._target.made_up(np.random.default_rng(0), frames.length_of(rows))
                rows = frames.with_column(rows, str(self._target_name), values)
            rows = frames.with_columns(rows, names)
        features = prepared_parts(prepare, rows, [part.shape[1:] for part in like])[0]
        if len(features) != frames.length_of(rows):
            raise InvalidArgumentError(
                "records",
                Text(f"{frames.length_of(rows):,} rows"),
                problem=f"prepare= makes {len(features):,} of them, so nobody could tell which "
                "row a prediction is for",
                fix="Give the rows that it keeps only.",
            )
        return features

    def _decoder(
        self, inner: PreparedRecords | None, *, are_own_targets: bool
    ) -> Callable[[npt.NDArray[Any]], npt.NDArray[Any]] | None:
        """Returns what names the predictions of a model of prepared rows; None if nothing can.

        Args:
            inner: What the function makes of made-up rows, if another schema encodes them.
            are_own_targets: Whether the targets are encoded by this schema.
        """
        if are_own_targets:
            return None if self._target is None else self.decode
        if inner is None:
            return None
        if inner.notes["word"] == BY_ROW:
            return inner.new_rows.decode
        return Schema.from_json(inner.notes["schema"]).decode

    def _prepared_of_made_up(self, prepare: Prepare, rows: Rows) -> Prepared:
        """Returns what a function makes of made-up rows: the inputs of a rehearsal.

        The rate that is rehearsed with them is public, so their types must not tell of a record:
        all numbers are floats, or whole numbers where the function cannot take floats.
        """
        try:
            made_up = self._made_up_rows(rows, _MADE_UP_ROWS, same_types=False)
            return result_of(prepare, made_up, are_made_up=True)
        except InvalidArgumentError:
            is_table = isinstance(self._inputs, TableInputs)
            # Arrays such as images have one type, which no single record decides.
            made_up = self._made_up_rows(
                rows, _MADE_UP_ROWS, same_types=not is_table, are_whole=is_table
            )
            return result_of(prepare, made_up, are_made_up=True)

    def _names(self, there: list[str] | None) -> list[str] | None:
        """Returns the schema's columns; without the target if a table does not have it."""
        if there is None:
            return None
        names = [name for name, _ in self._columns()]
        if self._target_name in there:
            names.append(str(self._target_name))
        return names

    def _targets(self, rows: Rows, targets: Values) -> Targets | None:
        if self._target is None:
            if targets is not None:
                raise InvalidArgumentError(
                    "targets", Text("targets"), problem="the schema has no target",
                    fix="Give the schema target=.",
                )  # fmt: skip
            return None
        if targets is None:
            there = frames.names_of(rows)
            if there is None or self._target_name not in there:
                return None
            targets = frames.columns_of(rows, [str(self._target_name)])[str(self._target_name)]
        values = frames.column_of(targets)
        if values.ndim != 1 or len(values) != frames.length_of(rows):
            raise InvalidArgumentError(
                "targets",
                Text(f"an array of shape {values.shape}"),
                allowed="there must be one target for each record",
            )
        if isinstance(self._target, Categories):
            codes = self._target.codes(values)
            return np.where(codes < len(self._target.values), codes, NO_CLASS)
        assert isinstance(self._target, Number)
        return self._target.targets(values).astype(np.float32)

    def _bounded(self, rows: Rows, targets: Values) -> tuple[Rows, Values]:
        """Returns the rows without those that a person has beyond the most that are kept."""
        if self.unit is None or self.most is None:
            return rows, targets
        if frames.names_of(rows) is None:
            raise InvalidArgumentError(
                "rows", Text("an array"), problem=f"the schema names the column {self.unit!r}",
                fix="Give a data frame or a mapping.",
            )  # fmt: skip
        counts: dict[str, int] = {}
        kept = []
        for place, name in enumerate(frames.columns_of(rows, [self.unit])[self.unit]):
            person = person_of(name)
            # Rows without a name could be anybody's: kept, one person's would displace another's.
            if person is not None and counts.get(person, 0) < self.most:
                counts[person] = counts.get(person, 0) + 1
                kept.append(place)
        places = np.asarray(kept, dtype=np.int64)
        targets = None if targets is None else frames.column_of(targets)[places]
        return frames.selected(rows, places), targets

    def _warn_of_new_rows(self, rows: Rows) -> None:
        """Says that rows are left out, where a table without targets is rather one to predict."""
        if self._target_name not in (frames.names_of(rows) or (self._target_name,)):
            warnings.warn(
                f"encode keeps {self.most} of the rows of each {self.unit} at most and leaves the "
                "others out, as a training needs it. These rows have no target. To predict them "
                "write trained.predict(rows), which leaves none out.",
                UserWarning,
                stacklevel=3,
            )

    def decode(self, outputs: npt.ArrayLike) -> npt.NDArray[Any]:
        """Returns predictions in the target's own words or units.

        Args:
            outputs: What a model returned: logits (n, classes), or numbers (n,) or (n, 1).

        Raises:
            InvalidArgumentError: If the schema has no target, or outputs have another shape.
        """
        values = frames.array_of(outputs)
        if self.outputs not in (None, math.prod(values.shape[1:])):
            raise InvalidArgumentError(
                "outputs",
                Text(f"an array of shape {values.shape}"),
                allowed=f"there must be {self.outputs} of each record",
            )
        if isinstance(self._target, Categories):
            labels = np.asarray(self._target.values)
            if len({*map(type, self._target.values)}) > 1:
                labels = frames.column_of(self._target.values)
            return np.asarray(labels[values.argmax(axis=1)])
        if isinstance(self._target, Number):
            return self._target.decoded(values.reshape(len(values)))
        raise InvalidArgumentError("outputs", Text("outputs"), problem="the schema has no target")

    # -- what is made up --------------------------------------------------------------------------

    def made_up_inputs(self, rows: int = _MADE_UP_ROWS) -> Encoded:
        """Returns encoded inputs that are made up, for a rehearsal; the same each time.

        Args:
            rows: How many.
        """
        made_up = self._inputs.made_up(np.random.default_rng(0), validation.whole("rows", rows, 1))
        return self._inputs.encode(made_up)

    def _made_up_rows(
        self,
        like: Rows,
        count: int | None = None,
        *,
        same_types: bool = True,
        are_whole: bool = False,
    ) -> Rows:
        """Returns raw rows that are made up, in the form of others; the same each time.

        Args:
            like: Rows of that form: a data frame, a mapping, an array, a list.
            count: How many ordinary ones; None for a few, with some that are hardly ordinary: with
                ends of ranges, missing values, and values out of range.
            same_types: Whether numbers have the types of ``like``.
            are_whole: Whether the numbers of a table's ordinary rows are rounded to whole ones.
        """
        rng = np.random.default_rng(0)
        ordinary = count or _FEW_ROWS
        rows, odd = self._inputs.made_up(rng, ordinary), self._inputs.odd()
        if not isinstance(self._inputs, TableInputs):
            made_up = rows if count else _joined(rows, odd)
            return frames.array_like(like, made_up, same_types=same_types)
        if self._target is not None and self._target_name in (frames.names_of(like) or ()):
            rows[self._target_name] = self._target.made_up(rng, ordinary)
            odd[self._target_name] = self._target.odd()
        if count is None:
            for place, (name, column) in enumerate(rows.items()):
                # A value that is missing where the row has others: most gaps are of that kind.
                column[place % ordinary] = odd[name][0]
            rows = {name: [*odd[name], *column] for name, column in rows.items()}
        if are_whole:
            rows = {
                name: [round(value) if isinstance(value, float) else value for value in column]
                for name, column in rows.items()
            }
        return frames.in_the_form_of(like, rows, same_types=same_types)

    # -- what is stated ---------------------------------------------------------------------------

    def words(self) -> dict[str, str]:
        """Returns what is public, by column, for a reader."""
        rows = self._inputs.words()
        if self._target is not None:
            rows[f"{self._target_name} (to be predicted)"] = self._target.in_words()
        if self.unit is not None:
            rows[f"{self.unit} (whose record it is)"] = f"at most {self.most} records of each"
        return rows

    def to_json(self) -> dict[str, object]:
        """Returns plain JSON values; :meth:`from_json` reads them back."""
        inputs: Any = self._inputs
        target = None if self._target is None else [self._target_name, self._target.to_json()]
        return {
            **_FORMAT,
            "inputs": inputs.to_json(),
            "target": target,
            "unit": self.unit,
            "most": self.most,
        }

    @classmethod
    def from_json(cls, data: JsonObject) -> Schema:
        """Reads what :meth:`to_json` wrote.

        Raises:
            InvalidArgumentError: If it is anything else.
        """
        try:
            name, column = data["target"] or (None, None)
            schema = cls.__new__(cls)
            schema._set(
                _INPUTS[data["inputs"]["kind"]].from_json(data["inputs"]),
                name,
                None if column is None else column_from_json(column),
                data["unit"],
                data["most"],
            )
            is_same = schema.to_json() == data
            is_same = is_same and all(
                text is None or isinstance(text, str) for text in (name, schema.unit)
            )
        except OptunaDPError:
            raise
        except Exception:  # Damaged in any way.
            is_same = False
        if not is_same:
            raise InvalidArgumentError(
                "data",
                Text(f"a {type(data).__name__}"),
                allowed="it must be what to_json returned",
            )
        return schema


# Ordinary rows that a function is tried on.
_FEW_ROWS = 16


def _joined(rows: Rows, odd: Rows) -> Rows:
    if isinstance(rows, list):
        return [*odd, *rows]
    return np.concatenate([odd, rows])
