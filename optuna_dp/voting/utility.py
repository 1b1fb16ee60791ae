"""Bounds the probability that a vote chooses well, given the votes."""

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
