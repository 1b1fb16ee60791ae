"""The pair of an answer at random among several."""

from __future__ import annotations

import math

import numpy as np

from optuna_dp.accounting.dominating_pairs import DominatingPair
from optuna_dp.accounting.kinds.approximate import without_extremes


def k_ary_response(noise_parameter: float, buckets: int) -> DominatingPair:
    """Returns the pair when the input changes, exactly: the answer is it, the other or a third.

    Args:
        noise_parameter: The chance that the answer is drawn at random, in (0, 1].
        buckets: How many answers there are; at least 2.
    """
    third_mass = noise_parameter / buckets
    true_mass = 1.0 - noise_parameter + third_mass
    loss = math.log1p((1.0 - noise_parameter) / third_mass)
    mass = np.array([third_mass, max((buckets - 2) * third_mass, 0.0), true_mass])
    return without_extremes(np.array([-loss, 0.0, loss]), mass, mass[::-1], 0.0)
