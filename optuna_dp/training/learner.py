"""What a private training needs of a model: gradients record by record, steps, and scores."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from optuna_dp.arrays import FloatArray
from optuna_dp.training.records import Records

# The norm that gradients are clipped to is smaller than the one that the noise is for by this
# share, so that the rounding of a norm and of a factor never makes a record count for more.
CLIPPING_MARGIN = 1e-5


class Learner(Protocol):
    """A model with its loss and its score, each of them a function of one record.

    Attributes:
        weights: How many numbers are trained.
        on_processor: Whether they are in the memory of the processor.
        chunk_size: How many records' gradients are computed at a time.
    """

    weights: int
    on_processor: bool
    chunk_size: int

    def try_out(self, records: Records, score_records: Records | None) -> None:
        """Computes losses and scores of made-up records, and refuses what cannot be private.

        Args:
            records: The training's records; only the shapes of their parts are used.
            score_records: Those of the score; None if none is computed.
        """

    def begin(self, optimizer: Any, learning_rate: float) -> None:
        """Makes the optimizer.

        Args:
            optimizer: A name, or a function that makes one.
            learning_rate: The rate of the first step.
        """

    def clipped_sum(self, records: Records, batch: npt.NDArray[np.int64]) -> list[Any]:
        """Returns the sum of the clipped gradients of some records, a vector for each weight.

        Args:
            records: The training's records.
            batch: The indices of those in this step; there may be none.
        """

    def step(self, gradient: list[Any], factor: float) -> None:
        """Takes a step of the optimizer.

        Args:
            gradient: The noisy gradient, as vectors.
            factor: What the rate is multiplied by.
        """

    def weight_values(self) -> list[Any]:
        """Returns copies of the weights in double precision."""

    def set_weights(self, values: list[Any]) -> None:
        """Puts values in place of the weights."""

    def check_unchanged(self) -> None:
        """Raises :class:`PlanError` if anything but the weights has changed since the set-up."""

    def scores(self, records: Records) -> FloatArray:
        """Returns a number in [0, 1] for each record, shape (n,)."""

    def close(self) -> None:
        """Puts the model back where it was, with its weights as they are."""


def chunks(indices: npt.NDArray[np.int64], chunk_size: int) -> list[npt.NDArray[np.int64]]:
    """Returns indices in pieces of a size; no piece of no indices."""
    return [indices[i : i + chunk_size] for i in range(0, len(indices), chunk_size)]
