"""The records of a training: arrays whose first axis is that of the records, or a data set.

The engine draws among all of them, so they must be all the records, each once. What draws by
itself (a loader, a sampler, an iterable data set) is refused, and so is what holds a record twice.
"""

from __future__ import annotations

import logging
import math
import sys
from collections.abc import Callable, Mapping
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from optuna_dp.errors import Described, InvalidArgumentError
from optuna_dp.training.copied_records import are_copied
from optuna_dp.training.prepared import PreparedRecords

_logger = logging.getLogger("optuna_dp")
# Of the planned number of records: beyond the first a warning, beyond the second a refusal.
_REMARKABLE_SHARE, _LARGEST_FACTOR = 0.1, 2.0
# A list of so few long arrays was meant to be a tuple of the parts of the records.
_FEW = 4


class Records(Protocol):
    """All the records, each once."""

    def __len__(self) -> int:
        """Returns how many records there are."""
        ...

    def take(self, indices: npt.NDArray[np.int64]) -> tuple[Any, ...]:
        """Returns some records: their parts, each with the records along its first axis.

        Args:
            indices: Which records, at least one.
        """

    def holders(self) -> list[Any]:
        """Returns the arrays, or the data set and what it is seen to hold of each record."""


class ArrayRecords(Records):
    """Records in arrays.

    Args:
        parts: The parts of a record; each an array, or a tuple or mapping of arrays, all of the
            same length.
        name: The argument that they were given as.
    """

    def __init__(self, parts: tuple[Any, ...], name: str) -> None:
        # A mapping of a script's own may hold other arrays later.
        self._parts = tuple(mapped(lambda array: array, part) for part in parts)
        self._arrays = leaves(self._parts)
        for array in self._arrays:
            if isinstance(array, np.ndarray) and array.dtype.kind not in "biufc":
                raise InvalidArgumentError(
                    name,
                    Described(f"an array of type {array.dtype}"),
                    "texts, dates and objects are no numbers",
                    "Say what is public about them, and encode them: odp.Schema(y=['no', 'yes'], "
                    "...).",
                )
            if not is_array(array) or not array.ndim:
                raise InvalidArgumentError(
                    name,
                    f"records with a {type(array).__name__}",
                    "each part must be a tensor or an array with the records along its first axis",
                    "Say what is public about the table, and encode it: odp.Schema(...)."
                    if hasattr(array, "to_numpy")
                    else "For example numpy.asarray(y).",
                )
            if not isinstance(array, np.ndarray) and not _is_dense(array):
                raise InvalidArgumentError(
                    name,
                    "a sparse or nested tensor",
                    "its records cannot be drawn one by one",
                    "Give a dense tensor, x.to_dense() or torch.nested.to_padded_tensor(x, 0), or "
                    "a data set.",
                )
        lengths = {len(array) for array in self._arrays}
        if len(lengths) != 1 or 0 in lengths:
            raise InvalidArgumentError(
                name,
                f"arrays of lengths {sorted(lengths)}",
                "all parts of the records must have the same length, and there must be a record",
                "The first axis of each array is that of the records.",
            )
        for array in self._arrays:
            if _shares_memory(array):
                raise InvalidArgumentError(
                    name,
                    f"an array of shape {tuple(array.shape)}",
                    "two of its records share memory, as repeated records and overlapping windows "
                    "of one series do; one person may then be in many records",
                    "Give each person's data once. If every record really is one unit that is "
                    "protected, give a copy: x.clone(), or numpy.array(x).",
                )

    def __len__(self) -> int:
        return len(self._arrays[0])

    def take(self, indices: npt.NDArray[np.int64]) -> tuple[Any, ...]:
        return tuple(mapped(lambda array: _rows(array, indices), part) for part in self._parts)

    def holders(self) -> list[Any]:
        return self._arrays


class DataSetRecords(Records):
    """Records in a map-style data set: one item is one record.

    Args:
        data_set: Anything with a length whose items are found by their index.
        name: The argument that it was given as.
    """

    def __init__(self, data_set: Any, name: str) -> None:
        self._data_set = data_set
        self._length = len(data_set)  # It is drawn from as it is now.
        if not self._length:
            raise InvalidArgumentError(name, data_set, "it must hold a record")
        origins = _origins(data_set, {})
        if len(np.unique(origins)) < len(origins):
            raise InvalidArgumentError(
                name,
                type(data_set).__name__,
                "it holds a record twice, so one person would count twice",
                "Give each record once. Draw augmentations at random in __getitem__, or average "
                "them in record_loss.",
            )

    def __len__(self) -> int:
        return self._length

    def has_some_of(self, other_records: DataSetRecords) -> bool:
        """Returns whether some records are in another data set as well, as far as can be seen."""
        numbers: dict[Any, int] = {}
        origins, other_origins = (
            _origins(data._data_set, numbers) for data in (self, other_records)
        )
        return bool(np.isin(origins, other_origins).any())

    def take(self, indices: npt.NDArray[np.int64]) -> tuple[Any, ...]:
        import torch  # An extra.

        items = [self._data_set[int(index)] for index in indices]
        try:
            batch = torch.utils.data.default_collate(items)
        except (RuntimeError, TypeError) as error:
            raise InvalidArgumentError(
                "records",
                type(self._data_set).__name__,
                "its items must be tensors, arrays or numbers of the same shapes, or tuples or "
                "mappings of them",
                "Pad the items to one length in __getitem__, and turn texts into numbers.",
            ) from error
        return tuple(batch) if isinstance(items[0], tuple | list) else (batch,)

    def holders(self) -> list[Any]:
        return _holders(self._data_set)

    def first_items(self) -> list[Any]:
        """Returns the arrays of the first few records, as far as they can be read."""
        arrays: list[Any] = []
        for index in range(min(len(self), _ITEMS_LOOKED_AT)):
            try:
                item = self._data_set[index]
            except Exception:  # A broken record, which counts as zero.
                continue
            arrays += _arrays_of(item)
        return arrays


def read_records(records: Any, name: str = "records") -> Records:
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
    is_data_set = hasattr(records, "__len__") and hasattr(type(records), "__getitem__")
    # A text is none, nor a table of pandas, whose items are its columns.
    is_other = isinstance(records, str | bytes) or hasattr(records, "iloc")
    if isinstance(records, list) and 0 < len(records) <= _FEW and all(map(is_array, records)):
        lengths = {len(part) if part.ndim else 0 for part in records}
        if lengths == {max(lengths)} and max(lengths) > _FEW:
            raise InvalidArgumentError(
                name,
                f"a list of {len(records)} arrays",
                "an item of a list is one record, and these look like the parts of all records",
                "Give a tuple: records=(x, y).",
            )
    if is_data_set and not is_other and "torch" in sys.modules:
        return DataSetRecords(records, name)
    raise InvalidArgumentError(
        name,
        Described(f"a {type(records).__name__}"),
        "it must be a tensor or an array, a tuple or mapping of these, or a map-style data set",
        "For a table: records=schema.encode(table), with schema = odp.Schema(age=(20, 80), ..., "
        "target='...')."
        if hasattr(records, "iloc") or hasattr(records, "to_numpy")
        else "For example records=(x, y), with the records along the first axis of each.",
    )


def check_number(records: Records, planned: float, name: str = "records") -> None:
    """Warns of a number of records unlike the planned one, and refuses one far from it.

    Args:
        records: The records.
        planned: The public number that the plan was made for.
        name: The argument that they were given as.

    Raises:
        InvalidArgumentError: If it is off by more than a factor of two.
    """
    factor = len(records) / planned
    if abs(factor - 1.0) <= _REMARKABLE_SHARE:
        return
    if not 1 / _LARGEST_FACTOR <= factor <= _LARGEST_FACTOR:
        maker, fix = "the plan was made for", "plan_budget(records=...)"
        if name == "score_records":
            maker, fix = "score_size says", "score_size=..."
        least, most = math.ceil(planned / _LARGEST_FACTOR), math.floor(planned * _LARGEST_FACTOR)
        raise InvalidArgumentError(
            name,
            Described(f"{len(records):,} records"),
            f"{maker} {planned:,.0f}, and from {least:,} to {most:,} are allowed",
            f"Give all of the records that were planned for, or another number: {fix}, rounded if "
            "the exact number is private.",
        )
    _logger.warning(
        "The training has more than 10 %% more or fewer %s than the %.0f that its plan was made "
        "for. Its batches differ from the planned ones in the same proportion.",
        name,
        planned,
    )


def check_disjoint(records: Records, scored: Records) -> None:
    """Refuses records to score that are among those that are trained on, where that can be seen.

    Args:
        records: The training's records.
        scored: The records to score.

    Raises:
        InvalidArgumentError: If some of them are the same.
    """
    if isinstance(records, DataSetRecords) and isinstance(scored, DataSetRecords):
        is_shared = records.has_some_of(scored)
    else:
        training_arrays, scored_arrays = (
            part.first_items() if isinstance(part, DataSetRecords) else part.holders()
            for part in (records, scored)
        )
        is_shared = any(overlap(a, b) for a in training_arrays for b in scored_arrays)
    if is_shared:
        raise InvalidArgumentError(
            "score_records",
            "some of the training's records",
            "the plan scores on public records, or on private ones that are never trained on, "
            "and one of these shares memory with the training's",
            "Give other records, or plan with score='training'.",
        )
    if (
        isinstance(records, ArrayRecords)
        and isinstance(scored, ArrayRecords)
        and are_copied(records.holders()[0], scored.holders()[0])
    ):
        raise InvalidArgumentError(
            "score_records",
            "copies of the training's records",
            "the plan scores on public records, or on private ones that are never trained on, "
            "and almost all of these are equal to records that are trained on",
            "Train on the others only, for example x[~is_held_out], or plan with "
            "score='training'.",
        )


def refuse_as_inputs(inputs: Any, *private: Records) -> None:
    """Refuses inputs of a rehearsal that are private records, where that can be seen.

    Args:
        inputs: What the model would be called with.
        private: Records that the rate must not depend on.

    Raises:
        InvalidArgumentError: If some of them share memory.
    """
    input_arrays = leaves(tuple(inputs) if isinstance(inputs, list) else inputs)
    record_arrays = [holder for records in private for holder in records.holders()]
    if any(
        input_array is record_array
        or (
            is_array(input_array) and is_array(record_array) and overlap(input_array, record_array)
        )
        for input_array in input_arrays
        for record_array in record_arrays
    ):
        raise InvalidArgumentError(
            "inputs",
            "some of the private records",
            "the learning rate is rehearsed on them without noise, so they must be made up or "
            "public",
            "Describe what is public about a record: odp.made_up_images(1, 28, 28), "
            "odp.made_up_tokens(vocabulary, length) or odp.made_up_inputs(...).",
        )


def mapped(function: Callable[[Any], Any], part: Any) -> Any:
    """Returns a part of records with a function applied to each of its arrays."""
    if isinstance(part, Mapping):
        return {key: mapped(function, value) for key, value in part.items()}
    if isinstance(part, tuple):
        return tuple(mapped(function, value) for value in part)
    return function(part)


def leaves(part: Any) -> list[Any]:
    """Returns the arrays of a part of records."""
    arrays: list[Any] = []
    mapped(arrays.append, part)
    return arrays


def is_array(value: Any) -> bool:
    """Returns whether a value is an array of numpy or a tensor of PyTorch."""
    return isinstance(value, np.ndarray) or _is_tensor(value)


def _is_tensor(value: Any) -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.Tensor)


def _is_dense(tensor: Any) -> bool:
    import torch  # An extra.

    return tensor.layout is torch.strided and not tensor.is_nested


def _rows(array: Any, indices: npt.NDArray[np.int64]) -> Any:
    if isinstance(array, np.ndarray):
        rows = array[indices]
        if rows.dtype == np.longdouble:  # PyTorch has neither these nor another byte order.
            rows = rows.astype(np.float64)
        return rows.astype(rows.dtype.newbyteorder("="), copy=False)
    import torch  # An extra.

    return array[torch.from_numpy(indices).to(array.device)]


def _shares_memory(array: Any) -> bool:
    """Returns whether the first two records of an array share memory.

    The strides decide, so a stand-in of the same strides is asked, whatever the device.
    """
    if len(array) < 2:
        return False
    if isinstance(array, np.ndarray):
        size, strides = array.itemsize, array.strides
    else:
        size = array.element_size()
        strides = tuple(size * stride for stride in array.stride())
    if strides[0] == 0:
        return True
    strides = tuple(map(abs, strides))
    lengths = array.shape[1:]
    span = size + sum(s * (n - 1) for s, n in zip(strides[1:], lengths, strict=True))
    if strides[0] >= span or 0 in lengths:
        return False
    memory = np.empty(span + strides[0], dtype=np.uint8)[:size].view(f"V{size}")
    pair = np.lib.stride_tricks.as_strided(memory, (2, *lengths), strides)
    return bool(np.shares_memory(pair[0], pair[1]))


def overlap(array: Any, other_array: Any) -> bool:
    """Returns whether two arrays share memory of the processor."""
    try:
        array, other_array = (a.detach() if _is_tensor(a) else a for a in (array, other_array))
        return np.shares_memory(np.asarray(array), np.asarray(other_array))
    except (RuntimeError, TypeError):
        return False  # On a GPU, or of a type that numpy does not have.


def _refuse_what_draws(records: Any, name: str) -> None:
    """Refuses what draws records by itself: the engine does."""
    remedies = {
        "DataLoader": "Give what the loader reads: pass loader.dataset.",
        "Sampler": "Give the data set that it samples from.",
        "IterableDataset": "Give a data set whose items are found by their index.",
    }
    for library in ("torch.utils.data", "torch.utils.data.sampler"):
        module = sys.modules.get(library)
        for kind, remedy in remedies.items():
            if isinstance(records, getattr(module, kind, ())):
                raise InvalidArgumentError(
                    name,
                    type(records).__name__,
                    "it draws records by itself, and only the engine's own draws are private",
                    remedy,
                )


# Of a data set, to see whether they are views of given arrays.
_ITEMS_LOOKED_AT = 16


def _arrays_of(item: Any) -> list[Any]:
    """Returns the arrays of one item of a data set."""
    parts = tuple(item) if isinstance(item, list) else item
    return [array for array in leaves(parts) if is_array(array)]


def _holders(data_set: Any) -> list[Any]:
    """Returns a data set, the data sets under it, and what they hold one of for each record.

    Arrays, lists and tables as long as one of the data sets hold its records, and so do the items
    of such lists. Other arrays, such as a mean to subtract, are the records' neighbours only.
    """
    holders: list[Any] = []
    visited_ids: set[int] = set()
    pending_holders, lengths = [data_set], {len(data_set)}
    while pending_holders:
        holder = pending_holders.pop()
        if id(holder) in visited_ids:
            continue
        visited_ids.add(id(holder))
        holders.append(holder)
        if isinstance(holder, list | tuple):
            holders += [array for item in holder for array in _arrays_of(item)]
            continue
        values: list[Any] = []
        for value in getattr(holder, "__dict__", {}).values():
            is_group = isinstance(value, Mapping | list | tuple) and len(value) not in lengths
            values += (
                leaves(tuple(value) if isinstance(value, list) else value) if is_group else []
            )
            values.append(value)
        data_sets = [value for value in values if _is_data_set(value)]
        lengths.update(map(len, data_sets))
        pending_holders += data_sets
        holders += [value for value in values if is_array(value) and _length(value) in lengths]
        pending_holders += [
            value
            for value in values
            if not isinstance(value, Mapping | str | bytes)
            and not is_array(value)
            and _length(value) in lengths
        ]
    return holders


def _length(value: Any) -> int | None:
    try:
        return len(value)
    except Exception:  # No length, or none without axes.
        return None


def _is_data_set(value: Any) -> bool:
    torch = sys.modules.get("torch")
    return (
        torch is not None
        and isinstance(value, torch.utils.data.Dataset)
        and _length(value) is not None
    )


# More than any data set holds.
_MOST_RECORDS = 1 << 40


def _origins(data_set: Any, numbers: dict[Any, int]) -> npt.NDArray[np.int64]:
    """Returns a number for each item of a data set; equal ones for what is the same item.

    Args:
        data_set: A data set; PyTorch's subsets and concatenations are looked into.
        numbers: The numbers of the data sets that were met.
    """
    import torch  # An extra.

    if isinstance(data_set, torch.utils.data.Subset):
        return _origins(data_set.dataset, numbers)[np.asarray(data_set.indices, dtype=np.int64)]
    if isinstance(data_set, torch.utils.data.ConcatDataset):
        return np.concatenate([_origins(part, numbers) for part in data_set.datasets])
    if isinstance(data_set, list):
        # Below zero, where no item of another data set is.
        keys = [numbers.setdefault(_item_key(item), len(numbers)) for item in data_set]
        return -1 - np.array(keys, dtype=np.int64)
    data_sets = [part for part in getattr(data_set, "__dict__", {}).values() if _is_data_set(part)]
    if len(data_sets) == 1 and len(data_sets[0]) == len(data_set):
        # It changes each item, as by a random augmentation.
        return _origins(data_sets[0], numbers)
    key: Any = id(data_set)
    if isinstance(data_set, torch.utils.data.TensorDataset):
        key = tuple(tensor.data_ptr() for tensor in data_set.tensors)
    number = numbers.setdefault(key, len(numbers))
    return number * _MOST_RECORDS + np.arange(len(data_set))


def _item_key(item: Any) -> Any:
    """Returns what is equal for two items of a list that are views of the same arrays."""
    parts = leaves(tuple(item) if isinstance(item, list) else item)
    if not any(map(is_array, parts)):
        return id(item)
    return tuple(map(_part_key, parts))


def _part_key(part: Any) -> Any:
    if isinstance(part, np.ndarray):
        return (part.__array_interface__["data"][0], part.strides, part.shape)
    if _is_tensor(part) and part.numel():
        return (part.data_ptr(), part.stride(), part.shape)
    return part if isinstance(part, int | float | str | bytes) else id(part)
