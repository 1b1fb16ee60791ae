"""What a private training needs of a model: gradients record by record, steps, and scores."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from optuna_dp.arrays import FloatArray
from optuna_dp.training.records import Records

# The norm that gradients are clipped to is smaller than the one that the noise is for by this
# share, so that the rounding of a norm and of a factor never makes a record count for more.
CLIPPING_MARGIN = 1e-5


class Weights(Protocol):
    """The numbers of a model that are trained, and the optimizer that steps them.

    Attributes:
        weights: How many numbers are trained.
        sgd_momentum: The momentum of the optimizer, if it is plain SGD; None for others.
    """

    weights: int

    @property
    def sgd_momentum(self) -> float | None: ...

    def begin(self, optimizer: Any, learning_rate: float) -> None:
        """Makes the optimizer.

        Args:
            optimizer: A name, or a function that makes one.
            learning_rate: The rate of the first step.
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


class Rehearsable(Weights, Protocol):
    """Weights that can be trained on noise alone, to see what that does to the output."""

    def noise(self, draw: int) -> Callable[[float], list[Any]]:
        """Returns a function from a standard deviation to a gradient that is noise alone.

        Nothing is protected by this noise, so it repeats.

        Args:
            draw: Which noise; different numbers make independent noise.
        """

    def outputs(self, inputs: Any) -> FloatArray:
        """Returns the model's output on made-up inputs, shape (rows, classes).

        The model is in evaluation mode.

        Args:
            inputs: What the model is called with; no records.
        """


class Learner(Rehearsable, Protocol):
    """A model with its loss and its score, each of them a function of one record.

    Attributes:
        on_processor: Whether the weights are in the memory of the processor.
        chunk_size: How many records' gradients are computed at a time.
    """

    on_processor: bool
    chunk_size: int

    def try_out(self, records: Records, score_records: Records | None) -> None:
        """Computes losses and scores of made-up records, and refuses what cannot be private.

        Args:
            records: The training's records; only the shapes of their parts are used.
            score_records: Those of the score; None if none is computed.
        """

    def default_inputs(self, records: Records) -> Any:
        """Returns made-up inputs, where they can be known without a schema; None elsewhere.

        Args:
            records: The training's records; only the shape of the first one is used.
        """

    def keep_in_mind(self) -> None:
        """Notes how everything but the weights is now, for :meth:`check_unchanged`."""

    def clipped_sum(self, records: Records, batch: npt.NDArray[np.int64]) -> list[Any]:
        """Returns the sum of the clipped gradients of some records, a vector for each weight.

        Args:
            records: The training's records.
            batch: The indices of those in this step; there may be none.
        """

    def check_unchanged(self) -> None:
        """Raises :class:`PlanError` if anything but the weights has changed since the set-up."""

    def scores(self, records: Records) -> FloatArray:
        """Returns a number in [0, 1] for each record, shape (n,)."""

    def close(self) -> None:
        """Puts the model back where it was, with its weights as they are."""


def chunks(indices: npt.NDArray[np.int64], chunk_size: int) -> list[npt.NDArray[np.int64]]:
    """Returns indices in pieces of a size; no piece of no indices."""
    return [indices[i : i + chunk_size] for i in range(0, len(indices), chunk_size)]
