"""The Renyi divergence that the callback's line and the dashboard's note show beside epsilon."""

from __future__ import annotations

import numpy as np

from optuna_dp.accounting.guarantee import Guarantee
from optuna_dp.accounting.rdp_curves import DEFAULT_ORDERS, best_order
from optuna_dp.numbers_shown import rounded_down, significant_up


def renyi_in_words(guarantee: Guarantee, delta: float) -> str:
    """Returns the divergence at the order that suits ``delta`` best, rounded up.

    A function of the guarantee and delta alone.
    """
    curve = guarantee.rdp()
    order = best_order(DEFAULT_ORDERS, curve, delta)
    if order is None:
        return "no finite Renyi divergence is known"
    divergence = float(curve[np.searchsorted(DEFAULT_ORDERS, order)])
    # Divergences grow with the order, so an order that is shown rounded is rounded down.
    shown_order = rounded_down(order).rstrip("0").rstrip(".")
    return f"Renyi divergence at most {significant_up(divergence)} at order {shown_order}"
