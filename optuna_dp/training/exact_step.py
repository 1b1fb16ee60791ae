"""The private step: an exact sum of clipped gradients, with Gaussian noise.

A step of DP-SGD is a sum with noise. The privacy analysis speaks of real numbers. A computer adds
floating-point numbers, and rounds after each addition. One record more then shifts every rounding,
and the sum can move by several clipping norms. Here nothing is rounded after a record has been
clipped: each gradient becomes a vector of whole numbers, and whole numbers add without error.

Notation: ``C`` is the clipping norm, ``P`` the number of weights, and ``m`` the noise multiplier.
There are ``K = 2**18`` units in ``C`` (``2**20`` from ten million weights on), so one unit is
``C / K``. The rounding of single precision is ``u = 2**-24``, and ``gamma(n) = n u / (1 - n u)``.

**Assumption.** The gradient of a record depends on that record, on the weights, and on random
draws of its own. It does not depend on the other records, to the last bit. The engine pads every
chunk of records so that this holds, and tests it before a training
(``optuna_dp/training/each_record.py``).

**Proof** that the sum is ``C``-sensitive and the step is the Gaussian mechanism.

1. *Norm.* Squares are added in single precision in runs of 256 numbers, and the runs in double
   precision. The computed norm is at least the true norm times ``1 - mu``, with
   ``mu = gamma(258) / 2``. This holds for every order of the additions. Of a table, such as an
   embedding, only the rows that the record looks up are there, in an order that depends on the
   record alone (``optuna_dp/training/tables.py``). The numbers left out are zeros, which change
   neither the norm nor any sum.
2. *Clipping.* A gradient is multiplied by ``min(t / norm, t / C)``, with
   ``t = K (1 - mu - 8 u) - sqrt(P) / 2 - 0.001``. Its norm is then at most
   ``t (1 + u)**2 / (1 - mu)``, which is at most ``K - sqrt(P) / 2``.
3. *Rounding.* Each number is rounded to a whole one. It moves by at most 1/2, so the whole vector
   moves by at most ``sqrt(P) / 2``. Its norm is at most ``K`` units, which is ``C``. A gradient
   that is not finite, or so long that its factor is below ``2**-126``, becomes zero.
4. *Sum.* At most 64 such vectors (16 from ten million weights on) are added in single precision.
   Every partial sum is a whole number of at most ``2**24``, so it is exact in every order. These
   sums are added in double precision, exactly up to ``2**53``. So one record more moves the sum by
   its own vector: by at most ``C``. Replacing a record can move it by ``2 C``. The sums of several
   processes (``optuna_dp/training/ranks.py``) are added in the same way, each record in one of
   them. Which one is drawn for each record by itself.
5. *Noise.* A Gaussian ``z`` of standard deviation ``m K`` is drawn, rounded, and added as a whole
   number. For a whole number ``s``, ``round(s + z) = s + round(z)`` almost surely. So the step is
   the rounded output of the Gaussian mechanism, and rounding is post-processing. The output is
   always a whole number, so the gaps between floating-point numbers show nothing (Mironov, "On
   significance of the least significant bits for differential privacy", CCS 2012).
6. *After that.* Scaling, division, the optimizer, its schedule and averages are post-processing.

**What is believed and not proved.** ``z`` is a Gaussian computed in double precision from bits of
OpenSSL's generator: Box and Muller's method, 63 bits for the angle and 126 for the radius where
it is large. The errors of log, sine and cosine are below ``1e-14`` standard deviations of 24,000
values. By a martingale argument they change a guarantee of ``1e8`` draws by at most
``epsilon + 1.1e-4 m`` and ``delta + 2e-12``. OpenSSL's bits are taken for random.

The module knows arrays of numpy and tensors of PyTorch. It knows no study and no accountant.
"""

from __future__ import annotations

import math
import ssl
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from types import MappingProxyType, ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from optuna_dp.training.record_arrays import Array, SameArray

if TYPE_CHECKING:
    import torch

# The generator of the noise, as trials and statements name it.
NOISE_GENERATOR = "OpenSSL"
# Bits of a unit: from so many weights on two more, so that rounding takes a small share of C.
_BITS, _BITS_OF_LARGE, _LARGE = 18, 20, 10_000_000
# How many units a clipping norm can have.
GRIDS = (1 << _BITS, 1 << _BITS_OF_LARGE)
_EXACT_BITS = 24  # whole numbers in single precision
_RUN = 256
_U = 2.0**-24
_MU = 0.5 * (_RUN + 2) * _U / (1.0 - (_RUN + 2) * _U)
_SMALLEST_FACTOR = 2.0**-126
# Sums plus noise stay below 2^53 up to here, with 2^33 records.
_LARGEST_DEVIATION = 2.0**48
# Numbers of a gradient at a time: 64 rows of them fit a processor's cache.
_COLUMNS, _COLUMNS_OF_DEVICES = 1 << 14, 1 << 20
_GAUSSIANS_AT_A_TIME = 1 << 14
_KEY_BITS = 63
_SMALL_KEY = 2**52


class ExactStep:
    """Clips gradients to a grid, adds them exactly, and adds the noise.

    Args:
        clipping_norm: Largest L2 norm of one record's gradient, between 1e-9 and 1e9.
        noise_multiplier: Standard deviation of the noise over the clipping norm.
        weights: How many numbers a gradient has.

    Attributes:
        noise_multiplier: As above.
        units: How many units of the grid are one clipping norm.
        rows: How many gradients are added in single precision.
    """

    def __init__(self, clipping_norm: float, noise_multiplier: float, weights: int) -> None:
        bits = _BITS if weights < _LARGE else _BITS_OF_LARGE
        self.units, self.rows = 2**bits, 2 ** (_EXACT_BITS - bits)
        self.noise_multiplier = noise_multiplier
        self._norm = clipping_norm
        self._target = self.units * (1.0 - _MU - 8.0 * _U) - 0.5 * math.sqrt(weights) - 0.001
        self._deviation = noise_multiplier * self.units
        if not (1e-9 <= clipping_norm <= 1e9 and 0.0 <= self._deviation <= _LARGEST_DEVIATION):
            raise ValueError(f"clipping norm {clipping_norm}, noise {noise_multiplier}")

    def sum_of(
        self, gradients: list[SameArray], rows: npt.NDArray[np.int64] | None = None
    ) -> list[SameArray]:
        """Returns the sum of clipped gradients in units of the grid: whole numbers, in double.

        Args:
            gradients: For each parameter the gradients of the records, shape (records, numbers);
                they are not changed. Half precision is converted to single.
            rows: Indices of the rows that count; None for all.
        """
        totals = [_zeros(part, part.shape[1]) for part in gradients]
        self.add(totals, gradients, rows)
        return totals

    def add(
        self,
        totals: list[SameArray],
        gradients: list[SameArray],
        rows: npt.NDArray[np.int64] | None = None,
        looked_up: Mapping[int, torch.Tensor] = MappingProxyType({}),
    ) -> None:
        """Adds clipped gradients to sums; see :meth:`sum_of`.

        Args:
            totals: The sums, shape (numbers,) each; changed in place.
            gradients: As for :meth:`sum_of`. Of a table, shape (records, looked-up rows * width).
            rows: Indices of the rows that count; None for all.
            looked_up: Which rows of a table are there, shape (records, looked-up rows), by the
                number of the parameter. A row may be there several times: all but one are zeros.
        """
        library = _library_of(gradients[0])
        gradients = [_at_least_single(part) for part in gradients]
        with _without_autocast(gradients[0]), np.errstate(all="ignore"):
            norms = library.sqrt(sum(squared_norms(part) for part in gradients))
            factors = self._target / library.clip(norms, self._norm, None)
            is_usable = library.isfinite(norms) & (factors >= _SMALLEST_FACTOR)
            if rows is not None:
                is_counted = library.zeros_like(is_usable)
                is_counted[rows] = True
                is_usable &= is_counted
            factors = library.where(is_usable, factors, 0.0)
            if not bool(library.isfinite(norms).all()):
                # Zero times infinity is no number.
                kept = is_usable[:, None]
                gradients = [library.where(kept, part, 0.0) for part in gradients]
            for number, (total, part) in enumerate(zip(totals, gradients, strict=True)):
                if number in looked_up:
                    self._add_to_table(total, part, factors, looked_up[number])
                else:
                    total += self.sum_of_rows(part, factors)

    def sum_of_rows(self, part: SameArray, factors: SameArray) -> SameArray:
        """Returns the sum of the rows of a part, multiplied and rounded, in double precision.

        Args:
            part: One row for each record, shape (records, numbers).
            factors: What each row is multiplied by, shape (records,).
        """
        library = _library_of(part)
        count, numbers = part.shape
        columns = _COLUMNS if _is_on_processor(part) else _COLUMNS_OF_DEVICES
        columns = max(1, min(numbers, columns))  # A parameter may have no numbers.
        scratch = library.empty_like(part[: self.rows, :columns])
        factors = _cast(factors, part.dtype)[:, None]
        total = _zeros(part, numbers)
        for first in range(0, count, self.rows):
            rows = slice(first, first + self.rows)
            for left in range(0, numbers, columns):
                piece = part[rows, left : left + columns]
                scaled = scratch[: piece.shape[0], : piece.shape[1]]
                library.multiply(piece, factors[rows], out=scaled)
                library.round(scaled, out=scaled)
                total[left : left + columns] += scaled.sum(0)
        return total

    def _add_to_table(
        self,
        total: Array,
        part: Array,
        factors: Array,
        looked_up: torch.Tensor,
    ) -> None:
        """Adds rows of a table, multiplied and rounded, at their places: exact in every order."""
        count, lookups = looked_up.shape
        table = total.reshape(-1, part.shape[1] // lookups)
        factors = factors.to(part.dtype)[:, None]
        for first in range(0, count, self.rows):
            rows = slice(first, first + self.rows)
            scaled = (part[rows] * factors[rows]).round_().to(total.dtype)
            indices = looked_up[rows].reshape(-1)
            table.index_add_(0, indices, scaled.reshape(len(indices), -1))

    def is_exact(self, like: Array) -> bool:
        """Returns whether sums are exact where an array is: a known answer, computed there.

        Args:
            like: An array of the type and place of the gradients.
        """
        like = _at_least_single(like)
        # Half of the numbers are odd, so a sum that keeps fewer bits misses them.
        values = np.arange(self.rows * 257).reshape(self.rows, 257) * 9_973 % (self.units + 1)
        values[: self.rows - 1] |= 1
        is_numpy = isinstance(like, np.ndarray)
        rows = values.astype(like.dtype) if is_numpy else like.new_tensor(values)
        with _without_autocast(rows):
            total = self.sum_of_rows(rows, rows[:, 0] * 0 + 1)
        return bool(np.array_equal(np.asarray(total.tolist()), values.sum(0)))

    def with_noise(self, totals: list[SameArray]) -> list[SameArray]:
        """Returns sums with noise, in the unit of the gradients, in double precision.

        The noise is drawn on the processor, whatever device the sums are on.

        Args:
            totals: Sums of :meth:`sum_of`, shape (numbers,) each.
        """
        noisy = []
        for total in totals:
            noise = rounded_gaussians(len(total), self._deviation, _library_of(total))
            noise = noise if isinstance(noise, np.ndarray) else noise.to(total.device)
            noisy.append((total + noise) * (self._norm / self.units))
        return noisy


def squared_norms(rows: SameArray) -> SameArray:
    """Returns the squared L2 norm of each row in double precision, shape (records,).

    Args:
        rows: One gradient in each row, in single or double precision.
    """
    library = _library_of(rows)
    end = rows.shape[1] // _RUN * _RUN
    runs = rows[:, :end].reshape(len(rows), end // _RUN, _RUN)
    norms = library.concatenate(
        [library.linalg.norm(runs, None, 2), library.linalg.norm(rows[:, end:], None, 1)[:, None]],
        1,
    )
    norms = _cast(norms, library.float64)
    squares: SameArray = (norms * norms).sum(1)
    return squares


def rounded_gaussians(count: int, deviation: float, library: ModuleType = np) -> Array:
    """Returns independent Gaussians, rounded to whole numbers, in double precision.

    Args:
        count: How many.
        deviation: Their standard deviation before they are rounded.
        library: numpy or torch, whose functions compute them.
    """
    pieces = [gaussians(0, library)]
    for start in range(0, count, _GAUSSIANS_AT_A_TIME):
        size = min(_GAUSSIANS_AT_A_TIME, count - start)
        pieces.append(library.round(deviation * gaussians(size, library)))
    return library.concatenate(pieces)


def gaussians(count: int, library: ModuleType) -> Array:
    """Returns independent standard Gaussians by Box and Muller's method, shape (count,).

    Args:
        count: How many.
        library: numpy or torch, whose functions compute them.
    """
    half = (count + 1) // 2
    keys = _keys(2 * half)
    radius_keys, angle_keys = keys[:half].astype(np.float64), keys[half:].astype(np.float64)
    # Possible radii in the tail would lie farther apart than the grid: 63 bits more.
    small = np.flatnonzero(keys[:half] < _SMALL_KEY)
    radius_keys[small] += (_keys(len(small)) + 0.5) * 2.0**-_KEY_BITS
    if library is not np:
        radius_keys, angle_keys = map(library.from_numpy, (radius_keys, angle_keys))
    radius = library.sqrt(-2.0 * library.log(radius_keys * 2.0**-_KEY_BITS))
    angle = angle_keys * (2.0 * math.pi * 2.0**-_KEY_BITS)
    both = library.concatenate([radius * library.cos(angle), radius * library.sin(angle)])
    return both[:count]


def _keys(count: int) -> npt.NDArray[np.int64]:
    """Returns independent uniform whole numbers of 63 bits, from OpenSSL's generator."""
    drawn = np.frombuffer(bytearray(ssl.RAND_bytes(8 * count)), dtype=np.int64)
    keys: npt.NDArray[np.int64] = drawn & (2**_KEY_BITS - 1)
    return keys


def _library_of(array: Array) -> ModuleType:
    """Returns numpy or torch, whichever an array is of."""
    if isinstance(array, np.ndarray):
        return np
    import torch  # An extra.

    return torch


def _at_least_single(rows: SameArray) -> SameArray:
    library = _library_of(rows)
    return _cast(rows, library.promote_types(rows.dtype, library.float32))


def _cast(array: SameArray, dtype: Any) -> SameArray:
    return array.astype(dtype, copy=False) if isinstance(array, np.ndarray) else array.to(dtype)


def _zeros(like: SameArray, count: int) -> SameArray:
    library = _library_of(like)
    where = {} if library is np else {"device": like.device}
    zeros: SameArray = library.zeros(count, dtype=library.float64, **where)
    return zeros


def _is_on_processor(array: Array) -> bool:
    return isinstance(array, np.ndarray) or array.device.type == "cpu"


def _without_autocast(array: Array) -> AbstractContextManager[object]:
    """Returns a context without PyTorch's autocast, which would round sums to half precision."""
    if isinstance(array, np.ndarray):
        return nullcontext()
    context: AbstractContextManager[object] = _library_of(array).autocast(
        array.device.type, enabled=False
    )
    return context
