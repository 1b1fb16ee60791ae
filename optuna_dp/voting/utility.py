"""Computes the probability that a vote chooses well, for planning.

Notation (code name: meaning, name in arXiv 2510.04902):

==============  ==================================================================================
``gap``         least votes of a good candidate less most votes of a bad one, ``Delta``
``good, bad``   how many candidates are good, and how many are not
``variance``    of the noise of one entry of the sum, ``sigma^2``
==============  ==================================================================================

Proofs: ``docs/explanation/voting.md``, "How good is the choice".
"""

from __future__ import annotations

import math

import numpy as np

from optuna_dp.accounting.skellam import pmf
from optuna_dp.core import validation
from optuna_dp.errors import InvalidArgumentError


def chance_of_gap(gap: int, *, good: int, bad: int, variance: float) -> float:
    """Returns the least probability that the noisy winner is good, over all votes with this gap.

    It is reached, but for ties, where every bad candidate has as many votes as the best of them,
    and every good one ``gap`` more: then each noise is independent, and the largest noise of the
    good ones has to exceed the largest of the bad ones by more than ``-gap``. Theorem V.1 of arXiv
    2510.04902 bounds the same probability from below by a union over the bad candidates, which is
    close where it is near one and says nothing where it is not.

    Args:
        gap: In votes; may be negative.
        good: Number of good candidates, at least 1.
        bad: Number of the others, at least 0.
        variance: Of the noise of one entry, in squared votes; positive.

    Returns:
        A number in [0, 1]; a tie counts as a bad choice.

    Raises:
        InvalidArgumentError: If an argument is not allowed.
    """
    g, b = validation.whole("good", good, 1), validation.whole("bad", bad, 0)
    _, mass = pmf(validation.positive("variance", variance))
    below = np.minimum(np.cumsum(mass), 1.0)  # P[noise <= x]
    # P[the largest of g noises is x], and P[the largest of b noises is less than x + gap].
    largest = np.diff(below**g, prepend=0.0)
    at = np.arange(mass.size) + int(gap) - 1
    beaten = np.where(at < 0, 0.0, below[np.clip(at, 0, mass.size - 1)]) ** b
    return float(np.clip(largest @ beaten, 0.0, 1.0))


def visible_gap(chance: float, *, good: int, bad: int, variance: float) -> int:
    """Returns the smallest gap in votes, from 0, at which :func:`chance_of_gap` is ``chance``.

    Args:
        chance: In (0, 1).
        good: Number of good candidates, at least 1.
        bad: Number of the others, at least 0.
        variance: Of the noise of one entry, in squared votes; positive.

    Raises:
        InvalidArgumentError: If an argument is not allowed, or so near 1 that rounding decides.
    """
    target = validation.open_unit("chance", chance)
    low, high = -1, 1

    def suffices(gap: int) -> bool:
        return chance_of_gap(gap, good=good, bad=bad, variance=variance) >= target

    while not suffices(high):
        low, high = high, 2 * high
        if high > 100.0 * (math.sqrt(variance) + 10.0):
            raise InvalidArgumentError("chance", chance, problem="it is too near 1 to be computed")
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if suffices(middle) else (middle, high)
    return high
