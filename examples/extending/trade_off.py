"""A mechanism that is known by its trade-off curve (f-DP: Dong, Roth & Su, arXiv 1905.02383v3)."""

from typing import Any

import numpy as np

import optuna_dp as odp


def from_trade_off(alphas: Any, betas: Any) -> Any:
    """Returns the event of a mechanism given by points on or below its trade-off curve f.

    Who tests whether a record is in the data, and is wrong with probability at most ``alphas[i]``
    where it is not, must be wrong with probability at least ``betas[i]`` where it is. One curve
    speaks of both directions.

    The curve is not joined by lines, which lie above it. It does not increase, so it is at least
    ``betas[i]`` up to ``alphas[i]``. What happens below the smallest positive alpha, and between
    the last alpha below 1 and 1, counts as delta: let the points be dense at both ends.

    Args:
        alphas: Shape (n,), in [0, 1], ascending.
        betas: Shape (n,), in [0, 1 - alphas], not increasing.
    """
    alphas, betas = np.asarray(alphas, dtype=float), np.asarray(betas, dtype=float)
    is_curve = np.all(np.diff(alphas) > 0) and np.all(np.diff(betas) <= 0)
    if not is_curve or np.any(betas < 0) or np.any(alphas + betas > 1 + 1e-9):
        raise ValueError("alphas must ascend, and betas fall, between 0 and 1 - alphas")
    last, betas = np.append(0.0, alphas), np.append(betas, 0.0)  # the alpha before each beta
    # Of the best tests, the chance to say "in the data" where it is right and where it is wrong.
    tests = (1.0 - betas, last), (1.0 - last, betas)
    largest = max((right[wrong > 0] / wrong[wrong > 0]).max(initial=1.0) for right, wrong in tests)
    epsilons = np.linspace(0.0, min(max(np.log(largest), 1e-9), 600.0), 4000)
    deltas = [
        np.max([right - np.exp(e) * wrong for e in epsilons], axis=1).clip(0.0) + 1e-15
        for right, wrong in tests
    ]
    return odp.from_profile(
        epsilons, np.minimum(deltas[0], 1.0), reverse_deltas=np.minimum(deltas[1], 1.0)
    )
