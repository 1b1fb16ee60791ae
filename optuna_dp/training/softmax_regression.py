"""Private training of a softmax regression in numpy, for those without PyTorch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from optuna_dp.core import validation
from optuna_dp.core.arrays import FloatArray
from optuna_dp.errors import InvalidArgumentError, Text
from optuna_dp.training.chunks import BLOCK, Chunk, chunks_of, in_chunks, placed, usual_parts
from optuna_dp.training.exact_step import ExactStep
from optuna_dp.training.learner import Learner
from optuna_dp.training.made_up import features_of_order_one
from optuna_dp.training.optimizers import ArrayOptimizer, OptimizerFactory
from optuna_dp.training.record_arrays import Array, Part
from optuna_dp.training.records import Records

# Of the gradients of the records that are computed at a time.
_GRADIENT_BYTES = 16 * 2**20
_MOST_RECORDS_AT_A_TIME = 1024


@dataclass(eq=False)
class SoftmaxRegression:
    """A softmax regression, to be trained by :func:`optuna_dp.train` without PyTorch.

    Attributes:
        features: The number of features, at least 1. A constant one among them makes an intercept.
        classes: The number of classes, at least 2.
        weights: Shape (features, classes), zeros at first; a training puts the trained
            ones there at its end.

    Raises:
        InvalidArgumentError: If a number is not allowed.

    Example:
        >>> import numpy as np, optuna_dp as odp
        >>> model = odp.SoftmaxRegression(features=64, classes=10)
        >>> model.predict(np.ones((3, 64)))
        array([0, 0, 0])
    """

    features: int
    classes: int
    weights: FloatArray = field(init=False, repr=False)

    def __post_init__(self) -> None:
        validation.whole("features", self.features, 1)
        validation.whole("classes", self.classes, 2)
        self.weights = np.zeros((self.features, self.classes))

    def logits(self, x: npt.ArrayLike) -> FloatArray:
        """Returns the logits, shape (n, classes), of features of shape (n, features)."""
        return np.asarray(np.asarray(x, dtype=np.float64) @ self.weights)

    def predict(self, x: npt.ArrayLike) -> npt.NDArray[np.int64]:
        """Returns the likeliest class of each record, shape (n,)."""
        return np.asarray(np.argmax(self.logits(x), axis=1))


class SoftmaxLearner(Learner):
    """A softmax regression with its cross entropy; see :class:`Learner`.

    The gradient of one record is the outer product of its features and its errors. A record whose
    numbers are not finite, or whose label is no class, counts as zero.

    Args:
        model: The user's model; its weights are copied.
        chunk_size: How many records' gradients are computed at a time, rounded up to a multiple
            of 8; None for a default.
    """

    seconds_of_a_record, reason_of_loop, is_reproducible = None, "", True
    has_logits = True

    def __init__(self, model: SoftmaxRegression, *, chunk_size: int | None) -> None:
        shape, planned = np.shape(model.weights), (model.features, model.classes)
        if shape != planned:
            raise InvalidArgumentError(
                "model", Text(f"weights of shape {shape}"), allowed=f"it must be {planned}"
            )
        self._model = model
        self._trained = np.array(model.weights, dtype=np.float64)
        self.user_parts = [model]
        self.weights = self._trained.size
        affordable = max(1, _GRADIENT_BYTES // (8 * self.weights))
        wanted = chunk_size or min(affordable, _MOST_RECORDS_AT_A_TIME)
        self.chunk_size = -(-wanted // BLOCK) * BLOCK
        self.like = self._trained
        self._optimizer: ArrayOptimizer | None = None

    def try_out(self, records: Records, score_records: Records | None) -> None:
        for argument, some in (("records", records), ("score_records", score_records)):
            if some is None:
                continue
            parts = usual_parts(some)
            shapes = [np.shape(part)[1:] for part in parts]
            if (
                shapes != [(self._model.features,), ()]
                or np.asarray(parts[1]).dtype.kind not in "iu"
                or np.asarray(parts[0]).dtype.kind not in "fiub"
            ):
                raise InvalidArgumentError(
                    argument,
                    Text(f"parts of shapes {shapes}"),
                    allowed=f"it must be (x, y), with x of shape (n, {self._model.features}) and "
                    "y of shape (n,), whole numbers from 0 on",
                )

    def begin(self, optimizer: str | OptimizerFactory, learning_rate: float) -> None:
        self._optimizer = ArrayOptimizer(optimizer, self._trained, learning_rate)

    def default_inputs(self, records: Records) -> FloatArray:
        return features_of_order_one(self._model.features)

    def example_of_inputs(self, records: Records) -> str:
        return ""

    def hints(self, inputs: Part) -> list[str]:
        return []

    def is_dense_only(self) -> bool:
        return True

    @property
    def sgd_momentum(self) -> float | None:
        return None if self._optimizer is None else self._optimizer.sgd_momentum

    def noise(self, draw: int) -> Callable[[float], list[FloatArray]]:
        rng = np.random.default_rng(draw)
        return lambda deviation: [rng.normal(0.0, deviation, self.weights)]

    def outputs(self, inputs: Part) -> FloatArray:
        return np.asarray(np.asarray(inputs, dtype=np.float64) @ self._trained)

    def sequence_layers(self, inputs: Part) -> set[str]:
        return set()

    def clipped_sum(
        self, records: Records, batch: npt.NDArray[np.int64], step: ExactStep
    ) -> list[FloatArray]:
        total = np.zeros(self.weights)

        def of_chunk(chunk: Chunk) -> FloatArray:
            parts = placed(records.take(chunk.indices), chunk.places)
            return self._gradients(*parts)[chunk.places]

        for _, gradients in in_chunks(of_chunk, chunks_of(batch, self.chunk_size)):
            if gradients is not None:
                total += step.sum_of([gradients])[0]
        return [total]

    def _gradients(self, x: Array, y: Array) -> FloatArray:
        """Returns the gradient of each record, shape (records, weights)."""
        x, labels = np.asarray(x, dtype=np.float64), np.asarray(y)
        with np.errstate(all="ignore"):
            logits = self._logits(x)
            errors = np.exp(logits - logits.max(axis=1, keepdims=True))
            errors /= errors.sum(axis=1, keepdims=True)
            is_class = (labels >= 0) & (labels < self._model.classes)
            errors[np.flatnonzero(is_class), labels[is_class]] -= 1.0
            errors[~is_class] = np.nan  # Such a gradient counts as zero.
            return np.asarray((x[:, :, None] * errors[:, None, :]).reshape(len(x), -1))

    def _logits(self, x: FloatArray) -> FloatArray:
        """Returns the logits of each record, by a product of its own."""
        return np.asarray(np.matmul(x[:, None, :], self._trained)[:, 0])

    def step(self, gradient: list[FloatArray], factor: float) -> None:
        assert self._optimizer is not None
        self._optimizer.step(gradient[0].reshape(self._trained.shape), factor)

    def weight_values(self) -> list[FloatArray]:
        return [self._trained.copy()]

    def set_weights(self, values: list[FloatArray]) -> None:
        self._trained[...] = values[0]

    def scores(self, records: Records, indices: npt.NDArray[np.int64]) -> FloatArray:
        """Returns whether the model is right about each record; see :class:`Learner`."""

        def of_chunk(chunk: Chunk) -> npt.NDArray[np.bool_]:
            x, y = records.take(chunk.indices)
            with np.errstate(all="ignore"):  # A warning would tell of a record.
                logits = self._logits(np.asarray(x, dtype=np.float64))
            return np.asarray(np.argmax(logits, axis=1) == np.asarray(y))

        right = np.zeros(len(records))
        for some, value in in_chunks(of_chunk, chunks_of(indices, self.chunk_size)):
            if value is not None:
                right[some] = value
        return right[indices]

    def all_numbers(self) -> list[FloatArray]:
        return [self._trained]

    def hand_over(self) -> None:
        self._model.weights = self._trained.copy()
