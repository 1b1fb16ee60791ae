"""Values of polynomials with non-negative coefficients, short or of millions of terms."""

from __future__ import annotations

import math

import numpy as np

from optuna_dp.core.arrays import FloatArray

# Coefficients that are summed at once.
_BLOCK = 256


def polynomial(coefficients: FloatArray, s: FloatArray) -> FloatArray:
    """Returns the polynomial at each point s, by Horner's rule.

    All coefficients and s are non-negative, so nothing cancels.

    Long polynomials in blocks: a matrix product gives each block's value at each s, Horner's rule
    joins them.
    """
    if coefficients.size <= 4 * _BLOCK:
        total = np.zeros_like(s)
        for coefficient in coefficients[::-1]:
            total = total * s + coefficient
        return total
    points, place = np.unique(s.ravel(), return_inverse=True)
    padding = np.zeros(-coefficients.size % _BLOCK)
    blocks = np.concatenate([coefficients, padding]).reshape(-1, _BLOCK).T
    # Terms so far beyond the first one are less than its rounding, which the sum is at least.
    lowest = int(np.flatnonzero(coefficients)[0])
    negligible = math.log(1e18) + math.log(coefficients.sum()) - math.log(coefficients[lowest])
    with np.errstate(divide="ignore"):
        terms = lowest + negligible / np.abs(np.log(points))
    ends = np.minimum(terms, coefficients.size) // _BLOCK + 2
    values = np.empty_like(points)
    chunk = max(1, 4_000_000 // blocks.shape[1])
    for start in range(0, points.size, chunk):
        part = slice(start, start + chunk)
        at = points[part]
        inner = at[:, None] ** np.arange(_BLOCK) @ blocks[:, : int(ends[part].max())]
        total, step = np.zeros_like(at), at**_BLOCK
        for column in inner.T[::-1]:
            total = total * step + column
        values[part] = total
    return values[place].reshape(s.shape)
