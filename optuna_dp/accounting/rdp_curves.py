"""Arithmetic of Renyi-DP curves: what is known of one at some orders, and what it implies.

``inf`` means that no bound is known at that order; NaN never appears.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from dp_accounting.rdp import rdp_privacy_accountant

from optuna_dp.core import validation
from optuna_dp.core.arrays import FloatArray
from optuna_dp.errors import InvalidArgumentError

# Large epsilons are best converted at orders near 1, tiny ones at orders in the thousands
# (gaussian(1000) at delta 1e-5: 4800), and the selection terms minimise over the order as well.
# a - 1 grows by 9 % a step up to 12, where whole numbers take over: there dp-accounting's
# series for sampled Gaussians is finite, and its cost grows with the order.
DEFAULT_ORDERS: tuple[float, ...] = (
    *(float(1.0 + 0.02 * 1.09**k) for k in range(73)),
    *(float(a) for a in range(12, 65)),
    *(float(round(64 * 1.12**k)) for k in range(1, 46)),
)


def checked_orders(orders: npt.ArrayLike) -> FloatArray:
    """Returns the orders as an array: finite, above 1, ascending; refuses anything else."""
    try:
        result = np.asarray(orders, dtype=np.float64)
    except (TypeError, ValueError, OverflowError):
        raise InvalidArgumentError("orders", orders, allowed="it must hold numbers only") from None
    if result.ndim != 1 or result.size == 0:
        raise InvalidArgumentError("orders", orders, allowed="it must be a non-empty sequence")
    if not np.all((result > 1.0) & (result < np.inf)) or np.any(np.diff(result) <= 0.0):
        raise InvalidArgumentError(
            "orders",
            orders,
            allowed="they must be finite, above 1 and ascending",
            fix="Just above 1 stands for order 1; order infinity, where it is finite, is "
            "Guarantee.by_method(delta)['pure'].",
        )
    return result


def checked_curve(orders: npt.ArrayLike, run_rdp: npt.ArrayLike) -> tuple[FloatArray, FloatArray]:
    """Returns orders of at least 1 and the curve there as arrays; refuses what is no curve."""
    a = np.asarray(orders, dtype=np.float64)
    run = np.asarray(run_rdp, dtype=np.float64)
    if a.ndim != 1 or a.size == 0 or not bool(np.all(a >= 1.0)):
        raise InvalidArgumentError(
            "orders", orders, allowed="it must be a non-empty sequence of orders of at least 1"
        )
    # A divergence is at least 0; accountants return -1e-18 and the like when rounding.
    if run.shape != a.shape or not bool(np.all(run >= -1e-9)):
        raise InvalidArgumentError(
            "run_rdp",
            run_rdp,
            allowed="it must hold one value >= 0 (or inf) for each order, and no NaN",
        )
    return a, np.maximum(run, 0.0)


def over_order(a: FloatArray, value: float) -> FloatArray:
    """value / (a - 1), with 0 at order inf and inf at order 1."""
    s = np.where(a > 1.0, a - 1.0, 1.0)
    return np.asarray(np.where(a > 1.0, value / s, np.inf))


def at_orders_above_one(a: FloatArray, bound: FloatArray) -> FloatArray:
    """The bound where the order is above 1, inf elsewhere."""
    return np.asarray(np.where(a > 1.0, bound, np.inf), dtype=np.float64)


def running_minimum(a: FloatArray, bound: FloatArray) -> FloatArray:
    """The smallest bound at an order at least as large: Renyi divergences grow with the order."""
    order = np.argsort(a, kind="stable")
    from_right = np.minimum.accumulate(bound[order][::-1])[::-1]
    # Equal orders share the best of them.
    return np.asarray(from_right[np.searchsorted(a[order], a, side="left")], dtype=np.float64)


def pure_rdp(epsilon: float, orders: npt.ArrayLike) -> FloatArray:
    """Returns the largest Renyi divergence of an epsilon-DP mechanism, exactly.

    Randomised response dominates every such mechanism and attains it (Kairouz, Oh & Viswanath,
    arXiv 1311.0776v4): log(cosh((a - 1/2) eps) / cosh(eps / 2)) / (a - 1), written so that nothing
    cancels for small eps and nothing overflows for large.
    """
    a = np.asarray(orders, dtype=np.float64)
    if np.isinf(epsilon):
        return np.full_like(a, np.inf)
    x, y = (a - 0.5) * epsilon, 0.5 * epsilon
    small = np.minimum(a * epsilon, 30.0)
    near = np.log1p(
        2.0 * np.sinh(small / 2.0) * np.sinh(small * (a - 1.0) / (2.0 * a)) / np.cosh(min(y, 15.0))
    )
    far = x - y + np.log1p(np.exp(-2.0 * x)) - np.log1p(np.exp(-2.0 * y))
    value = np.where(a * epsilon < 30.0, near, far) / (a - 1.0)
    return np.asarray(np.minimum(value, epsilon), dtype=np.float64)


def rdp_to_epsilon(orders: npt.ArrayLike, rdp: npt.ArrayLike, delta: float) -> float:
    """Returns an epsilon such that the mechanism is (epsilon, delta)-DP, by dp-accounting.

    Canonne, Kamath & Steinke, arXiv 2004.00010v4, Proposition 12, minimised over the orders.
    Rounded up: :func:`rdp_to_delta` at the result is at most ``delta``.
    """
    delta = validation.open_unit("delta", delta)
    epsilon, _ = rdp_privacy_accountant.compute_epsilon(
        np.asarray(orders, dtype=np.float64), np.asarray(rdp, dtype=np.float64), delta
    )
    epsilon = float(epsilon)
    step = 1e-15
    while np.isfinite(epsilon) and float(rdp_to_delta(orders, rdp, epsilon)) > delta:
        # The two formulas are each other's inverse up to rounding: the promise is about delta.
        epsilon += step * max(epsilon, 1e-3)
        step *= 2.0
    return epsilon


def best_order(orders: npt.ArrayLike, rdp: npt.ArrayLike, delta: float) -> float | None:
    """Returns the order at which the conversion to epsilon at ``delta`` is smallest.

    None where no order has a finite divergence. Which order it is decides about no guarantee.
    """
    a = np.asarray(orders, dtype=np.float64)
    r = np.asarray(rdp, dtype=np.float64)
    if not np.any(np.isfinite(r)):
        return None
    with np.errstate(invalid="ignore"):
        epsilons = r + np.log1p(-1.0 / a) - np.log(delta * a) / (a - 1.0)
    return float(a[int(np.argmin(epsilons))])


def rdp_to_delta(orders: npt.ArrayLike, rdp: npt.ArrayLike, epsilons: npt.ArrayLike) -> FloatArray:
    """Returns deltas such that the mechanism is (epsilon, delta)-DP, for many epsilons at once.

    The formulas of dp-accounting's ``compute_delta``: Canonne, Kamath & Steinke, arXiv
    2004.00010v4, Proposition 12, and sqrt(1 - e^-KL) (Bretagnolle & Huber).

    Args:
        orders: Shape (n,), above 1.
        rdp: Shape (n,), inf allowed.
        epsilons: Non-negative, any shape.

    Returns:
        An array of the shape of ``epsilons`` in [0, 1].
    """
    a = np.asarray(orders, dtype=np.float64)
    r = np.asarray(rdp, dtype=np.float64)
    eps = np.asarray(epsilons, dtype=np.float64)
    if not np.all(eps >= 0.0):
        raise InvalidArgumentError("epsilons", epsilons, allowed="they must be non-negative")
    best = np.full(eps.shape, np.sqrt(-np.expm1(-np.min(r))))
    for order, value in zip(a, r, strict=True):
        # dp-accounting's own cut: below, the formula is neither stable nor useful.
        if order > 1.01 and np.isfinite(value):
            with np.errstate(over="ignore"):  # to -inf, at an epsilon beyond every use
                log_delta = (order - 1.0) * (value - eps + np.log1p(-1.0 / order)) - np.log(order)
            best = np.minimum(best, np.exp(np.minimum(log_delta, 0.0)))
    return np.asarray(best, dtype=np.float64)


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
