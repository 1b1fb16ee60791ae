"""Records that were prepared by what is public about them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from optuna_dp.core.value_types import JsonObject
from optuna_dp.errors import MissingExtraError
from optuna_dp.training.record_arrays import Array

if TYPE_CHECKING:
    import torch

# What a statement says of how records were prepared.
BY_SCHEMA, BY_ROW, AS_GIVEN = "by schema", "prepared row by row", "as given"
WORDS = (BY_SCHEMA, BY_ROW, AS_GIVEN)


@dataclass(frozen=True, eq=False)
class NewRows:
    """The preparation of rows that are to be predicted, where a function of the script does it.

    It is in memory only: a copy that is pickled leaves the functions out, because not every
    function can be stored, and a training must not be lost by that.

    Attributes:
        features: From rows as they come to inputs of the model; None if it is not known.
        decode: From outputs of the model to names or units of targets; None if these are not
            known.
    """

    features: Callable[[Any], npt.NDArray[Any]] | None = None
    decode: Callable[[npt.NDArray[Any]], npt.NDArray[Any]] | None = None

    def __reduce__(self) -> tuple[type[NewRows], tuple[()]]:
        return NewRows, ()


@dataclass(frozen=True, eq=False)
class PreparedRecords:
    """Records as :meth:`optuna_dp.Schema.encode` returns them.

    They are given to :func:`optuna_dp.train` as they are. The arrays cannot be written to, because
    numbers computed from all of them would not be private. Give ``encode`` a function ``prepare``
    for what else is to be made of a record.

    Attributes:
        x: The features, shape (n, ...).
        y: The targets, shape (n,); None if there are none. Classes are whole numbers from 0 on,
            and -100 for a value that is no class of the schema: such a record has no loss. Numbers
            lie between -1 and 1, and are NaN where missing.
        task: What is predicted: "classes", "number", or None.
        made_up_inputs: Inputs that look like these and are none of them, for the rehearsal.
        notes: What the statement says of the preparation.
        ranges: Ranges that were drawn with noise, by the column's name.
        new_rows: How rows to be predicted are prepared, where a function prepared these.
    """

    x: npt.NDArray[Any] = field(repr=False)
    y: npt.NDArray[Any] | None = field(repr=False)
    task: str | None
    made_up_inputs: Array = field(repr=False)
    notes: JsonObject = field(repr=False)
    ranges: Mapping[str, list[float]] = field(default_factory=dict, repr=False)
    new_rows: NewRows = field(default=NewRows(), repr=False)

    def __post_init__(self) -> None:
        for array in self.parts:
            array.flags.writeable = False

    def __len__(self) -> int:
        return len(self.x)

    @property
    def parts(self) -> tuple[npt.NDArray[Any], ...]:
        """The features, and the targets if there are any."""
        return (self.x,) if self.y is None else (self.x, self.y)

    @property
    def width(self) -> int:
        """How many features a record has: the length of the first axis of one."""
        return int(np.prod(self.x.shape[1:]))

    def tensors(self) -> tuple[torch.Tensor, ...]:
        """Returns copies of the arrays as tensors of PyTorch, to look at or to predict from.

        Raises:
            MissingExtraError: If PyTorch is not installed.
        """
        try:
            import torch  # An extra.
        except ImportError:
            raise MissingExtraError("torch", "torch") from None
        return tuple(torch.tensor(array) for array in self.parts)
