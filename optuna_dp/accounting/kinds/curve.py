"""Mechanisms that are known only by points of their Renyi-DP curve."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import attr
from dp_accounting import dp_event

from optuna_dp.accounting.kinds.base import OwnEvent, checked
from optuna_dp.accounting.rdp_curves import interpolated_rdp
from optuna_dp.core import validation
from optuna_dp.core.arrays import FloatArray
from optuna_dp.errors import InvalidArgumentError


def _as_numbers(name: str, values: object) -> tuple[float, ...]:
    if isinstance(values, str) or not hasattr(values, "__iter__"):
        raise InvalidArgumentError(name, values, allowed="it must be a sequence of numbers")
    result = tuple(validation.number(f"{name}[{i}]", v) for i, v in enumerate(values))
    if not result:
        raise InvalidArgumentError(name, values, allowed="it must not be empty")
    return result


@attr.s(frozen=True, slots=True, auto_attribs=True)
class RdpDpEvent(OwnEvent):
    """A mechanism known only by points of its Renyi-DP curve, both directions bounded.

    Attributes:
        orders: Shape (n,), above 1, ascending (sorted by the constructor together with
            ``epsilons``); inf means pure DP.
        epsilons: Shape (n,), non-negative; inf where nothing is known.
    """

    orders: Sequence[float] = checked(_as_numbers, "orders")
    epsilons: Sequence[float] = checked(_as_numbers, "epsilons")

    def __attrs_post_init__(self) -> None:
        if len(self.orders) != len(self.epsilons):
            raise InvalidArgumentError(
                "epsilons",
                self.epsilons,
                allowed=f"it must be as long as orders, {len(self.orders)}",
            )
        for order in self.orders:
            if not order > 1.0:
                raise InvalidArgumentError("orders", order, allowed="every order must be above 1")
        if len(set(self.orders)) < len(self.orders):
            raise InvalidArgumentError("orders", self.orders, problem="no order may appear twice")
        for epsilon in self.epsilons:
            if epsilon < 0.0:
                raise InvalidArgumentError("epsilons", epsilon, allowed="every value must be >= 0")
        points = sorted(zip(self.orders, self.epsilons, strict=True))
        object.__setattr__(self, "orders", tuple(order for order, _ in points))
        object.__setattr__(self, "epsilons", tuple(epsilon for _, epsilon in points))

    def known_by_curve(self, relation: str) -> bool:
        """See :class:`OwnEvent`."""
        return True

    @property
    def given_orders(self) -> Sequence[float]:
        """See :class:`OwnEvent`."""
        return self.orders

    def words(self, of: Callable[[dp_event.DpEvent], str]) -> str:
        """See :class:`OwnEvent`."""
        return f"a mechanism with a given Rényi-DP curve ({len(self.orders)} orders)"

    def not_private(self) -> str | None:
        """See :class:`OwnEvent`."""
        if math.isinf(min(self.epsilons)):
            return "an RdpDpEvent has no finite value at any order"
        return None

    def pure(self, relation: str, pure_of: Callable[[dp_event.DpEvent, str], float]) -> float:
        """See :class:`OwnEvent`."""
        return self.epsilons[-1] if math.isinf(self.orders[-1]) else math.inf

    def curve(
        self, orders: FloatArray, relation: str, curve_of: Callable[[dp_event.DpEvent], FloatArray]
    ) -> FloatArray:
        """See :class:`OwnEvent`."""
        return interpolated_rdp(self.orders, self.epsilons, orders)


def rdp(orders: Sequence[float], epsilons: Sequence[float]) -> RdpDpEvent:
    """Returns the event of any mechanism with these points on its Renyi-DP curve.

    Args:
        orders: Above 1, none twice, any order; inf means pure DP.
        epsilons: One for each order, non-negative; inf where nothing is known.

    Raises:
        InvalidArgumentError: If they differ in length, an order is not above 1 or appears twice,
            or an epsilon is negative.
    """
    return RdpDpEvent(orders, epsilons)
