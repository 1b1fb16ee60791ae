"""Private training of a softmax regression in numpy, for those without PyTorch."""

from __future__ import annotations

import hashlib
import threading
import weakref
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from optuna_dp import validation
from optuna_dp.arrays import FloatArray
from optuna_dp.errors import InvalidArgumentError, PlanError
from optuna_dp.training.learner import (
    CLIPPING_MARGIN,
    Learner,
    by_chunk,
    mark_as_trained,
    trained_before,
    usual_parts,
)
from optuna_dp.training.optimizers import ArrayOptimizer
from optuna_dp.training.records import Records
from optuna_dp.training.schema import features_of_order_one

_RECORDS_AT_A_TIME = 8192


@dataclass
class SoftmaxRegression:
    """A softmax regression, to be trained by :func:`optuna_dp.train` without PyTorch.

    Attributes:
        features: The number of features, at least 1. A constant one among them makes an intercept.
        classes: The number of classes, at least 2.
        weights: Shape (features, classes), zeros at first; the training changes them in place.

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


def _plain_weights(model: SoftmaxRegression) -> FloatArray:
    """Returns the weights, if the sums of a step are made in double precision with them.

    Half precision would round the sum of clipped gradients, and a class of a script's own would
    see whole batches.
    """
    weights: Any = model.weights
    if (
        type(weights) is not np.ndarray
        or weights.dtype != np.float64
        or weights.shape != (model.features, model.classes)
    ):
        raise InvalidArgumentError(
            "model",
            f"one whose weights are a {type(weights).__name__} of {np.shape(weights)} "
            f"{getattr(weights, 'dtype', 'values')}",
            f"they must be a numpy array of float64, of shape {(model.features, model.classes)}",
            "Convert them: model.weights = numpy.array(weights, dtype=float).",
        )
    return weights


_memory_lock = threading.Lock()
_trained_arrays: list[weakref.ref[FloatArray]] = []


def _claim_memory(weights: FloatArray) -> None:
    """Takes the memory of weights that are to be trained; refuses what a run has trained."""
    with _memory_lock:
        _trained_arrays[:] = [array for array in _trained_arrays if array() is not None]
        for reference in _trained_arrays:
            array = reference()
            if array is not None and np.may_share_memory(array, weights):
                raise trained_before()
        _trained_arrays.append(weakref.ref(weights))


class SoftmaxLearner(Learner):
    """A softmax regression with its cross entropy; see :class:`Learner`.

    The gradient of one record is the outer product of its features and its errors, so its norm is
    the product of their norms. Nothing else of the record enters. A record whose numbers are not
    finite, or whose label is no class, counts as zero.

    Args:
        model: The model, trained in place.
        clipping_norm: The largest norm of one record's gradient.
        chunk_size: How many records' gradients are computed at a time; None for a default.
    """

    on_processor = True

    def __init__(
        self, model: SoftmaxRegression, *, clipping_norm: float, chunk_size: int | None
    ) -> None:
        self._model = model
        self._trained = _plain_weights(model)
        self._norm = clipping_norm * (1.0 - CLIPPING_MARGIN)
        self.weights = self._trained.size
        self.chunk_size = chunk_size or _RECORDS_AT_A_TIME
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
                    f"parts of shapes {shapes}",
                    f"it must be (x, y), with x of shape (n, {self._model.features}) and y of "
                    "shape (n,), whole numbers from 0 on",
                )

    def take_over(self, trial: int) -> None:
        mark_as_trained([self._model], trial)
        _claim_memory(self._trained)

    def seed_readers(self, *records: Records) -> None:
        """See :class:`Learner`."""

    def trained_sizes(self) -> list[int]:
        return [self._trained.nbytes]

    def trained_digests(self, sizes: Collection[int]) -> Iterator[tuple[int, bytes]]:
        if self._trained.nbytes in sizes:
            yield self._trained.nbytes, self.weights_digest()()

    def used_digests(self, sizes: Collection[int]) -> Iterator[tuple[int, bytes]]:
        return self.trained_digests(sizes)

    def begin(self, optimizer: Any, learning_rate: float) -> None:
        self._optimizer = ArrayOptimizer(optimizer, self._trained, learning_rate)

    def default_inputs(self, records: Records) -> FloatArray:
        return features_of_order_one(self._model.features)

    def is_dense_only(self) -> bool:
        return True

    @property
    def sgd_momentum(self) -> float | None:
        return None if self._optimizer is None else self._optimizer.sgd_momentum

    def noise(self, draw: int) -> Callable[[float], list[FloatArray]]:
        rng = np.random.default_rng(draw)
        return lambda deviation: [rng.normal(0.0, deviation, self.weights)]

    def outputs(self, inputs: Any) -> FloatArray:
        return self._model.logits(inputs)

    def weights_digest(self) -> Callable[[], bytes]:
        model = self._model  # Its array may be replaced by another.
        return lambda: hashlib.blake2b(model.weights.tobytes(), digest_size=16).digest()

    def keep_in_mind(self) -> None:
        """There is nothing but the weights; see :class:`Learner`."""

    def clipped_sum(self, records: Records, batch: npt.NDArray[np.int64]) -> list[FloatArray]:
        total = np.zeros_like(self._trained)

        def of_chunk(chunk: npt.NDArray[np.int64]) -> FloatArray:
            x, y = records.take(chunk)
            return self._clipped_sum(np.asarray(x, dtype=np.float64), np.asarray(y))

        for _, value in by_chunk(of_chunk, batch, self.chunk_size):
            if value is not None:
                total += value
        return [total.reshape(-1)]

    def _clipped_sum(self, x: FloatArray, y: npt.NDArray[np.int64]) -> FloatArray:
        with np.errstate(all="ignore"):
            logits = x @ self._trained
            errors = np.exp(logits - logits.max(axis=1, keepdims=True))
            errors /= errors.sum(axis=1, keepdims=True)
            is_class = (y >= 0) & (y < self._model.classes)
            errors[np.flatnonzero(is_class), y[is_class]] -= 1.0
            norms = np.linalg.norm(x, axis=1) * np.linalg.norm(errors, axis=1)
            factors = np.minimum(1.0, self._norm / norms)
        counts = is_class & np.isfinite(norms)
        # Records that do not count are taken out: zero times infinity is no number.
        return np.asarray(x[counts].T @ (errors[counts] * factors[counts, None]))

    def step(self, gradient: list[FloatArray], factor: float) -> None:
        assert self._optimizer is not None
        self._optimizer.step(gradient[0].reshape(self._trained.shape), factor)

    def weight_values(self) -> list[FloatArray]:
        return [self._trained.copy()]

    def set_weights(self, values: list[FloatArray]) -> None:
        self._trained[...] = values[0]

    def check_unchanged(self) -> None:
        if self._model.weights is not self._trained:
            raise PlanError(
                "Something has put another array in place of the model's weights while they were "
                "trained. Do not use this model or its score."
            )

    def scores(self, records: Records) -> FloatArray:
        """Returns whether the model is right about each record; see :class:`Learner`."""

        def of_chunk(chunk: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
            x, y = records.take(chunk)
            # Not predict(), which a subclass may have written for several records at once.
            logits = np.asarray(x, dtype=np.float64) @ self._trained
            return np.asarray(np.argmax(logits, axis=1) == np.asarray(y))

        right = np.zeros(len(records))
        for chunk, value in by_chunk(of_chunk, np.arange(len(records)), self.chunk_size):
            if value is not None:
                right[chunk] = value
        return right

    def close(self) -> None:
        """There is nothing to put back; see :class:`Learner`."""
