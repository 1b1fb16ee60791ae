"""Mechanisms on a secret Poisson sample of the records: docs/explanation/sampling.md."""

from __future__ import annotations

import numpy as np

from optuna_dp.accounting.dominating_pairs import DominatingPair


def sampled(pair: DominatingPair, rate: float) -> DominatingPair:
    """Returns a pair for the mechanism on a sample that each record joins with probability rate.

    With the record the output has law O where it was sampled and O' where not, so
    ``((1 - rate) O' + rate O, O')`` dominates for removing a record, and exchanged for adding one.

    Args:
        pair: Dominates the mechanism, forward for removing a record.
        rate: In (0, 1].
    """
    if rate == 1.0:
        return pair
    # The loss log(1 - rate + rate e^l) grows with l, by at most l; mass O' stays as it is.
    losses = np.logaddexp(np.log1p(-rate), np.log(rate) + pair.losses)
    mass = (1.0 - rate) * pair.mass_prime + rate * pair.mass
    never = np.log1p(-rate)  # the loss where only O' has mass
    losses = np.concatenate([[never], losses])
    mass = np.concatenate([[(1.0 - rate) * pair.null_mass], mass])
    # Outputs whose losses rounding has made equal become one; the larger loss claims less.
    distinct_losses, group = np.unique(losses, return_inverse=True)
    merged = np.asarray(np.bincount(group, mass), dtype=np.float64)
    return DominatingPair(distinct_losses, merged, rate * pair.infinite_mass)
