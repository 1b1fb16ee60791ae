"""Bounds a whole Renyi-DP curve by its given points."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from optuna_dp.arrays import FloatArray


def interpolated_rdp(
    given_orders: npt.ArrayLike, given_epsilons: npt.ArrayLike, orders: npt.ArrayLike
) -> FloatArray:
    """Returns the tightest RDP curve through upper bounds at some orders.

    K(s) = s R_{1+s} = log E_P[e^{s L}] is convex in s with K(0) = 0 (Hoelder), so it lies below
    every chord of upper bounds, hence below their lower convex hull; the chord from s = 0 is the
    monotonicity of R. Beyond the last order nothing is known, unless an epsilon for order inf is
    given: then L <= eps, and K(s) <= K(s_n) + (s - s_n) eps.

    Args:
        given_orders: Shape (n,), above 1, ascending, possibly ending in inf.
        given_epsilons: Shape (n,), bounds at those orders; inf where unknown.
        orders: Shape (k,), finite, above 1.

    Returns:
        Shape (k,); inf beyond what the points say.
    """
    s_given = np.asarray(given_orders, dtype=np.float64) - 1.0
    eps = np.asarray(given_epsilons, dtype=np.float64)
    s = np.asarray(orders, dtype=np.float64) - 1.0
    usable = np.isfinite(eps) & np.isfinite(s_given)
    pure = float(eps[-1]) if np.isinf(s_given[-1]) else np.inf
    hull = [(0.0, 0.0)]
    for point in zip(s_given[usable], s_given[usable] * eps[usable], strict=True):
        while len(hull) > 1 and _turns_down(hull[-2], hull[-1], point):
            hull.pop()
        hull.append((float(point[0]), float(point[1])))
    knots = np.array(hull)
    on_hull = np.interp(s, knots[:, 0], knots[:, 1])
    is_within = s <= knots[-1, 0]
    if np.isinf(pure):
        return np.asarray(np.where(is_within, on_hull / s, np.inf), dtype=np.float64)
    # Order inf is the slope of the last piece; it may cut the hull anywhere.
    beyond_hull = np.min(
        knots[:, 1]
        + np.maximum(s[:, None] - knots[:, 0], 0.0) * pure
        + np.where(s[:, None] >= knots[:, 0], 0.0, np.inf),
        axis=1,
    )
    return np.asarray(
        np.where(is_within, np.minimum(on_hull, beyond_hull), beyond_hull) / s, dtype=np.float64
    )


def _turns_down(a: tuple[float, float], b: tuple[float, float], c: tuple[float, float]) -> bool:
    return bool((b[1] - a[1]) * (c[0] - b[0]) >= (c[1] - b[1]) * (b[0] - a[0]))
