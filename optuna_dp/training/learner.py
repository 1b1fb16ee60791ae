"""What a private training needs of a model: sums of clipped gradients, steps, and scores."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from optuna_dp.core import validation
from optuna_dp.core.arrays import FloatArray
from optuna_dp.errors import InvalidArgumentError
from optuna_dp.training.exact_step import ExactStep
from optuna_dp.training.optimizers import OptimizerFactory
from optuna_dp.training.record_arrays import Array, Part
from optuna_dp.training.records import Records
from optuna_dp.training.schedules import Schedule

# Between them squares of gradients neither vanish nor overflow in single precision.
_SMALLEST_CLIPPING_NORM, _LARGEST_CLIPPING_NORM = 1e-9, 1e9


class Weights(Protocol):
    """The numbers of a model that are trained, and the optimizer that steps them.

    Attributes:
        weights: How many numbers are trained.
        sgd_momentum: The momentum of the optimizer, if it is plain SGD; None for others.
    """

    weights: int

    @property
    def sgd_momentum(self) -> float | None: ...

    def begin(self, optimizer: str | OptimizerFactory, learning_rate: float) -> None:
        """Makes the optimizer.

        Args:
            optimizer: A name, or a function that makes one.
            learning_rate: The rate of the first step.
        """

    def step(self, gradient: list[Array], factor: float) -> None:
        """Takes a step of the optimizer.

        Args:
            gradient: The noisy gradient, a vector for each parameter.
            factor: What the rate is multiplied by.
        """

    def weight_values(self) -> list[Array]:
        """Returns copies of the weights in double precision."""

    def set_weights(self, values: list[Array]) -> None:
        """Puts values in place of the weights."""


class Rehearsable(Weights, Protocol):
    """Weights that can be trained on noise alone, to see what that does to the output.

    Attributes:
        has_logits: Whether the outputs are known to be logits. Then a single one is that of two
            classes, and not the answer of a regression.
    """

    has_logits: bool

    def noise(self, draw: int) -> Callable[[float], list[Array]]:
        """Returns a function from a standard deviation to a gradient that is noise alone.

        Nothing is protected by this noise, so it repeats.

        Args:
            draw: Which noise; different numbers make independent noise.
        """

    def outputs(self, inputs: Part) -> FloatArray:
        """Returns the model's output on made-up inputs, shape (rows, classes or 1).

        The model is in evaluation mode.

        Args:
            inputs: What the model is called with; no records.
        """

    def sequence_layers(self, inputs: Part) -> set[str]:
        """Returns through what trained weights act on the output.

        "attention", "recurrence", both, or nothing of the kind.

        Args:
            inputs: As for :meth:`outputs`.
        """


class Learner(Rehearsable, Protocol):
    """A copy of a model, with its loss and its score, each of them a function of one record.

    Attributes:
        chunk_size: How many records' gradients are computed at a time.
        user_parts: What of the user's model is trained: its parameters.
        like: An array of the type and place of the gradients.
        seconds_of_a_record: If gradients are computed for one record after another, how long one
            takes; None if they are computed at once.
        reason_of_loop: Why they are computed so, in words.
        is_reproducible: Whether the same records give the same gradients, to the last bit.
    """

    chunk_size: int
    user_parts: list[Any]
    like: Array

    @property
    def seconds_of_a_record(self) -> float | None: ...

    @property
    def reason_of_loop(self) -> str: ...

    @property
    def is_reproducible(self) -> bool: ...

    def try_out(self, records: Records, score_records: Records | None) -> None:
        """Computes losses and scores of made-up records, and refuses what cannot be private.

        Args:
            records: The training's records; only the shapes of their parts are used.
            score_records: Those of the score; None if none is computed.
        """

    def default_inputs(self, records: Records) -> FloatArray | None:
        """Returns made-up inputs, where they can be known without a schema; None elsewhere.

        Args:
            records: The training's records; only the shape of the first one is used.
        """

    def example_of_inputs(self, records: Records) -> str:
        """Returns in words how inputs of a record's shape are made up; "" if that is not known.

        Args:
            records: The training's records; only the shape of the first one is used.
        """

    def hints(self, inputs: Part) -> list[str]:
        """Returns what a user should know of a model or a loss: that it compares records, say.

        Args:
            inputs: What the model is called with; no records. None if nothing is made up.
        """

    def is_dense_only(self) -> bool:
        """Returns whether it is linear layers and activations without norms, all trained."""

    def clipped_sum(
        self, records: Records, batch: npt.NDArray[np.int64], step: ExactStep
    ) -> list[Array]:
        """Returns the sum of the clipped gradients of some records, in units of the step's grid.

        Args:
            records: The training's records.
            batch: The indices of those in this step; there may be none.
            step: What clips and adds.
        """

    def scores(self, records: Records, indices: npt.NDArray[np.int64]) -> FloatArray:
        """Returns a number in [0, 1] for each of some records, shape (len(indices),).

        Args:
            records: The records that are scored.
            indices: Which of them.
        """

    def all_numbers(self) -> list[Array]:
        """Returns all numbers of the copy, also those that are not trained; not copied."""

    def hand_over(self) -> None:
        """Puts the trained weights into the user's model, and that into evaluation mode."""


def checked_clipping_norm(value: object) -> float:
    """Returns a clipping norm that gradients can be compared with, or raises an error."""
    norm = validation.positive("clipping_norm", value)
    if not _SMALLEST_CLIPPING_NORM <= norm <= _LARGEST_CLIPPING_NORM:
        raise InvalidArgumentError(
            "clipping_norm",
            value,
            allowed=f"it must be between {_SMALLEST_CLIPPING_NORM} and {_LARGEST_CLIPPING_NORM:g}",
        )
    return norm


def take_steps(
    weights: Weights,
    gradient: Callable[[int], list[Array]],
    steps: int,
    schedule: Schedule,
) -> None:
    """Takes all steps of a training, and leaves the average of the last weights if asked to.

    Args:
        weights: What is trained; its optimizer has been made.
        gradient: From the number of a step, from 0, to its noisy gradient.
        steps: How many steps there are.
        schedule: How the rate falls, and which of the last weights are averaged.
    """
    averaged_steps = schedule.averaged_steps(steps)
    averages: list[Array] = []
    for step in range(steps):
        weights.step(gradient(step), schedule.factor(step, steps))
        averaged = step - (steps - averaged_steps) + 1
        if averaged == 1:
            averages = weights.weight_values()
        elif averaged > 1:
            for average, value in zip(averages, weights.weight_values(), strict=True):
                average += (value - average) / averaged
    if averages:
        weights.set_weights(averages)
