"""The sparse vector technique on whole-number utilities: AboveThreshold, with OpenDP's noise."""

from __future__ import annotations

import functools
import math
from fractions import Fraction
from typing import Any

import numpy as np

from optuna_dp.core import validation
from optuna_dp.core.arrays import IntArray
from optuna_dp.errors import InvalidArgumentError
from optuna_dp.mechanisms.choice_plan import ErrorBound
from optuna_dp.mechanisms.utility_values import Utilities

# Noise is drawn for so many candidates at once: a pass that ends early has drawn little in vain.
_CHUNK = 64
_LARGEST_THRESHOLD = 1 << 60
# Noise of this scale leaves the range of 64-bit integers with probability exp(-2**17).
_LARGEST_SCALE = float(1 << 44)


class DiscreteLaplace:
    """The law ``P[X = x] = (1-a)/(1+a) a^|x|`` on whole numbers, ``a = exp(-1/scale)``.

    Draws are OpenDP's (exact sampling after Canonne, Kamath & Steinke, arXiv 2004.00010, from a
    cryptographic source); adding whole numbers to them is exact too.

    Guarantees:
        * No draw is made by floating-point arithmetic, and none comes from a seed.
    """

    def __init__(self, scale: float) -> None:
        import opendp.prelude as dp  # start-up time

        if not 0.0 < scale <= _LARGEST_SCALE:
            raise InvalidArgumentError(
                "noise scale",
                scale,
                allowed=f"it must be in (0, {_LARGEST_SCALE:g}]",
                fix="Raise epsilon.",
            )
        dp.enable_features("contrib")
        # i64, not OpenDP's default of 32 bits: saturation would cut the noise.
        space = dp.vector_domain(dp.atom_domain(T="i64")), dp.l1_distance(T="i64")
        self.scale = scale
        self.measurement: Any = dp.m.make_laplace(*space, scale=scale)

    def draw(self, size: int) -> IntArray:
        """``size`` independent draws."""
        return np.asarray(self.measurement([0] * size), dtype=np.int64)


@functools.lru_cache(maxsize=256)
def laplace_for(sensitivity: int, epsilon: float) -> DiscreteLaplace:
    """Noise that makes a shift by ``sensitivity`` cost at most ``epsilon``, by OpenDP's own map.

    Returns the smallest scale of at least ``sensitivity / epsilon`` for which OpenDP's privacy
    map, which rounds toward a larger epsilon, does not exceed ``epsilon``.
    """
    scale = sensitivity / epsilon
    while (noise := DiscreteLaplace(scale)).measurement.map(sensitivity) > epsilon:
        scale = math.nextafter(scale, math.inf)
    return noise


def above_threshold(
    utilities: Utilities, threshold: float | Fraction, epsilon: float
) -> int | None:
    """Returns the index of the first candidate whose noisy utility reaches the noisy threshold.

    With sensitivity Δ of the totals, the threshold gets discrete Laplace noise of scale
    ``2Δ/epsilon`` and every candidate independent noise of scale ``4Δ/epsilon``; for scores this
    is ``Lap(2/(k epsilon))`` and ``Lap(4/(k epsilon))`` on the averages (arXiv 2211.01852,
    Algorithm 1; Dwork & Roth 2014, Theorem 3.23; proof for whole numbers in
    docs/explanation/propose-test.md).

    Args:
        utilities: Utilities of the candidates, in the order in which they are tested.
        threshold: Utility to reach; must not depend on the data except through earlier answers.
        epsilon: Privacy of this one call; positive.

    Returns:
        The index, or None if no candidate reaches it.

    Raises:
        InvalidArgumentError: If ``epsilon`` is not positive, or so small that the noise leaves 64
            bits.

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


def above_threshold_error(n_candidates: int, epsilon: float, beta: float = 0.05) -> ErrorBound:
    """Error of one AboveThreshold call that is exceeded with probability at most ``beta``.

    ``(4 ln|S| + 6 ln(2/beta)) / (k epsilon)``: threshold noise below ``2 ln(2/beta)/(k epsilon)``
    with probability ``1 - beta/2``, all query noises below ``4 ln(2|S|/beta)/(k epsilon)``
    likewise. It implies the textbook's ``8 (ln|S| + ln(2/beta)) / (k epsilon)`` (Dwork & Roth
    2014, Theorem 3.24). An accepted utility is at least the threshold minus the error; if none is
    accepted, all utilities are below the threshold plus the error.
    """
    return ErrorBound.of_noise((4 * math.log(n_candidates) + 6 * math.log(2 / beta)) / epsilon)
