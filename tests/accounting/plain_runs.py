"""Runs whose profiles are known: DP-SGD, and the Gaussian mechanism in closed form."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.special import log_ndtr

from optuna_dp.accounting.dominating_pairs import DominatingPair
from optuna_dp.accounting.events import dp_sgd


def sgd(noise: float, steps: int = 2344, rate: float = 256 / 60000) -> Any:
    return dp_sgd(noise_multiplier=noise, sample_rate=rate, steps=steps)


def both(pair: DominatingPair, delta: float) -> float:
    return max(pair.epsilon(delta), pair.reversed().epsilon(delta))


def gaussian_delta(epsilon: Any, mu: float) -> Any:
    """The exact profile of a Gaussian of noise 1/mu (Balle & Wang, arXiv 1805.06530v2)."""
    above, below = log_ndtr(mu / 2 - epsilon / mu), epsilon + log_ndtr(-mu / 2 - epsilon / mu)
    return np.exp(above) * -np.expm1(below - above)
