"""How well the best event tells two distributions apart: the trade-off curve of a pair."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from optuna_dp.accounting.dominating_pairs import DominatingPair
from optuna_dp.arrays import FloatArray
from optuna_dp.errors import InvalidArgumentError

_LONG = np.longdouble


def trade_off(pair: DominatingPair, p: npt.ArrayLike) -> FloatArray:
    """Returns G(p) = sup{ O'(E) : O(E) <= p }, events randomised as needed.

    The Neyman-Pearson lemma takes atoms by ascending loss, so G is piecewise linear with its
    vertices at the cumulated masses: interpolating between *these* vertices is exact, not a
    chord below a concave function.

    Args:
        pair: The pair (O, O').
        p: Values in [0, 1], any shape.

    Returns:
        An array of the shape of ``p``; concave, G(0) = null_mass, G(1) = 1.
    """
    points = np.asarray(p, dtype=np.float64)
    if not np.all((points >= 0.0) & (points <= 1.0)):
        raise InvalidArgumentError("p", p, "it must lie in [0, 1]")
    return np.asarray(np.interp(points, *trade_off_vertices(pair)), dtype=np.float64)


def trade_off_vertices(pair: DominatingPair) -> tuple[FloatArray, FloatArray]:
    """Returns all vertices (p, G(p)) of the trade-off curve, p ascending from 0 to 1."""
    p = np.concatenate(([0.0], np.cumsum(pair.mass, dtype=_LONG), [1.0]))
    g = np.concatenate(([0.0], np.cumsum(pair.mass_prime, dtype=_LONG), [0.0]))
    g = np.minimum(g + _LONG(pair.null_mass), 1.0)
    g[-1] = 1.0
    if pair.infinite_mass == 0.0:
        g[-2] = 1.0  # nothing is left but rounding
    p = np.maximum.accumulate(np.minimum(p, 1.0))
    return p.astype(np.float64), g.astype(np.float64)
