"""Exact laws and seeded noise that the tests of this area share."""

from __future__ import annotations

import numpy as np

from optuna_dp.mechanisms.sparse_vector import DiscreteLaplace


class SeededLaplace(DiscreteLaplace):
    """The same law from a seed, so that statistical tests repeat. Never for anything private."""

    def __init__(self, scale, seed):
        self.scale = scale
        self.rng = np.random.default_rng(seed) if isinstance(seed, int) else seed

    def draw(self, size):
        p = -np.expm1(-1 / self.scale)
        return self.rng.geometric(p, size) - self.rng.geometric(p, size)


def tail(scale, d):
    """P[X >= d] of the discrete Laplace law, for an array of whole numbers d."""
    a, d = np.exp(-1 / scale), np.asarray(d)
    upper = a ** np.maximum(d, 0) / (1 + a)
    return np.where(d >= 1, upper, 1 - a ** np.maximum(1 - d, 0) / (1 + a))


def above_threshold_law(totals, threshold, threshold_scale, query_scale, reach=4000):
    """Exact probabilities of each index and, last, of none."""
    rho = np.arange(-reach, reach + 1)
    a = np.exp(-1 / threshold_scale)
    alive = (1 - a) / (1 + a) * a ** np.abs(rho)
    law = []
    for total in totals:
        p = tail(query_scale, threshold + rho - total)
        law.append((alive * p).sum())
        alive = alive * (1 - p)
    return np.array([*law, alive.sum()])
