"""Exact Skellam noise on whole numbers, from the operating system's entropy.

A Skellam variable of variance v is the difference of two Poisson variables of rate v/2. A Poisson
variable is drawn by inversion: the number of cumulative probabilities that a uniform number in
[0, 1) reaches. Sixty-four bits of the uniform number settle it, unless they agree with a
cumulative probability's; then more bits of both are computed until they differ. So no rounded
probability ever decides a draw, and most draws cost one table look-up.
"""

from __future__ import annotations

import functools
import os
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from optuna_dp.core import validation
from optuna_dp.core.arrays import IntArray
from optuna_dp.errors import InvalidArgumentError
from optuna_dp.voting.ballots import RandomBytes

WordArray = npt.NDArray[np.uint64]

_WORD = 64
_TOP = (1 << _WORD) - 1
_GUARD_BITS = 64
# Larger rates are sums of Poissons of at most this rate: tables stay short.
_LARGEST_RATE = 512
_LARGEST_VARIANCE = 1 << 40
_CHUNK = 1 << 20


class Skellam:
    """The law of Sk(variance): whole numbers, symmetric about 0.

    Guarantees:
        * Draws have exactly the law, for the exact rational variance; no floating-point number
          takes part, and nothing is truncated.
        * Randomness is ``os.urandom``'s unless another source is given (for tests).
        * The sum of independent draws has the law of the sum of the variances.

    Args:
        variance: Positive, at most 2^40; a float stands for the rational number that it is.
        random_bytes: Takes a number of bytes and returns that many; None is ``os.urandom``.

    Attributes:
        variance: The same, as a fraction.

    Raises:
        InvalidArgumentError: If ``variance`` is not in its range.
    """

    def __init__(
        self, variance: Fraction | float, *, random_bytes: RandomBytes | None = None
    ) -> None:
        exact = variance if isinstance(variance, Fraction) else None
        if exact is None:
            exact = Fraction(validation.positive("variance", variance))
        if not 0 < exact <= _LARGEST_VARIANCE:
            raise InvalidArgumentError(
                "variance",
                variance,
                allowed=f"it must be positive and at most {_LARGEST_VARIANCE}",
            )
        self.variance = exact
        # Looked up when drawing, so that there is one place where entropy comes from.
        self._random_bytes = random_bytes

    def draw(self, size: int) -> IntArray:
        """Returns ``size`` independent draws, shape (size,); ``size`` is at least 0."""
        count = validation.whole("size", size)
        result = np.empty(count, dtype=np.int64)
        for start in range(0, count, _CHUNK):
            part = min(_CHUNK, count - start)
            result[start : start + part] = self._poisson(part) - self._poisson(part)
        return result

    def _poisson(self, size: int) -> IntArray:
        rate = self.variance / 2
        pieces = -(-rate // _LARGEST_RATE)
        total = np.zeros(size, dtype=np.int64)
        for _ in range(pieces):
            total += poisson_draws(rate / pieces, size, self._random_bytes or os.urandom)
        return total


def poisson_draws(rate: Fraction, size: int, random_bytes: RandomBytes) -> IntArray:
    """Returns exact Poisson draws, shape (size,), by inversion of words of 64 bits and more."""
    table = table_of(rate)
    words = np.frombuffer(random_bytes(8 * size), dtype=np.uint64)
    result = np.searchsorted(table, words, side="right").astype(np.int64)
    # The table's entries are within one of the truth: a word that near has not decided.
    upper_entries = table[np.minimum(result, table.size - 1)]
    lower_entries = table[np.maximum(result - 1, 0)]
    unclear = (_distance(words, upper_entries) <= 1) | (_distance(words, lower_entries) <= 1)
    unclear |= (result == table.size) | (words >= np.uint64(_TOP - 1))
    for i in np.flatnonzero(unclear):
        result[i] = _draw_with_more_bits(rate, int(words[i]), random_bytes)
    return result


def _distance(a: WordArray, b: WordArray) -> WordArray:
    return np.maximum(a, b) - np.minimum(a, b)


@functools.lru_cache(maxsize=64)
def table_of(rate: Fraction) -> WordArray:
    """Cumulative probabilities times 2^64, each within one, while they are below the top."""
    values = [min(value, _TOP) for value in cumulative(rate, _WORD, _TOP - 1)]
    table = np.array(values, dtype=np.uint64)
    table.flags.writeable = False
    return table


def _draw_with_more_bits(rate: Fraction, word: int, random_bytes: RandomBytes) -> int:
    """Returns the draw whose uniform number begins with ``word``, reading on as needed."""
    bits = _WORD
    while True:
        word = word << _WORD | int.from_bytes(random_bytes(_WORD // 8), "big")
        bits += _WORD
        values = cumulative(rate, bits, word + 1)
        if all(abs(word - value) > 1 for value in values[-2:]):
            return sum(value < word for value in values)


def cumulative(rate: Fraction, bits: int, until: int) -> list[int]:
    """Returns F(0), F(1), ... of Poisson(rate) times 2^bits, each within one below the truth.

    The list ends with the first value above ``until``, or where the rest is below 2^-bits.

    Terms are whole numbers scaled by 2^precision. Each is rounded down once, and an error of one
    unit in an early term is multiplied by at most max_k rate^k / k! < e^rate < 2^(1.5 rate) in a
    later one: the guard bits cover that and the number of terms.
    """
    from mpmath import libmp  # start-up time

    num, den = rate.numerator, rate.denominator
    precision = bits + _GUARD_BITS + 3 * num // (2 * den)
    minus_rate = libmp.from_rational(-num, den, precision + _GUARD_BITS)
    exact = libmp.mpf_exp(minus_rate, precision + _GUARD_BITS)
    term = int(libmp.to_int(libmp.mpf_shift(exact, precision), libmp.round_floor))
    shift = precision - bits
    total, k = term, 0
    values = [total >> shift]
    while values[-1] <= until:
        k += 1
        term = term * num // (den * k)
        total += term
        values.append(total >> shift)
        if term == 0 or (k > 2 * num // den + 2 and term >> shift == 0 and _ends(term, shift)):
            break
    return values


def _ends(term: int, shift: int) -> bool:
    # Past twice the rate, what follows a term is at most as much again.
    return term << 2 < 1 << shift
