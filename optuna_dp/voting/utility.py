"""Bounds the probability that a vote chooses well, given the votes."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from optuna_dp import validation
from optuna_dp.accounting.skellam import pmf
from optuna_dp.errors import InvalidArgumentError


def gap(sums: npt.ArrayLike, good: npt.ArrayLike) -> float:
    """Returns the least votes of a good candidate less the most votes of a bad one.

    Liebenow, Peinemann & Mohammadi, arXiv 2510.04902, equation (3).

    Args:
        sums: Noiseless sums of votes, shape (p,).
        good: Indices of the good candidates, from 0; at least one, and not all.

    Returns:
        In votes; negative if a bad candidate has more than every good one.

    Raises:
        InvalidArgumentError: If ``good`` names none or all of the candidates, or one that is not
            there.
    """
    votes, mask = _good_mask(sums, good)
    return float(votes[mask].min() - votes[~mask].max())


def chance_of_good_choice(
    sums: npt.ArrayLike, good: npt.ArrayLike, variance: float, *, noise: str = "skellam"
) -> float:
    """Returns a lower bound of the probability that the noisy winner is good.

    arXiv 2510.04902, Theorem V.1, a union bound over the bad candidates: each beats the best
    good one with probability at most P[Z >= gap], where Z is the difference of two noises. There
    Z is normal, P = Phi(-gap / (sqrt(2) sigma)); the noise used here is Skellam, whose
    difference is Skellam of twice the variance, exactly.

    Args:
        sums: Noiseless sums of votes, shape (p,).
        good: Indices of the good candidates, from 0; at least one.
        variance: Of the noise of one entry, in squared votes; positive.
        noise: ``"skellam"``, or ``"gaussian"`` for the theorem as printed.

    Returns:
        A number in [0, 1]; 1 when no candidate is bad.

    Raises:
        InvalidArgumentError: If an argument is not allowed.
    """
    votes, mask = _good_mask(sums, good, all_good=True)
    bad = int((~mask).sum())
    if bad == 0:
        return 1.0
    distance = float(votes[mask].min() - votes[~mask].max())
    v = validation.positive("variance", variance)
    if noise == "gaussian":
        tail = 0.5 * math.erfc(distance / (2.0 * math.sqrt(v)))
    elif noise == "skellam":
        x, f = pmf(2.0 * v)
        tail = min(float(f[x >= math.ceil(distance)].sum()), 1.0)
    else:
        raise InvalidArgumentError("noise", noise, "it must be 'skellam' or 'gaussian'")
    return max(1.0 - bad * tail, 0.0)


def _good_mask(
    sums: npt.ArrayLike, good: npt.ArrayLike, all_good: bool = False
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.bool_]]:
    votes = np.asarray(sums, dtype=np.float64)
    chosen: Any = np.unique(np.asarray(good, dtype=np.int64))
    if votes.ndim != 1 or chosen.size == 0 or chosen[0] < 0 or chosen[-1] >= votes.size:
        raise InvalidArgumentError(
            "good", good, f"it must name at least one of the {votes.size} candidates by index"
        )
    mask = np.zeros(votes.size, dtype=bool)
    mask[chosen] = True
    if mask.all() and not all_good:
        raise InvalidArgumentError("good", good, "some candidate must be bad for a gap to exist")
    return votes, mask
