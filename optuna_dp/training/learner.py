"""What a private training needs of a model: gradients record by record, steps, and scores."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Any, Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from optuna_dp import validation
from optuna_dp.arrays import FloatArray
from optuna_dp.errors import InvalidArgumentError
from optuna_dp.training.records import Records, mapped

# The norm that gradients are clipped to is smaller than the one that the noise is for by this
# share, so that the rounding of a norm and of a factor never makes a record count for more.
CLIPPING_MARGIN = 1e-5
# Squares of smaller numbers vanish in double precision.
_SMALLEST_CLIPPING_NORM = 1e-100
# Set on what a run has trained, so that no other run goes on with it.
TRAINED_BY = "optuna_dp_trained_by"
# Of a data set whose items may have different shapes, before the training.
RECORDS_LOOKED_AT = 16
_marking = threading.Lock()
_Value = TypeVar("_Value")


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

    def take_over(self, trial: int) -> None:
        """Marks what is trained as that of a trial; refuses what another run has trained.

        Args:
            trial: The trial's number.
        """

    def seed_readers(self, *records: Records) -> None:
        """Seeds the generators that data sets keep, by the operating system."""

    def trained_sizes(self) -> list[int]:
        """Returns how many bytes the numbers of each trained parameter have."""

    def trained_digests(self, sizes: Collection[int]) -> Iterator[tuple[int, bytes]]:
        """Yields size and digest of each trained parameter of one of some sizes, in bytes."""

    def used_digests(self, sizes: Collection[int]) -> Iterator[tuple[int, bytes]]:
        """Yields the same of all that the training uses, whether it is trained or not."""

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

    def is_dense_only(self) -> bool:
        """Returns whether it is linear layers and activations without norms, all trained."""

    def weights_digest(self) -> Callable[[], bytes]:
        """Returns a function that digests the model's numbers as they are when it is called.

        Those that are not trained as well. It keeps the model, and no records.
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


def checked_clipping_norm(value: Any) -> float:
    """Returns a clipping norm that gradients can be compared with, or raises an error."""
    norm = validation.positive("clipping_norm", value)
    if norm < _SMALLEST_CLIPPING_NORM:
        raise InvalidArgumentError(
            "clipping_norm", value, f"it must be at least {_SMALLEST_CLIPPING_NORM}"
        )
    return norm


def mark_as_trained(parts: Iterable[Any], trial: int, frozen: Iterable[Any] = ()) -> None:
    """Marks the parts of a model that are trained, and refuses those that a run has trained.

    Runs that go on with one another's model are not independent of each other. A private
    selection would charge for one of them.

    Args:
        parts: The trained parameters, or a model without any.
        trial: The number of the trial.
        frozen: What the training uses and does not change; it is not marked.

    Raises:
        InvalidArgumentError: If one of them is marked already.
    """
    parts = list(parts)
    used = [*parts, *frozen]
    with _marking:  # Of two threads with one model, one is refused.
        if any(getattr(part, TRAINED_BY, None) is not None for part in used):
            raise trained_before()
        for part in parts:
            setattr(part, TRAINED_BY, trial)


def trained_before() -> InvalidArgumentError:
    """Returns the error for a model that another run has trained, or a part of it."""
    return InvalidArgumentError(
        "model",
        "a model with weights that a run has trained",
        "another run has trained it, and a run has to begin anew",
        "Make the model inside the objective.",
    )


def by_chunk(
    compute: Callable[[npt.NDArray[np.int64]], _Value],
    indices: npt.NDArray[np.int64],
    chunk_size: int,
) -> Iterator[tuple[npt.NDArray[np.int64], _Value | None]]:
    """Yields what is computed of records, some at a time.

    If some of them raise an error, they are computed one by one, and nothing is computed of a
    record that raises one by itself: a label that is no class, a broken file, another shape.
    Otherwise a single record would decide whether a run fails, and no noise would hide it.

    Args:
        compute: What is computed of some records, by their indices.
        indices: The records.
        chunk_size: How many are computed at a time.

    Yields:
        Indices, and what was computed of them; None of a record that raises an error.

    Raises:
        MemoryError: If the memory is too small for some of them.
    """
    for start in range(0, len(indices), chunk_size):
        chunk = indices[start : start + chunk_size]
        try:
            value = compute(chunk)
        except Exception as error:
            if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":
                raise
            if len(chunk) == 1:
                yield chunk, None
            else:
                yield from by_chunk(compute, chunk, 1)
        else:
            yield chunk, value


def usual_parts(records: Records) -> tuple[Any, ...]:
    """Returns the parts of records, of the shapes that most of the first ones have.

    A broken record, or one of another shape, does not decide whether a training begins.

    Args:
        records: All records; the first few are read.

    Returns:
        The parts of one record at least, with the records along the first axis.

    Raises:
        Exception: If they cannot be put together, and no shapes are those of more than half of
            those that can be read.
    """
    looked_at = np.arange(min(len(records), RECORDS_LOOKED_AT))
    try:
        return records.take(looked_at)
    except Exception:
        readable_records = [
            parts for _, parts in by_chunk(records.take, looked_at, 1) if parts is not None
        ]
        shapes = Counter(map(_shapes, readable_records))
        usual, count = shapes.most_common(1)[0] if shapes else ("", 0)
        if 2 * count <= len(readable_records):
            raise
        return next(parts for parts in readable_records if _shapes(parts) == usual)


def _shapes(parts: tuple[Any, ...]) -> str:
    """Returns shapes and types of the parts of records, as a text."""

    def described(part: Any) -> Any:
        return (*getattr(part, "shape", ()), str(getattr(part, "dtype", type(part))))

    return repr([mapped(described, part) for part in parts])
