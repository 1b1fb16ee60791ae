"""Scores with noise: what a run may return when its validation set is private.

A score that was computed on private records is part of the run's output, so it needs noise, and
its cost belongs into the run's event::

    run = odp.compose(training, odp.scoring.score_event(noise_multiplier=8.0))

    def objective(trial):
        ...
        return odp.scoring.private_accuracy(predicted == y, size=442, noise_multiplier=8.0)

A score on public records needs neither; see ``docs/how-to/score-privately.md``, which also has the
proof of what is claimed here.

====================  ==========================================================================
``size``              n, the public number of validation records
``lower, upper``      L and U, the range that values are clamped to
``contribution``      (U - L) / 2: each record adds its distance from the middle of the range
``noise_multiplier``  standard deviation of the noise of the sum, in contributions
====================  ==========================================================================
"""

from __future__ import annotations

import functools
import math
from typing import TYPE_CHECKING, Literal

import numpy as np
import numpy.typing as npt

from optuna_dp.core import validation
from optuna_dp.errors import InvalidArgumentError, Text, type_of

if TYPE_CHECKING:
    from dp_accounting import dp_event
    from opendp.mod import Measurement

__all__ = ["private_accuracy", "private_mean", "score_event"]

# Values are rounded to whole multiples of a contribution over 2^20, and noise is added to whole
# numbers: nothing depends on how floating-point numbers are rounded.
UNITS = 1 << 20
_LARGEST_SIZE = 1 << 40
_SMALLEST_NOISE, _LARGEST_NOISE = 0.1, 1e6


def score_event(noise_multiplier: float) -> dp_event.DpEvent:
    """Returns what one call of :func:`private_accuracy` or :func:`private_mean` costs.

    Args:
        noise_multiplier: As given there; from 0.1 to a million.

    Returns:
        A Gaussian event. Its noise is relative to the contribution of one record, as that of
        DP-SGD is: adding or removing a record moves the sum by one contribution, replacing a
        record by two, and the accounting knows which from the neighbouring relation of the study.

    Raises:
        InvalidArgumentError: If it is outside that range.
    """
    from optuna_dp.accounting.events import gaussian  # start-up time

    return gaussian(_noise_multiplier(noise_multiplier))


def private_accuracy(correct: npt.ArrayLike, *, size: int, noise_multiplier: float) -> float:
    """Returns the share of correct predictions with Gaussian noise.

    The noise has standard deviation ``noise_multiplier / (2 * size)`` on the accuracy: with 1000
    records and a noise multiplier of 20, one per cent.

    Guarantees:
        * The returned number costs ``score_event(noise_multiplier)``, under adding or removing
          and under replacing a validation record alike.
        * The noise is OpenDP's exact discrete Gaussian from the operating system's entropy.

    Args:
        correct: One truth value per validation record, shape (n,).
        size: The public number of validation records. A number fixed beforehand, not
            ``len(correct)``: under adding and removing the true number is private, and dividing
            by it would tell it.
        noise_multiplier: Noise of the count, in contributions of one record; from 0.1 to a
            million.

    Returns:
        A number that is not clipped to [0, 1]: runs clipped to a perfect score would all tie.

    Raises:
        InvalidArgumentError: If an argument is not allowed.

    Example:
        >>> import optuna_dp as odp
        >>> correct = [True] * 900 + [False] * 100
        >>> accuracy = odp.scoring.private_accuracy(correct, size=1000, noise_multiplier=20.0)
        >>> abs(accuracy - 0.9) < 0.1
        True
    """
    return private_mean(
        _truth_values(correct),
        lower=0.0,
        upper=1.0,
        size=size,
        noise_multiplier=noise_multiplier,
    )


def private_mean(
    values: npt.ArrayLike,
    *,
    lower: float,
    upper: float,
    size: int,
    noise_multiplier: float,
    nan_as: Literal["lower", "upper"] = "lower",
) -> float:
    """Returns the mean of bounded values, one per validation record, with Gaussian noise.

    The noise has standard deviation ``noise_multiplier * (upper - lower) / (2 * size)``.

    Guarantees:
        * The returned number costs ``score_event(noise_multiplier)``, under adding or removing
          and under replacing a validation record alike.
        * No value makes it fail: whether a run fails is part of its private output.
        * The noise is OpenDP's exact discrete Gaussian from the operating system's entropy, added
          to whole numbers; floating-point rounding is no way around it.

    Args:
        values: One number per validation record, shape (n,); a loss, say.
        lower: Values below are raised to this. Fix the range without looking at the data.
        upper: Values above are lowered to this.
        size: The public number of validation records, fixed beforehand (not ``len(values)``).
        noise_multiplier: Noise of the sum, in contributions of one record; from 0.1 to a million.
        nan_as: What a value that is not a number counts as. Choose the worse end: ``"upper"`` if
            the values are losses.

    Raises:
        InvalidArgumentError: If an argument is not allowed. Never because of a value in
            ``values``.

    Example:
        >>> import optuna_dp as odp
        >>> losses = [0.2, 0.4, 9.0] * 300
        >>> loss = odp.scoring.private_mean(
        ...     losses, lower=0.0, upper=3.0, size=900, noise_multiplier=20.0, nan_as="upper"
        ... )
        >>> abs(loss - 1.2) < 0.3
        True
    """
    low, high = validation.number("lower", lower), validation.number("upper", upper)
    if not (low < high and math.isfinite(high - low)):
        raise InvalidArgumentError(
            "upper", upper, allowed=f"the range must be finite and not empty, with lower={lower!r}"
        )
    n = validation.whole("size", size, 1)
    if n > _LARGEST_SIZE:
        raise InvalidArgumentError("size", size, allowed=f"it must be at most {_LARGEST_SIZE}")
    noise = _noise_multiplier(noise_multiplier)
    if nan_as not in ("lower", "upper"):
        raise InvalidArgumentError("nan_as", nan_as, allowed="it must be 'lower' or 'upper'")
    try:
        numbers = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError, OverflowError):
        numbers = np.zeros((0, 0))
    if numbers.ndim != 1:
        raise InvalidArgumentError(
            "values", type_of(values), allowed="it must hold one number per validation record"
        )
    numbers_or_bound = np.where(np.isnan(numbers), low if nan_as == "lower" else high, numbers)
    clamped = np.clip(numbers_or_bound, low, high)
    middle, contribution = low / 2 + high / 2, (high - low) / 2
    # Clipped once more: rounding must not carry a value beyond one contribution.
    units = np.clip(np.rint((clamped - middle) / contribution * UNITS), -UNITS, UNITS)
    total = with_noise(sum(units.astype(np.int64).tolist()), noise * UNITS)
    return middle + contribution * (total / UNITS / n)


def mean_by_record(name: str, values: npt.ArrayLike) -> npt.NDArray[np.float64]:
    """Returns one number in [0, 1] for each record: the mean of its values.

    Args:
        name: Of the argument, for the error.
        values: Truth values, or numbers, shape (n, ...); the first axis is that of the records.
            Numbers outside [0, 1] are clipped, and one that is not a number counts as 0.

    Returns:
        Shape (n,).

    Raises:
        InvalidArgumentError: If it is no such array.
    """
    array = np.asarray(values)
    if array.ndim == 0 or array.dtype.kind not in "bf":
        raise InvalidArgumentError(
            name,
            Text(f"an array of {array.dtype} and shape {array.shape}"),
            allowed="it must hold truth values, or numbers in [0, 1], for each record",
            fix="For example predicted == labels.",
        )
    numbers = np.clip(np.nan_to_num(array.astype(np.float64), nan=0.0), 0.0, 1.0)
    if numbers.ndim == 1:
        return numbers
    flat = numbers.reshape(len(numbers), -1)
    return flat.mean(axis=1) if flat.shape[1] else np.zeros(len(flat))


def _truth_values(correct: npt.ArrayLike) -> npt.NDArray[np.float64]:
    right = np.asarray(correct)
    if right.size and right.dtype != np.bool_:
        raise InvalidArgumentError(
            "correct",
            Text(f"an array of {right.dtype}"),
            allowed="it must hold one truth value per record",
            fix="For example predicted == labels.",
        )
    return right.astype(np.float64)


def _noise_multiplier(value: object) -> float:
    noise = validation.positive("noise_multiplier", value)
    if not _SMALLEST_NOISE <= noise <= _LARGEST_NOISE:
        raise InvalidArgumentError(
            "noise_multiplier",
            value,
            allowed=f"it must lie between {_SMALLEST_NOISE:g} and {_LARGEST_NOISE:g}",
        )
    return noise


def with_noise(total: int, scale: float) -> int:
    """Adds a discrete Gaussian to a whole number; values beyond 64 bits saturate."""
    return int(_gaussian(scale)(total))


@functools.lru_cache(maxsize=16)
def _gaussian(scale: float) -> Measurement:
    import opendp.prelude as dp  # start-up time

    dp.enable_features("contrib")
    space = dp.atom_domain(T="i64"), dp.absolute_distance(T="f64")
    return dp.m.make_gaussian(*space, scale=scale)
