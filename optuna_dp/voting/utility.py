"""Bounds the probability that a vote chooses well: for given votes, and for planning.

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
import numpy.typing as npt

from optuna_dp import validation
from optuna_dp.accounting.skellam import pmf
from optuna_dp.errors import InvalidArgumentError


def chance_of_good_choice(sums: npt.ArrayLike, good: npt.ArrayLike, variance: float) -> float:
    """Returns a lower bound of the probability that the noisy winner is good.

    arXiv 2510.04902, Theorem V.1, a union bound over the bad candidates: each beats the best
    good one with probability at most P[Z >= gap], where Z is the difference of two noises. The
    gap is the least votes of a good candidate less the most votes of a bad one. There Z is
    normal; the noise used here is Skellam, whose difference is Skellam of twice the variance.

    Args:
        sums: Noiseless sums of votes, shape (p,).
        good: Indices of the good candidates, from 0; at least one.
        variance: Of the noise of one entry, in squared votes; positive.

    Returns:
        A number in [0, 1]; 1 when no candidate is bad.

    Raises:
        InvalidArgumentError: If an argument is not allowed.
    """
    votes = np.asarray(sums, dtype=np.float64)
    chosen = np.asarray(good, dtype=np.int64)
    if votes.ndim != 1 or chosen.size == 0 or chosen.min() < 0 or chosen.max() >= votes.size:
        raise InvalidArgumentError(
            "good", good, f"it must name at least one of the {votes.size} candidates by index"
        )
    bad = np.delete(votes, chosen)
    if bad.size == 0:
        return 1.0
    gap = float(votes[chosen].min() - bad.max())
    x, f = pmf(2.0 * validation.positive("variance", variance))
    tail = float(f[x >= math.ceil(gap)].sum())
    return max(1.0 - bad.size * tail, 0.0)


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
    wanted = validation.open_unit("chance", chance)
    low, high = -1, 1

    def suffices(gap: int) -> bool:
        return chance_of_gap(gap, good=good, bad=bad, variance=variance) >= wanted

    while not suffices(high):
        low, high = high, 2 * high
        if high > 100.0 * (math.sqrt(variance) + 10.0):
            raise InvalidArgumentError("chance", chance, "it is too near 1 to be computed")
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if suffices(middle) else (middle, high)
    return high
