"""Shamir's secret shares for many clients at once, in the format of Flower's.

Flower's own functions (pycryptodome's, in pure Python) compute Lagrange's coefficients anew for
every block of every secret: the server's work grows with the cube of the number of clients. Here
they are computed once for a set of indices, and all blocks of a secret at once, so that it grows
with the square.

The field is GF(2^128) with x^128 + x^7 + x^2 + x + 1, as pycryptodome's. An element is two words
of 64 bits, the higher one first, in the last axis of an array. What a loop does depends on indices
and coefficients, which are public, and never on a secret.

A secret is padded to whole blocks of 16 bytes (PKCS #7). A share is its index, four bytes little
endian, and then a block for each block of the secret.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from optuna_dp.errors import InvalidArgumentError

Elements = npt.NDArray[np.uint64]

BLOCK = 16
INDEX = 4
# What x^128 is.
_REDUCTION = np.uint64(0b10000111)
_ONE = np.uint64(1)
_TOP_BIT = np.uint64(63)
# Indices are below 2^31: a sum of two of them is no larger.
_INDEX_BITS = 31


def share_length(secret: int) -> int:
    """Returns how many bytes a share of a secret of so many bytes has."""
    return INDEX + (secret // BLOCK + 1) * BLOCK


def create_shares(secret: bytes, threshold: int, num: int) -> list[bytes]:
    """Returns ``num`` shares, any ``threshold`` of which give the secret back, and no fewer.

    A drop-in for Flower's function of this name: what either makes, either combines.

    Args:
        secret: Any bytes.
        threshold: How many shares it takes, at least 1.
        num: How many shares there are, at least ``threshold``.
    """
    constant = _blocks(_padded(secret))
    random = np.frombuffer(os.urandom((threshold - 1) * constant.nbytes), dtype=">u8")
    coefficients = random.astype(np.uint64).reshape(threshold - 1, *constant.shape)
    indices = np.arange(1, num + 1, dtype=np.uint64)[:, None]
    values = np.zeros((num, *constant.shape), dtype=np.uint64)
    for coefficient in [*coefficients, constant]:  # Horner's method
        values = _times_small(values, indices) ^ coefficient
    return [
        (i + 1).to_bytes(INDEX, "little") + row.astype(">u8").tobytes()
        for i, row in enumerate(values)
    ]


def combine_shares(shares: Sequence[bytes]) -> bytes:
    """Returns the secret of these shares; a drop-in for Flower's function of this name.

    Args:
        shares: At least as many as it takes, of one length and with different indices.

    Raises:
        InvalidArgumentError: If they are malformed, or give no secret.
    """
    lengths = {len(share) for share in shares}
    if len(lengths) != 1 or min(lengths) <= INDEX or min(lengths) % BLOCK != INDEX:
        raise InvalidArgumentError(
            "shares", sorted(lengths), "they must have one length, an index and whole blocks"
        )
    # In one order: a set of indices has one entry in the cache.
    ordered = sorted(shares, key=lambda share: int.from_bytes(share[:INDEX], "little"))
    indices = tuple(int.from_bytes(share[:INDEX], "little") for share in ordered)
    values = np.stack([_blocks(share[INDEX:]) for share in ordered])
    data = _weighted_sum(values, lagrange_at_zero(indices)).astype(">u8").tobytes()
    padding = data[-1]
    if not 1 <= padding <= BLOCK or not data.endswith(bytes([padding]) * padding):
        raise InvalidArgumentError("shares", len(shares), "they must be of one secret")
    return data[:-padding]


@functools.lru_cache(maxsize=256)
def lagrange_at_zero(indices: tuple[int, ...]) -> Elements:
    """Returns the weights that give a polynomial's value at 0 from those at the indices.

    The weight of index j is the product over all others m of m / (j + m), sums in GF(2^128).

    Args:
        indices: Different, from 1 to 2^31 - 1.

    Returns:
        Shape (len(indices), 2).

    Raises:
        InvalidArgumentError: If an index is out of range or there twice.
    """
    if len(set(indices)) < len(indices) or not all(0 < i < 1 << _INDEX_BITS for i in indices):
        raise InvalidArgumentError("indices", indices, "they must be different and positive")
    points = np.array(indices, dtype=np.uint64)
    # Of each j: the product of j and of all j + m. Of all: the product of the indices.
    below = _ones(len(points))
    for i, point in enumerate(points):
        sums = points ^ point
        sums[i] = point
        below = _times_small(below, sums)
    product = _ones(1)
    for point in points:
        product = _times_small(product, point[None])
    return _products(np.broadcast_to(product, below.shape), _inverses(below))


def _blocks(data: bytes) -> Elements:
    """The elements in whole blocks, shape (blocks, 2)."""
    return np.frombuffer(data, dtype=">u8").astype(np.uint64).reshape(-1, 2)


def _ones(count: int) -> Elements:
    elements = np.zeros((count, 2), dtype=np.uint64)
    elements[:, 1] = 1
    return elements


def _times_x(elements: Elements) -> Elements:
    high, low = elements[..., 0], elements[..., 1]
    carry = high >> _TOP_BIT
    return np.stack([high << _ONE | low >> _TOP_BIT, (low << _ONE) ^ carry * _REDUCTION], axis=-1)


def _times_small(elements: Elements, factors: npt.NDArray[np.uint64]) -> Elements:
    """Products with public whole numbers below 2^31, each read as a polynomial.

    Args:
        elements: Shape (..., 2).
        factors: Broadcast over all axes of ``elements`` but the last.
    """
    bits = int(factors.max()).bit_length() if factors.size else 0
    result = np.zeros_like(elements)
    for bit in range(bits):
        if bit:
            elements = _times_x(elements)
        bits_of_factors = (factors >> np.uint64(bit)) & _ONE
        result ^= elements * bits_of_factors[..., None]
    return result


def _products(left: Elements, right: Elements) -> Elements:
    """Products in the field, one by one, shapes (..., 2)."""
    result = np.zeros_like(left)
    for bit in range(127, -1, -1):
        word = right[..., 0 if bit >= 64 else 1]
        bits_of_word = (word >> np.uint64(bit % 64)) & _ONE
        result = _times_x(result) ^ left * bits_of_word[..., None]
    return result


def _inverses(elements: Elements) -> Elements:
    """The inverses of public elements, none of which is zero."""
    inverses = [_inverse(int(high) << 64 | int(low)) for high, low in elements]
    return _blocks(b"".join(inverse.to_bytes(BLOCK, "big") for inverse in inverses))


def _inverse(element: int) -> int:
    """Euclid's algorithm for polynomials over GF(2), the coefficients in the bits."""
    remainder, divisor = element, 1 << 128 | int(_REDUCTION)
    factor, other_factor = 1, 0
    while remainder != 1:
        shift = remainder.bit_length() - divisor.bit_length()
        if shift < 0:
            remainder, divisor, shift = divisor, remainder, -shift
            factor, other_factor = other_factor, factor
        remainder ^= divisor << shift
        factor ^= other_factor << shift
    return factor


def _weighted_sum(values: Elements, weights: Elements) -> Elements:
    """The sum of ``weights[j] * values[j]`` in the field.

    Horner's method over the bits of the weights: what has a bit in common is added first.

    Args:
        values: Shape (t, ..., 2).
        weights: Shape (t, 2).
    """
    result = np.zeros(values.shape[1:], dtype=np.uint64)
    for bit in range(127, -1, -1):
        word = weights[:, 0 if bit >= 64 else 1]
        selection = ((word >> np.uint64(bit % 64)) & _ONE).astype(bool)
        result = _times_x(result) ^ np.bitwise_xor.reduce(values[selection], axis=0)
    return result


def _padded(secret: bytes) -> bytes:
    padding = BLOCK - len(secret) % BLOCK
    return secret + bytes([padding]) * padding
