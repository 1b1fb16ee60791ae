"""The bound that a Renyi-DP curve implies.

It has a vote where it may be the smallest (:mod:`optuna_dp.accounting.epsilon_methods` says where)
and is shown everywhere.
"""

from __future__ import annotations

from typing import Any

import numpy.typing as npt

from optuna_dp.accounting import run_rdp
from optuna_dp.accounting.bounds import Method
from optuna_dp.accounting.kinds.foreign import kind_of
from optuna_dp.accounting.rdp_curves import rdp_to_delta, rdp_to_epsilon
from optuna_dp.arrays import FloatArray


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


def renyi_method(event: Any, relation: str) -> RdpMethod:
    """Returns the bound of an event."""
    reason = kind_of(event).why_no_curve()
    orders = run_rdp.orders_for(event)
    return RdpMethod(orders, run_rdp.rdp_of(event, relation, orders), reason)
