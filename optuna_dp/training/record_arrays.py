"""Arrays of records: numpy's and PyTorch's, by themselves or in tuples and mappings."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias, TypeGuard, TypeVar

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    import torch

# An array of numpy or a tensor of PyTorch: no type has what both of them have.
Array: TypeAlias = Any
# Where what comes out is of the kind that went in.
SameArray = TypeVar("SameArray", npt.NDArray[Any], "torch.Tensor")
# A part of records: an array, or a tuple or a mapping of parts.
Part: TypeAlias = Any
# The parts of records; a part that is an array has the records along its first axis.
Parts: TypeAlias = tuple[Part, ...]


def mapped(function: Callable[[Array], object], part: Part) -> Part:
    """Returns a part of records with a function applied to each of its arrays."""
    if isinstance(part, Mapping):
        return {key: mapped(function, value) for key, value in part.items()}
    if isinstance(part, tuple):
        return tuple(mapped(function, value) for value in part)
    return function(part)


def leaves(part: Part) -> list[Array]:
    """Returns the arrays of a part of records."""
    arrays: list[Array] = []
    mapped(arrays.append, part)
    return arrays


def arrays_of_item(item: object) -> list[Array]:
    """Returns the arrays of one item of a data set."""
    parts = tuple(item) if isinstance(item, list) else item
    return [array for array in leaves(parts) if is_array(array)]


def is_array(value: object) -> TypeGuard[Array]:
    """Returns whether a value is an array of numpy or a tensor of PyTorch."""
    return isinstance(value, np.ndarray) or is_tensor(value)


def is_tensor(value: object) -> TypeGuard[torch.Tensor]:
    """Returns whether a value is a tensor of PyTorch."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.Tensor)


def some_rows(part: Part, most: int) -> Part:
    """Returns some rows of a batch, spread evenly over it.

    Args:
        part: An array, or a tuple or mapping of these. Arrays that have not as many rows as the
            first one are left as they are.
        most: How many rows there are at most.
    """
    arrays = [array for array in leaves(part) if is_array(array) and array.ndim]
    rows = len(arrays[0]) if arrays else 0
    if rows <= most:
        return part

    def taken(array: Array) -> Array:
        is_batch = is_array(array) and array.ndim and len(array) == rows
        return array[:: rows // most][:most] if is_batch else array

    return mapped(taken, part)


def is_dense(array: Array) -> bool:
    """Returns whether an array is neither sparse nor nested."""
    if isinstance(array, np.ndarray):
        return True
    import torch  # An extra.

    return array.layout is torch.strided and not array.is_nested


def rows_of(array: SameArray, indices: npt.NDArray[np.int64]) -> SameArray:
    """Returns some records of an array, of a type that PyTorch has."""
    if isinstance(array, np.ndarray):
        rows = array[indices]
        if rows.dtype == np.longdouble:  # PyTorch has neither these nor another byte order.
            rows = rows.astype(np.float64)
        return rows.astype(rows.dtype.newbyteorder("="), copy=False)
    import torch  # An extra.

    return array[torch.from_numpy(indices).to(array.device)]


def overlap(array: Array, other_array: Array) -> bool:
    """Returns whether two arrays share memory of the processor."""
    try:
        array, other_array = (a.detach() if is_tensor(a) else a for a in (array, other_array))
        return np.shares_memory(np.asarray(array), np.asarray(other_array))
    except (RuntimeError, TypeError):
        return False  # On a GPU, or of a type that numpy does not have.


def is_same(value: object, other_value: object) -> bool:
    """Returns whether two values are one object, or arrays that share memory."""
    if value is other_value:
        return True
    return is_array(value) and is_array(other_value) and overlap(value, other_value)


def records_overlap(array: Array) -> bool:
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
