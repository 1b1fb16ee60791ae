"""Ballots and the choice from their noisy sum. Ties are broken at random."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable

import numpy as np
import numpy.typing as npt

from optuna_dp.core import validation
from optuna_dp.core.arrays import IntArray
from optuna_dp.errors import InvalidArgumentError

RandomBytes = Callable[[int], bytes]


def ballot(
    scores: Iterable[float],
    votes: int,
    *,
    maximize: bool = False,
    random_bytes: RandomBytes = os.urandom,
) -> IntArray:
    """Returns a client's vote: ones at its ``votes`` best candidates, zeros elsewhere.

    Guarantees:
        * There are exactly ``votes`` ones whatever the scores: the sensitivity depends on it.
        * Among equal scores every choice is equally likely. Order of index would make clients
          agree by accident: small clients have few distinct accuracies.
        * NaN is worse than every number.

    Args:
        scores: One for each candidate, shape (p,).
        votes: k, between 1 and p.
        maximize: Whether large scores are good.
        random_bytes: Source of the tie-breaks; the operating system's entropy.

    Returns:
        Zeros and ones, shape (p,).

    Raises:
        InvalidArgumentError: If there are no scores, or ``votes`` is not between 1 and p.
    """
    values = np.array(list(scores), dtype=np.float64)
    if values.size == 0:
        raise InvalidArgumentError(
            "scores", scores, allowed="there must be at least one candidate"
        )
    k = validation.whole("votes", votes, 1)
    if k > values.size:
        raise InvalidArgumentError(
            "votes", votes, allowed=f"it must be at most the number of candidates, {values.size}"
        )
    losses = -values if maximize else values
    # A 64-bit key per candidate: two are equal with probability 2^-64.
    keys = np.frombuffer(random_bytes(8 * values.size), dtype=np.uint64)
    is_missing = np.isnan(losses)  # behind an infinite loss, which is a number still
    best = np.lexsort((keys, np.where(is_missing, 0.0, losses), is_missing))[:k]
    result = np.zeros(values.size, dtype=np.int64)
    result[best] = 1
    return result


def argmax(sums: npt.ArrayLike, *, random_bytes: RandomBytes = os.urandom) -> int:
    """Returns the index of the largest entry, a random one of the largest if several are.

    Args:
        sums: Shape (n,), at least one entry.
        random_bytes: Source of the random choice, by default the operating system's entropy.

    Raises:
        InvalidArgumentError: If ``sums`` is no vector or is empty.
    """
    values = np.asarray(sums)
    if values.ndim != 1 or values.size == 0:
        raise InvalidArgumentError("sums", sums, allowed="it must be a non-empty vector")
    keys = np.frombuffer(random_bytes(8 * values.size), dtype=np.uint64)
    return int(np.lexsort((keys, values))[-1])
