"""The Renyi curve of selection from the curve of one run and its trade-off curve.

The density of the winner is at most A(p) times that of one run on D and at least B(p) times on D'
(:mod:`optuna_dp.selection.bounds.profile_bound`). So for each order a, in one direction::

    e^((a-1) D_a(selection)) <= e^((a-1) D_a(run)) sup_p A(p)^a B(p)^(1-a) + P[T = 0]

Theorem 9 (``docs/explanation/rdp-of-selection.md``) is the case in which all that is known of the
trade-off curve is G(p) <= (p e^D(b))^(1 - 1/b), so this is never above it.
"""

from __future__ import annotations

import numpy as np

from optuna_dp.accounting.dominating_pairs import DominatingPair
from optuna_dp.accounting.rdp_curves import running_minimum
from optuna_dp.core.arrays import FloatArray
from optuna_dp.selection.bounds.profile_bound import STEP, Lines, lines_on_grid
from optuna_dp.selection.laws.base import TrialCount

# Entries of a table of orders and points.
_AT_ONCE = 2_000_000


def curve_bound(
    orders: FloatArray,
    run_rdp: FloatArray,
    pair: DominatingPair,
    trials: TrialCount,
    density_bounds: tuple[float, float],
) -> FloatArray:
    """Returns upper bounds of the Renyi divergences of a selection, both directions together.

    Args:
        orders: Shape (n,), above 1, ascending.
        run_rdp: Shape (n,): bounds of the divergences of one run, in both directions.
        pair: Dominates one run.
        trials: The law of T.
        density_bounds: (c, C) with 0 < c <= 1 <= C. The density may depend on the data.
    """
    bound = np.zeros(orders.shape)
    for direction in (pair, pair.reversed()):
        lines = Lines(direction, trials, *density_bounds)
        if lines.slack >= 1.0:  # Rounding outweighs the bound.
            return np.full(orders.shape, np.inf)
        _, gain, cost = lines_on_grid(lines, STEP)
        # In a cell of p the gain is at most that of its lower end, and the cost at least that of
        # its upper end.
        with np.errstate(divide="ignore"):
            log_gain = np.log(gain[:-1]) + np.log1p(lines.slack)
            log_cost = np.log(cost[1:]) + np.log1p(-lines.slack)
        bound = np.maximum(bound, _largest(orders, log_gain, log_cost))
    with np.errstate(over="ignore", invalid="ignore"):  # To infinity: nothing is known.
        total = (orders - 1.0) * run_rdp + bound
    total = np.where(np.isnan(total), np.inf, total)
    none = float(trials.pmf(0))
    if none > 0.0:
        total = np.logaddexp(total, np.log(none))
    return running_minimum(orders, total / (orders - 1.0))


def _largest(orders: FloatArray, log_gain: FloatArray, log_cost: FloatArray) -> FloatArray:
    """Returns the largest a log A + (1 - a) log B for each order a."""
    shown = log_gain > -np.inf  # A gain of zero ends the cell.
    log_gain, log_cost = log_gain[shown], log_cost[shown]
    rows = max(1, _AT_ONCE // max(1, log_gain.size))
    parts = [
        (a[:, None] * log_gain - (a[:, None] - 1.0) * log_cost).max(axis=1)
        for a in np.split(orders, range(rows, orders.size, rows))
    ]
    return np.concatenate(parts)
