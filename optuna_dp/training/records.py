"""The records of a training: arrays whose first axis is that of the records, or a data set.

The engine draws among all of them, so they must be all the records, each once. What draws by
itself (a loader, a sampler, an iterable data set) is refused, and so is what holds a record twice.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Mapping
from typing import Protocol

import numpy as np
import numpy.typing as npt

from optuna_dp.errors import InvalidArgumentError, Text, type_of
from optuna_dp.training.data_sets import DataSet, first_arrays, holders_of, origins
from optuna_dp.training.prepared import PreparedRecords
from optuna_dp.training.record_arrays import (
    Array,
    Part,
    Parts,
    is_array,
    is_dense,
    is_same,
    leaves,
    mapped,
    records_overlap,
    rows_of,
)

_logger = logging.getLogger("optuna_dp")
# Of the planned number of records: beyond the first the log says so, beyond the second what it
# means.
_REMARKABLE_SHARE, _LARGEST_FACTOR = 0.1, 2.0
# A list of so few long arrays was meant to be a tuple of the parts of the records.
_FEW = 4
_OF_A_TABLE = (
    "Say what is public about the table: records=schema.encode(table), with schema = "
    "odp.Schema(age=(20, 80), ..., target='...')."
)
# What draws by itself, by the end of its name in PyTorch, and what to give in its place.
_DRAWS = {
    "DataLoader": "Give what the loader reads: pass loader.dataset.",
    "Sampler": "Give the data set that it samples from.",
    "IterableDataset": "Give a data set whose items are found by their index.",
}


class Records(Protocol):
    """All the records, each once."""

    def __len__(self) -> int:
        """Returns how many records there are."""
        ...

    def take(self, indices: npt.NDArray[np.int64]) -> Parts:
        """Returns some records: their parts, each with the records along its first axis.

        Args:
            indices: Which records, at least one.
        """

    def holders(self) -> list[object]:
        """Returns the arrays, or the data set and what it is seen to hold of each record."""

    def first_arrays(self) -> list[Array]:
        """Returns the arrays, or those of the first few items of a data set."""


class ArrayRecords(Records):
    """Records in arrays.

    Args:
        parts: The parts of a record; each an array, or a tuple or mapping of arrays, all of the
            same length.
        name: The argument that they were given as.
    """

    def __init__(self, parts: Parts, name: str) -> None:
        # A mapping of a script's own may hold other arrays later.
        self._parts = tuple(mapped(lambda array: array, part) for part in parts)
        self._arrays = leaves(self._parts)
        for array in self._arrays:
            if isinstance(array, np.ndarray) and array.dtype.kind not in "biufc":
                raise InvalidArgumentError(
                    name,
                    Text(f"an array of type {array.dtype}"),
                    problem="texts, dates and objects are no numbers",
                    fix="Say what is public about them, and encode them: odp.Schema(y=['no', "
                    "'yes'], ..., target='y').encode(table).",
                )
            if not is_array(array) or not array.ndim:
                fix = "For example numpy.asarray(y)."
                if hasattr(array, "to_numpy"):
                    fix = f"{_OF_A_TABLE} Numbers that need no scaling: table.to_numpy()."
                raise InvalidArgumentError(
                    name,
                    Text(f"records with a {type(array).__name__}"),
                    allowed="each part must be a tensor or an array with the records along its "
                    "first axis",
                    fix=fix,
                )
            if not is_dense(array):
                raise InvalidArgumentError(
                    name,
                    Text("a sparse or nested tensor"),
                    problem="its records cannot be drawn one by one",
                    fix="Give a dense tensor, x.to_dense() or torch.nested.to_padded_tensor(x, "
                    "0), or a data set.",
                )
        lengths = {len(array) for array in self._arrays}
        if len(lengths) != 1 or 0 in lengths:
            raise InvalidArgumentError(
                name,
                Text(f"arrays of lengths {sorted(lengths)}"),
                allowed="all parts of the records must have the same length, and there must be "
                "a record",
                fix="The first axis of each array is that of the records.",
            )
        for array in self._arrays:
            if records_overlap(array):
                raise InvalidArgumentError(
                    name,
                    Text(f"an array of shape {tuple(array.shape)}"),
                    problem="two of its records share memory, as repeated records and "
                    "overlapping windows of one series do; one person may then be in many "
                    "records",
                    fix="Give each person's data once. If every record really is one unit that is "
                    "protected, give a copy: x.clone(), or numpy.array(x).",
                )

    def __len__(self) -> int:
        return len(self._arrays[0])

    def take(self, indices: npt.NDArray[np.int64]) -> Parts:
        return tuple(mapped(lambda array: rows_of(array, indices), part) for part in self._parts)

    def holders(self) -> list[object]:
        return self._arrays

    def first_arrays(self) -> list[Array]:
        return self._arrays


class DataSetRecords(Records):
    """Records in a map-style data set: one item is one record.

    Args:
        data_set: Anything with a length whose items are found by their index.
        name: The argument that it was given as.

    Attributes:
        data_set: As above.
    """

    def __init__(self, data_set: DataSet, name: str) -> None:
        self.data_set = data_set
        self._length = len(data_set)  # It is drawn from as it is now.
        if not self._length:
            raise InvalidArgumentError(name, type_of(data_set), allowed="it must hold a record")
        numbers = origins(data_set, {})
        if len(np.unique(numbers)) < len(numbers):
            raise InvalidArgumentError(
                name,
                type_of(data_set),
                problem="it holds a record twice, so one person would count twice",
                fix="Give each record once. Draw augmentations at random in __getitem__, or "
                "average them in record_loss.",
            )

    def __len__(self) -> int:
        return self._length

    def take(self, indices: npt.NDArray[np.int64]) -> Parts:
        import torch  # An extra.

        items = [self.data_set[int(index)] for index in indices]
        try:
            batch = torch.utils.data.default_collate(items)
        except (RuntimeError, TypeError) as error:
            raise InvalidArgumentError(
                "records",
                type_of(self.data_set),
                allowed="its items must be tensors, arrays or numbers of the same shapes, or "
                "tuples or mappings of them",
                fix="Pad the items to one length in __getitem__, and turn texts into numbers.",
            ) from error
        return tuple(batch) if isinstance(items[0], tuple | list) else (batch,)

    def holders(self) -> list[object]:
        return holders_of(self.data_set)

    def first_arrays(self) -> list[Array]:
        return first_arrays(self.data_set)


def read_records(records: object, name: str = "records") -> Records:
    """Returns records as they were given to :func:`optuna_dp.train`.

    Args:
        records: Records by a schema; a tensor or numpy array, a tuple or mapping of these, or a
            map-style data set.
        name: The argument that they were given as.

    Raises:
        InvalidArgumentError: If it is nothing of the kind, draws by itself, or holds a record
            twice.
    """
    if isinstance(records, PreparedRecords):
        return ArrayRecords(records.parts, name)
    _refuse_what_draws(records, name)
    if is_array(records) or isinstance(records, Mapping):
        return ArrayRecords((records,), name)
    if isinstance(records, tuple):
        return ArrayRecords(records, name)
    # PyTorch's own class for tensors of equal length.
    if type(records).__name__ == "TensorDataset" and hasattr(records, "tensors"):
        return ArrayRecords(tuple(records.tensors), name)
    if isinstance(records, list) and 0 < len(records) <= _FEW and all(map(is_array, records)):
        lengths = {len(part) if part.ndim else 0 for part in records}
        if lengths == {max(lengths)} and max(lengths) > _FEW:
            raise InvalidArgumentError(
                name,
                Text(f"a list of {len(records)} arrays"),
                problem="an item of a list is one record, and these look like the parts of all "
                "records",
                fix="Give a tuple: records=(x, y).",
            )
    is_table = hasattr(records, "iloc") or hasattr(records, "to_numpy")
    has_items = hasattr(records, "__len__") and hasattr(type(records), "__getitem__")
    # A text is no data set, nor a table of pandas, whose items are its columns.
    is_data_set = has_items and not (isinstance(records, str | bytes) or hasattr(records, "iloc"))
    if is_data_set and "torch" in sys.modules:
        return DataSetRecords(records, name)
    fix = "For example records=(x, y), with the records along the first axis of each."
    if is_table:
        fix = _OF_A_TABLE
    raise InvalidArgumentError(
        name,
        Text(f"a {type(records).__name__}"),
        allowed="it must be a tensor or an array, a tuple or mapping of these, or a map-style "
        "data set",
        fix=fix,
    )


def warn_of_number(records: Records, planned: float, name: str = "records") -> None:
    """Says in the log that the number of records is unlike the planned one.

    Nothing is refused, because the number is private, and a run that fails shows it. No guarantee
    depends on it: each record joins a step with the planned chance, and sums are divided by
    public numbers.

    Args:
        records: The records.
        planned: The public number that the plan was made for.
        name: The argument that they were given as.
    """
    factor = len(records) / planned
    if abs(factor - 1.0) <= _REMARKABLE_SHARE:
        return
    if not 1 / _LARGEST_FACTOR <= factor <= _LARGEST_FACTOR:
        _logger.warning(
            "The training has less than half or more than twice the %.0f %s that its plan was "
            "made for. Are these the right ones, or is the plan for others? Batches differ from "
            "the planned ones in the same proportion, and a score is no accuracy then: it is the "
            "sum over the records divided by the planned number. Make another plan with about "
            "the right number, rounded if the exact one is private.",
            planned,
            name,
        )
        return
    _logger.warning(
        "The training has more than 10 %% more or fewer %s than the %.0f that its plan was made "
        "for. Its batches differ from the planned ones in the same proportion.",
        name,
        planned,
    )


def refuse_as_inputs(inputs: Part, *private: Records | None) -> None:
    """Refuses inputs of a rehearsal that are private records, where that can be seen.

    Args:
        inputs: What the model would be called with.
        private: Records that the rate must not depend on; None for none.

    Raises:
        InvalidArgumentError: If some of them share memory.
    """
    input_arrays = leaves(tuple(inputs) if isinstance(inputs, list) else inputs)
    holders = [
        holder for records in private if records is not None for holder in records.holders()
    ]
    if any(is_same(array, holder) for array in input_arrays for holder in holders):
        raise private_inputs("some of the private records")


def private_inputs(found: str) -> InvalidArgumentError:
    """Returns the error for inputs of a rehearsal that are private records.

    Args:
        found: What the inputs are.
    """
    return InvalidArgumentError(
        "inputs",
        Text(found),
        problem="the learning rate is rehearsed on them without noise, so they must be made "
        "up or public",
        fix="Describe what is public about a record: odp.made_up_images(1, 28, 28), "
        "odp.made_up_tokens(vocabulary, length) or odp.made_up_inputs(...).",
    )


def _refuse_what_draws(records: object, name: str) -> None:
    """Refuses what draws records by itself: the engine does."""
    data = sys.modules.get("torch.utils.data")
    for kind, remedy in _DRAWS.items() if data is not None else ():
        if isinstance(records, getattr(data, kind)):
            raise InvalidArgumentError(
                name,
                type_of(records),
                problem="it draws records by itself, and only the engine's own draws are private",
                fix=remedy,
            )
