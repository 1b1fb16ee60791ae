"""The Renyi-DP curve of one run, for every event.

All values are suprema over both adjacency directions. ``inf`` means that no bound is known at
that order; NaN never appears.
"""

from __future__ import annotations

import contextlib
import functools
import json
import logging
from collections.abc import Iterator
from typing import Any

import attr
import numpy as np
import numpy.typing as npt
from dp_accounting import dp_event
from dp_accounting.rdp import RdpAccountant, rdp_privacy_accountant

from optuna_dp import validation
from optuna_dp.accounting import events, supported_events
from optuna_dp.accounting.event_json import canonical_key, event_from_json
from optuna_dp.arrays import FloatArray
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


def rdp_of(
    event: Any,
    relation: str = "add_or_remove_one",
    orders: npt.ArrayLike = DEFAULT_ORDERS,
) -> FloatArray:
    """Returns upper bounds of the Renyi divergences of one run.

    dp-accounting's own events are judged by its ``RdpAccountant`` (Mironov, Talwar & Zhang,
    arXiv 1908.10530v1, for sampled Gaussians), with the noise of Gaussians halved under
    "replace_one": their ``noise_multiplier`` is relative to one contribution, and replacing a
    record moves the sum by up to two. Ours: compositions add (Mironov, arXiv 1702.07476v3,
    Proposition 1), a worst case is the maximum, a pure mechanism has the divergence of randomised
    response exactly, and points of a given curve are joined as :func:`interpolated_rdp` says.

    Args:
        event: Any supported event tree.
        relation: "add_or_remove_one" or "replace_one".
        orders: Shape (n,), finite, above 1, ascending. Selections minimise over these orders too,
            so a handful of them gives a looser curve than the default grid.

    Returns:
        Shape (n,); ``inf`` where nothing is known, never NaN.

    Raises:
        UnsupportedEventError: No accountant judges a sub-event (named), before any work.
    """
    events.neighboring_relation(relation)
    wanted = _checked_orders(orders)
    key = canonical_key(event)
    supported_events.check_supported(event, relation)
    return _rdp_cached(key, relation, tuple(wanted.tolist())).copy()


@functools.lru_cache(maxsize=256)
def _rdp_cached(key: str, relation: str, orders: tuple[float, ...]) -> FloatArray:
    return _rdp(event_from_json(json.loads(key)), relation, np.array(orders))


def _checked_orders(orders: npt.ArrayLike) -> FloatArray:
    try:
        result = np.asarray(orders, dtype=np.float64)
    except (TypeError, ValueError, OverflowError):
        raise InvalidArgumentError("orders", orders, "it must hold numbers only") from None
    if result.ndim != 1 or result.size == 0:
        raise InvalidArgumentError("orders", orders, "it must be a non-empty sequence")
    if not np.all((result > 1.0) & (result < np.inf)) or np.any(np.diff(result) <= 0.0):
        raise InvalidArgumentError(
            "orders",
            orders,
            "they must be finite, above 1 and ascending",
            "Just above 1 stands for order 1; order infinity, where it is finite, is "
            "Guarantee.by_method(delta)['pure'].",
        )
    return result


def _rdp(event: Any, relation: str, orders: FloatArray) -> FloatArray:
    def of(child: Any) -> FloatArray:
        # Cached as well: the same training is a part of many trees, and its series is dear.
        return _rdp_cached(canonical_key(child), relation, tuple(orders.tolist()))

    if isinstance(event, dp_event.SelfComposedDpEvent):
        if event.count == 0:
            return np.zeros_like(orders)
        return np.asarray(event.count * of(event.event))
    if isinstance(event, dp_event.ComposedDpEvent):
        total = np.zeros_like(orders)
        for child in event.events:
            total = total + of(child)
        return total
    if isinstance(event, events.WorstCaseDpEvent):
        return np.asarray(np.max([of(e) for e in event.events], axis=0))
    if isinstance(event, events.PrivateSelectionDpEvent):
        from optuna_dp.accounting.selection.renyi import selection_rdp

        run = of(event.run)
        result = np.asarray(selection_rdp(orders, run, event.trials, event.density_bounds))
        return np.where(np.isnan(result), np.inf, result)
    if isinstance(event, events.RdpDpEvent):
        return interpolated_rdp(event.orders, event.epsilons, orders)
    if isinstance(event, events.SkellamDpEvent):
        from optuna_dp.accounting.skellam import rdp_bound

        return rdp_bound(event.variance, event.changes(relation), orders)
    pure = pure_of(event, relation)
    bound = pure_rdp(pure, orders)
    if supported_events.has_rdp(event, relation):
        accountant = RdpAccountant(orders, events.neighboring_relation(relation))
        native = _halve_gaussians(event) if relation == "replace_one" else event
        try:
            with _quiet_series():
                values = np.asarray(accountant.compose(native).rdp, dtype=np.float64)
        except ValueError as error:
            raise InvalidArgumentError("event", event, f"dp-accounting says: {error}") from error
        # A divergence is at least zero; below it is rounding, and NaN is inf times zero.
        values = np.where(np.isnan(values), np.inf, np.maximum(values, 0.0))
        bound = np.minimum(bound, values)
    return bound


@contextlib.contextmanager
def _quiet_series() -> Iterator[None]:
    """Silences "failed to converge ... Excluding this order": such an order is inf here."""
    logger = logging.getLogger("absl")

    def other(record: logging.LogRecord) -> bool:
        return "failed to converge" not in str(record.msg)

    logger.addFilter(other)
    try:
        yield
    finally:
        logger.removeFilter(other)


def _halve_gaussians(event: Any) -> Any:
    if isinstance(event, dp_event.GaussianDpEvent):
        return dp_event.GaussianDpEvent(event.noise_multiplier / 2.0)
    if isinstance(event, dp_event.ComposedDpEvent):
        return dp_event.ComposedDpEvent([_halve_gaussians(e) for e in event.events])
    if hasattr(event, "event"):
        return attr.evolve(event, event=_halve_gaussians(event.event))
    return event


# -- pure DP -------------------------------------------------------------------------------------


def pure_of(event: Any, relation: str = "add_or_remove_one") -> float:
    """Returns an epsilon for which the event is epsilon-DP, ``inf`` if none is known."""
    one = relation != "replace_one"  # a record moves the sum by one contribution, not two
    if isinstance(event, dp_event.NoOpDpEvent):
        return 0.0
    if isinstance(event, dp_event.SelfComposedDpEvent):
        return event.count * pure_of(event.event, relation) if event.count else 0.0
    if isinstance(event, dp_event.ComposedDpEvent):
        return float(sum(pure_of(e, relation) for e in event.events))
    if isinstance(event, events.WorstCaseDpEvent):
        return max(pure_of(e, relation) for e in event.events)
    if isinstance(event, events.PrivateSelectionDpEvent):
        from optuna_dp.accounting.selection.renyi import pure_selection_epsilon

        run = pure_of(event.run, relation)
        return float(pure_selection_epsilon(run, event.trials, event.density_bounds))
    if isinstance(event, events.ApproximateDpEvent):
        return event.epsilon if event.delta == 0.0 else np.inf
    if isinstance(event, events.RdpDpEvent):
        return event.epsilons[-1] if np.isinf(event.orders[-1]) else np.inf
    if isinstance(event, dp_event.LaplaceDpEvent) and one and event.noise_multiplier > 0.0:
        return float(1.0 / event.noise_multiplier)
    if isinstance(event, dp_event.DiscreteLaplaceDpEvent) and one:
        # dp-accounting takes parameter 0 for "no noise".
        return float(event.noise_parameter * event.sensitivity) or np.inf
    if isinstance(event, dp_event.PoissonSampledDpEvent) and one:
        # Amplification by sampling: Balle, Barthe & Gaboardi, arXiv 1807.01647v2, Theorem 8.
        inner = pure_of(event.event, relation)
        q = event.sampling_probability
        if q == 0.0 or np.isinf(inner):
            return 0.0 if q == 0.0 else np.inf
        return float(np.logaddexp(np.log1p(-q), np.log(q) + inner)) if q < 1.0 else inner
    if isinstance(event, dp_event.RandomizedResponseDpEvent) and (relation != "add_or_remove_one"):
        p, k = event.noise_parameter, event.num_buckets
        if k <= 1:
            return 0.0
        return float(np.log1p(k * (1.0 - p) / p)) if p > 0.0 else np.inf
    return np.inf


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


# -- curves given by points ---------------------------------------------------------------------


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
    inside = np.interp(s, knots[:, 0], knots[:, 1])
    known = s <= knots[-1, 0]
    if np.isinf(pure):
        return np.asarray(np.where(known, inside / s, np.inf), dtype=np.float64)
    # Order inf is the slope of the last piece; it may cut the hull anywhere.
    steep = np.min(
        knots[:, 1]
        + np.maximum(s[:, None] - knots[:, 0], 0.0) * pure
        + np.where(s[:, None] >= knots[:, 0], 0.0, np.inf),
        axis=1,
    )
    return np.asarray(np.where(known, np.minimum(inside, steep), steep) / s, dtype=np.float64)


def _turns_down(a: tuple[float, float], b: tuple[float, float], c: tuple[float, float]) -> bool:
    return bool((b[1] - a[1]) * (c[0] - b[0]) >= (c[1] - b[1]) * (b[0] - a[0]))


# -- conversion -----------------------------------------------------------------------------------


def rdp_to_epsilon(orders: npt.ArrayLike, rdp: npt.ArrayLike, delta: float) -> float:
    """Returns an epsilon such that the mechanism is (epsilon, delta)-DP, by dp-accounting.

    Canonne, Kamath & Steinke, arXiv 2004.00010v4, Proposition 12, minimised over the orders.
    """
    delta = validation.open_unit("delta", delta)
    epsilon, _ = rdp_privacy_accountant.compute_epsilon(
        np.asarray(orders, dtype=np.float64), np.asarray(rdp, dtype=np.float64), delta
    )
    return float(epsilon)


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
        raise InvalidArgumentError("epsilons", epsilons, "they must be non-negative")
    best = np.full(eps.shape, np.sqrt(-np.expm1(-np.min(r))))
    for order, value in zip(a, r, strict=True):
        # dp-accounting's own cut: below, the formula is neither stable nor useful.
        if order > 1.01 and np.isfinite(value):
            with np.errstate(over="ignore"):  # to -inf, at an epsilon beyond every use
                log_delta = (order - 1.0) * (value - eps + np.log1p(-1.0 / order)) - np.log(order)
            best = np.minimum(best, np.exp(np.minimum(log_delta, 0.0)))
    return np.asarray(best, dtype=np.float64)
