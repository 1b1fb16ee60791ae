"""What can be seen of a map-style data set: its arrays, and whether two items are one record."""

from __future__ import annotations

import sys
from collections.abc import Hashable, Mapping
from typing import Any, TypeAlias, TypeGuard

import numpy as np
import numpy.typing as npt

from optuna_dp.training.record_arrays import (
    Array,
    arrays_of_item,
    is_array,
    is_tensor,
    leaves,
)

# A map-style data set: anything with a length whose items are found by their index. PyTorch's own
# class declares no length.
DataSet: TypeAlias = Any

# More than any data set holds.
_MOST_RECORDS = 1 << 40
# Of a data set, to see whether they are views of given arrays.
_ITEMS_LOOKED_AT = 16


def holders_of(data_set: DataSet) -> list[object]:
    """Returns a data set, the data sets under it, and what they hold one of for each record.

    Arrays, lists and tables as long as one of the data sets hold its records, and so do the items
    of such lists. Other arrays, such as a mean to subtract, are no records.
    """
    holders: list[object] = []
    visited_ids: set[int] = set()
    waiting, lengths = [data_set], {len(data_set)}
    while waiting:
        holder = waiting.pop()
        if id(holder) in visited_ids:
            continue
        visited_ids.add(id(holder))
        holders.append(holder)
        if isinstance(holder, list | tuple):
            holders += [array for item in holder for array in arrays_of_item(item)]
        if isinstance(holder, list | tuple) or is_array(holder):
            continue
        values = _attributes(holder)
        lengths.update(len(value) for value in values if _is_data_set(value))
        waiting += [value for value in values if _length(value) in lengths]
    return holders


def first_arrays(data_set: DataSet) -> list[Array]:
    """Returns the arrays of the first few items of a data set, as far as they can be read."""
    arrays: list[Array] = []
    for index in range(min(len(data_set), _ITEMS_LOOKED_AT)):
        try:
            arrays += arrays_of_item(data_set[index])
        except Exception:  # A broken record, which counts as zero.
            continue
    return arrays


def origins(data_set: DataSet, numbers: dict[Hashable, int]) -> npt.NDArray[np.int64]:
    """Returns a number for each item of a data set; equal ones for what is the same item.

    Args:
        data_set: A data set; PyTorch's subsets and concatenations are looked into.
        numbers: The numbers of the data sets that were met; it is filled.
    """
    import torch  # An extra.

    if isinstance(data_set, torch.utils.data.Subset):
        return origins(data_set.dataset, numbers)[np.asarray(data_set.indices, dtype=np.int64)]
    if isinstance(data_set, torch.utils.data.ConcatDataset):
        return np.concatenate([origins(part, numbers) for part in data_set.datasets])
    if isinstance(data_set, list):
        # Below zero, where no item of another data set is.
        keys = [numbers.setdefault(_item_key(item), len(numbers)) for item in data_set]
        return -1 - np.array(keys, dtype=np.int64)
    data_sets = [part for part in _attributes(data_set) if _is_data_set(part)]
    if len(data_sets) == 1 and len(data_sets[0]) == len(data_set):
        # It changes each item, as by a random augmentation.
        return origins(data_sets[0], numbers)
    key: Hashable = id(data_set)
    if isinstance(data_set, torch.utils.data.TensorDataset):
        key = tuple(tensor.data_ptr() for tensor in data_set.tensors)
    number = numbers.setdefault(key, len(numbers))
    return number * _MOST_RECORDS + np.arange(len(data_set))


def _attributes(holder: object) -> list[object]:
    """Returns what a data set keeps, and the arrays in its tuples, lists and mappings."""
    values = list(getattr(holder, "__dict__", {}).values())
    groups = [value for value in values if isinstance(value, Mapping | list | tuple)]
    arrays = [array for group in groups for array in arrays_of_item(group)]
    return [value for value in values if not isinstance(value, Mapping | str | bytes)] + arrays


def _is_data_set(value: object) -> TypeGuard[DataSet]:
    torch = sys.modules.get("torch")
    return (
        torch is not None
        and isinstance(value, torch.utils.data.Dataset)
        and _length(value) is not None
    )


def _length(value: Any) -> int | None:
    try:
        return len(value)
    except Exception:  # No length, or none without axes.
        return None


def _item_key(item: object) -> Hashable:
    """Returns what is equal for two items of a list that are views of the same arrays."""
    parts = leaves(tuple(item) if isinstance(item, list) else item)
    if not any(map(is_array, parts)):
        return id(item)
    return tuple(map(_part_key, parts))


def _part_key(part: object) -> Hashable:
    if isinstance(part, np.ndarray):
        return (part.__array_interface__["data"][0], part.strides, part.shape)
    if is_tensor(part) and part.numel():
        return (part.data_ptr(), part.stride(), part.shape)
    return part if isinstance(part, int | float | str | bytes) else id(part)
