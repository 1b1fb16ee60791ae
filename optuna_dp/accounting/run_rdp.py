"""The Renyi-DP curve of one run, for every event.

All values are suprema over both adjacency directions. ``inf`` means that no bound is known at
that order; NaN never appears.
"""

from __future__ import annotations

import contextlib
import functools
import json
import logging
import math
from collections.abc import Callable, Iterator

import attr
import numpy as np
import numpy.typing as npt
from dp_accounting import dp_event
from dp_accounting.rdp import RdpAccountant
from scipy import special

from optuna_dp.accounting import events, sampled_gaussian, supported_events
from optuna_dp.accounting.bounds import Method
from optuna_dp.accounting.dominating_pairs import LARGEST_EPSILON, DominatingPair
from optuna_dp.accounting.event_json import canonical_key, event_from_json
from optuna_dp.accounting.kinds.foreign import has_rdp, kind_of, pure_of
from optuna_dp.accounting.rdp_curves import (
    DEFAULT_ORDERS,
    checked_orders,
    pure_rdp,
    rdp_to_delta,
    rdp_to_epsilon,
    running_minimum,
)
from optuna_dp.core.arrays import FloatArray
from optuna_dp.core.numbers_shown import SHOWN_ORDERS
from optuna_dp.errors import InvalidArgumentError

# From this order on dp-accounting's loop in Python takes longer than the rest of the curve.
_LONG_SERIES = 65
# Where the profile that a curve implies is read.
_PROFILE_POINTS = 4000

_USUAL_ORDERS = np.union1d(DEFAULT_ORDERS, SHOWN_ORDERS)
PairOf = Callable[[dp_event.DpEvent, str], DominatingPair]


def rdp_of(
    event: dp_event.DpEvent,
    relation: str = "add_or_remove_one",
    orders: npt.ArrayLike = DEFAULT_ORDERS,
) -> FloatArray:
    """Returns upper bounds of the Renyi divergences of one run.

    dp-accounting's own events are computed by its ``RdpAccountant`` (Mironov, Talwar & Zhang,
    arXiv 1908.10530v1, for sampled Gaussians), with the noise of Gaussians halved under
    "replace_one": their ``noise_multiplier`` is relative to one contribution, and replacing a
    record moves the sum by up to two. Ours: compositions add (Mironov, arXiv 1702.07476v3,
    Proposition 1), a worst case is the maximum, pure and bounded-range mechanisms have the
    divergence of the worst of their kind exactly, and points of a given curve are joined as
    :func:`~optuna_dp.accounting.rdp_curves.interpolated_rdp` says.

    Args:
        event: Any supported event tree.
        relation: "add_or_remove_one" or "replace_one".
        orders: Shape (n,), finite, above 1, ascending. Selections minimise over these orders too,
            so a handful of them gives a looser curve than the default grid.

    Returns:
        Shape (n,); ``inf`` where nothing is known, never NaN.

    Raises:
        UnsupportedEventError: No accountant supports a sub-event (named), before any work.
    """
    events.neighboring_relation(relation)
    result_orders = checked_orders(orders)
    key = canonical_key(event)
    supported_events.check_supported(event, relation)
    # dp-accounting's series for orders between whole ones are loose or do not end; the next whole
    # order bounds them, since Renyi divergences grow with the order.
    grid = np.union1d(result_orders, np.ceil(result_orders))
    curve = running_minimum(grid, _rdp_cached(key, relation, tuple(grid.tolist())))
    return curve[np.searchsorted(grid, result_orders)]


def best_rdp_of(
    event: dp_event.DpEvent, relation: str, orders: npt.ArrayLike, pair_of: PairOf
) -> FloatArray:
    """Returns the smallest upper bounds that are known of the Renyi divergences of one run.

    As :func:`rdp_of`, with two more bounds of selections, which take longer and lower no epsilon.
    The bound at an order does not depend on which other orders are asked.

    Args:
        event: Any supported event tree.
        relation: "add_or_remove_one" or "replace_one".
        orders: Shape (n,), finite, above 1, ascending.
        pair_of: Gives the pair that dominates an event.
    """
    result_orders = checked_orders(orders)
    # One grid for all that statements and callbacks ask, so that it is computed once.
    grid = np.union1d([*result_orders, *np.ceil(result_orders)], _USUAL_ORDERS)
    supported_events.check_supported(event, relation)
    curve = _rdp_cached(canonical_key(event), relation, tuple(grid.tolist()), pair_of)
    return running_minimum(grid, curve)[np.searchsorted(grid, result_orders)]


def orders_for(event: dp_event.DpEvent) -> FloatArray:
    """Returns the orders at which an event's curve is converted to an epsilon.

    The default ones, and those at which a part of it was given: between them a given curve is
    bounded by chords, which say less.
    """
    return np.union1d(DEFAULT_ORDERS, [a for a in _given_orders(event) if a <= DEFAULT_ORDERS[-1]])


def _given_orders(event: dp_event.DpEvent) -> Iterator[float]:
    yield from kind_of(event).given_orders
    for part in kind_of(event).children():
        yield from _given_orders(part)


class RdpMethod(Method):
    """A Renyi-DP curve, converted."""

    def __init__(self, orders: FloatArray, curve: FloatArray, reason: str | None = None) -> None:
        self._orders, self._curve = orders, curve
        self._reason = reason

    def delta(self, epsilons: npt.ArrayLike) -> FloatArray:
        """See :class:`Method`."""
        return rdp_to_delta(self._orders, self._curve, epsilons)

    def epsilon(self, delta: float) -> float:
        """See :class:`Method`."""
        return rdp_to_epsilon(self._orders, self._curve, delta)

    def why_infinite(self, delta: float) -> str:
        """See :class:`Method`."""
        return self._reason or "a part of the event has no Renyi-DP curve"


def renyi_method(event: dp_event.DpEvent, relation: str) -> RdpMethod:
    """Returns the bound that an event's curve implies."""
    orders = orders_for(event)
    return RdpMethod(orders, rdp_of(event, relation, orders), kind_of(event).why_no_curve())


def pair_of_curve(event: dp_event.DpEvent, relation: str) -> DominatingPair:
    """Returns the pair that an event's curve implies: the same bound in both directions."""
    orders = orders_for(event)
    rdp = rdp_of(event, relation, orders)
    if not np.any(np.isfinite(rdp)):
        return DominatingPair.infinite()
    top = min(rdp_to_epsilon(orders, rdp, 1e-16), LARGEST_EPSILON)
    middle = min(rdp_to_epsilon(orders, rdp, 1e-8), top)
    half = _PROFILE_POINTS // 2
    epsilons = np.union1d(np.linspace(0.0, top, half), np.linspace(0.0, middle, half))
    deltas = rdp_to_delta(orders, rdp, epsilons)
    return DominatingPair.from_profile(epsilons, deltas, deltas)


@functools.lru_cache(maxsize=256)
def _rdp_cached(
    key: str, relation: str, orders: tuple[float, ...], pair_of: PairOf | None = None
) -> FloatArray:
    return _rdp(event_from_json(json.loads(key)), relation, np.array(orders), pair_of)


def _rdp(
    event: dp_event.DpEvent, relation: str, orders: FloatArray, pair_of: PairOf | None
) -> FloatArray:
    def of(child: dp_event.DpEvent) -> FloatArray:
        # Cached as well: the same training is a part of many trees, and its series takes long.
        return _rdp_cached(canonical_key(child), relation, tuple(orders.tolist()), pair_of)

    kind = kind_of(event)
    if pair_of is None:
        event_curve = kind.curve(orders, relation, of)
    else:
        event_curve = kind.best_curve(orders, relation, of, pair_of)
    if event_curve is not None:
        return event_curve
    pure = pure_of(event, relation)
    bound = pure_rdp(pure, orders)
    if has_rdp(event, relation):
        native = _halve_gaussians(event) if relation == "replace_one" else event
        # The series of a sampled Gaussian ends at whole orders, and is long at large ones.
        long = np.zeros(orders.shape, dtype=bool)
        if relation == "add_or_remove_one" and sampled_gaussian.applies_to(event):
            long = (orders >= _LONG_SERIES) & (orders == np.floor(orders))
        values = np.empty(orders.shape)
        if np.any(long):
            values[long] = _of_whole_orders(event, orders[long])
        accountant = RdpAccountant(orders[~long], events.neighboring_relation(relation))
        try:
            with _quiet_series():
                values[~long] = accountant.compose(native).rdp
        except ZeroDivisionError:  # Laplace noise of scale 0, which is none.
            values[~long] = np.inf
        except ValueError as error:
            raise InvalidArgumentError(
                "event", event, problem=f"dp-accounting says: {error}"
            ) from error
        # A divergence is at least zero; below it is rounding, and NaN is inf times zero.
        values = np.where(np.isnan(values), np.inf, np.maximum(values, 0.0))
        bound = np.minimum(bound, running_minimum(orders, values))
    return bound


def _of_whole_orders(event: dp_event.DpEvent, orders: FloatArray) -> FloatArray:
    """Returns dp-accounting's curve of a sampled Gaussian, each sum at once and not in a loop.

    e^((a - 1) curve(a)) is the sum over k of P[k] e^(x_k), P the binomial law of a trials and
    x_k = (k^2 - k) / 2 sigma^2 (section 3.3 of arXiv 1908.10530v1): one more than the sum of
    P[k] (e^(x_k) - 1), whose terms are not negative, so that nothing small is lost beside one.
    """
    rate, noise = event.sampling_probability, event.event.noise_multiplier
    k = np.arange(orders.max() + 1.0)
    factorial = special.gammaln(k + 1.0)
    with np.errstate(divide="ignore", invalid="ignore"):
        x = (k * k - k) / (2.0 * noise**2)
        chosen = k * math.log(rate) - factorial + x + np.log(-np.expm1(-x))
    log_others = k * math.log1p(-rate) - factorial
    excess = [
        factorial[a] + special.logsumexp(chosen[2 : a + 1] + log_others[a - 2 :: -1])
        for a in orders.astype(int)
    ]
    return np.asarray(np.logaddexp(0.0, excess) / (orders - 1.0))


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


def _halve_gaussians(event: dp_event.DpEvent) -> dp_event.DpEvent:
    if isinstance(event, dp_event.GaussianDpEvent):
        return dp_event.GaussianDpEvent(event.noise_multiplier / 2.0)
    if isinstance(event, dp_event.ComposedDpEvent):
        return dp_event.ComposedDpEvent([_halve_gaussians(e) for e in event.events])
    if hasattr(event, "event"):
        return attr.evolve(event, event=_halve_gaussians(event.event))
    return event
