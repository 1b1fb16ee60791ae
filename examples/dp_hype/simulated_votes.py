"""Votes by the thousand, for studies of utility. Not private: nothing here may face real data.

The noise is a continuous Gaussian from a seeded generator, as in the paper's own simulations. A
private vote takes :class:`optuna_dp.voting.Skellam`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from optuna_dp.core import validation
from optuna_dp.core.arrays import IntArray
from optuna_dp.errors import InvalidArgumentError

_ROWS = 25_000


def simulated_sums(
    *,
    clients: int,
    candidates: int,
    good: int,
    loss_sd: float,
    votes: Sequence[int],
    repetitions: int,
    rng: np.random.Generator,
) -> dict[int, IntArray]:
    """Returns noiseless sums of votes of many simulated searches, for several k at once.

    arXiv 2510.04902, section V-B: local losses of good candidates (the first ``good``) are
    N(0, loss_sd^2), of bad ones N(1, loss_sd^2), independent; ties (loss_sd = 0) fall at random.

    Args:
        clients: n.
        candidates: p.
        good: Number of good candidates.
        loss_sd: Standard deviation of a local loss.
        votes: Values of k; the same losses serve all.
        repetitions: Number of searches.
        rng: Source of randomness.

    Returns:
        For each k an array of shape (repetitions, p).
    """
    n, p = validation.whole("clients", clients, 1), validation.whole("candidates", candidates, 1)
    if not 0 <= good <= p:
        raise InvalidArgumentError(
            "good", good, allowed=f"it must lie between 0 and candidates={p}"
        )
    sd = max(validation.non_negative("loss_sd", loss_sd), 1e-6)  # ties fall at random
    batch = max(_ROWS // n * 100 // max(p, 100), 1)
    result = {k: np.empty((repetitions, p), dtype=np.int64) for k in votes}
    for start in range(0, repetitions, batch):
        count = min(batch, repetitions - start)
        losses = rng.standard_normal((count * n, p), dtype=np.float32)
        losses *= np.float32(sd)
        losses[:, good:] += 1.0
        ordered = np.sort(losses, axis=1)
        for k in votes:
            ones = losses <= ordered[:, k - 1 : k]
            sums = ones.reshape(count, n, p).sum(axis=1, dtype=np.int32)
            result[k][start : start + count] = sums
    return result


def success_rate(
    sums: IntArray, good: int, sigma: float, rng: np.random.Generator
) -> tuple[float, float]:
    """Returns the share of searches whose noisy winner is good, and its standard error.

    Args:
        sums: Shape (repetitions, p).
        good: The first ``good`` candidates are good.
        sigma: Standard deviation of the Gaussian noise of one entry; 0 for none.
        rng: Source of randomness; ties fall at random.
    """
    noisy = sums + sigma * rng.standard_normal(sums.shape)
    if sigma == 0.0:
        noisy = noisy + 0.5 * rng.random(sums.shape)
    hits = np.argmax(noisy, axis=1) < good
    rate = float(hits.mean())
    return rate, float(np.sqrt(rate * (1.0 - rate) / len(hits)))
