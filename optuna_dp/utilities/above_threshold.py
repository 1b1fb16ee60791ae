"""AboveThreshold on whole-number utilities: the first candidate whose noisy utility reaches it."""

from __future__ import annotations

from fractions import Fraction

from optuna_dp import validation
from optuna_dp.arrays import IntArray
from optuna_dp.utilities.exact_noise import DiscreteLaplace, laplace_for
from optuna_dp.utilities.utility_values import Utilities

_FIRST_CHUNK = 8
_LARGEST_CHUNK = 4096
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
        * The answer has the law of the sequential mechanism: noise after the first hit would not
          be looked at, and is not drawn.
    """
    epsilon = validation.positive("epsilon", epsilon)
    # Clipping a number that does not depend on the data costs nothing; it keeps 64 bits enough.
    whole_threshold = min(round(Fraction(threshold) * utilities.unit), _LARGEST_THRESHOLD)
    return first_above(
        utilities.totals,
        whole_threshold,
        threshold_noise=laplace_for(utilities.sensitivity, epsilon / 2),
        query_noise=laplace_for(2 * utilities.sensitivity, epsilon / 2),
    )


def first_above(
    totals: IntArray,
    threshold: int,
    *,
    threshold_noise: DiscreteLaplace,
    query_noise: DiscreteLaplace,
) -> int | None:
    """AboveThreshold with the noise given; no promise about privacy of its own."""
    noisy_threshold = threshold + int(threshold_noise.draw(1)[0])
    start, size = 0, _FIRST_CHUNK
    # Chunks, growing: a pass that stops early has drawn little noise in vain.
    while start < len(totals):
        hit = query_noise.first_reaching(noisy_threshold - totals[start : start + size])
        if hit is not None:
            return start + hit
        start, size = start + size, min(4 * size, _LARGEST_CHUNK)
    return None
