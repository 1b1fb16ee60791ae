"""AboveThreshold on whole-number utilities: the first candidate whose noisy utility reaches it."""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from optuna_dp import validation
from optuna_dp.utilities.exact_noise import laplace_for
from optuna_dp.utilities.utility_values import Utilities

# Noise is drawn for so many candidates at once: a pass that ends early has drawn little in vain.
_CHUNK = 64
_LARGEST_THRESHOLD = 1 << 60


def above_threshold(
    utilities: Utilities, threshold: float | Fraction, epsilon: float
) -> int | None:
    """The first candidate whose noisy utility reaches the noisy threshold, or None.

    With sensitivity Δ of the totals, the threshold gets discrete Laplace noise of scale
    ``2Δ/epsilon`` and every candidate independent noise of scale ``4Δ/epsilon``; for scores this
    is ``Lap(2/(k epsilon))`` and ``Lap(4/(k epsilon))`` on the averages (arXiv 2211.01852,
    Algorithm 1; Dwork & Roth 2014, Theorem 3.23; proof for whole numbers in
    docs/explanation/propose-test.md).

    Args:
        utilities: Utilities of the candidates, in the order in which they are tested.
        threshold: Utility to reach; must not depend on the data except through earlier answers.
        epsilon: Privacy of this one call.

    Guarantees:
        * ``epsilon``-DP with respect to a change of one partition.
        * The answer has the law of the sequential mechanism: noise after the first hit is not
          looked at.
    """
    epsilon = validation.positive("epsilon", epsilon)
    # Clipping a number that does not depend on the data costs nothing; it keeps 64 bits enough.
    whole_threshold = min(round(Fraction(threshold) * utilities.unit), _LARGEST_THRESHOLD)
    noise = laplace_for(utilities.sensitivity, epsilon / 2)
    query_noise = laplace_for(2 * utilities.sensitivity, epsilon / 2)
    noisy_threshold = whole_threshold + int(noise.draw(1)[0])
    for start in range(0, utilities.n_candidates, _CHUNK):
        chunk = utilities.totals[start : start + _CHUNK]
        hits = np.flatnonzero(query_noise.draw(len(chunk)) >= noisy_threshold - chunk)
        if len(hits):
            return start + int(hits[0])
    return None
