"""A mechanism of your own: logistic noise, by the exact profile that its density gives."""

from typing import Any

import numpy as np
from scipy.special import expit

import optuna_dp as odp


def logistic(scale: float) -> Any:
    """Adding logistic noise of this scale to a number that one record moves by at most 1.

    The density is log-concave, so the likeliest outputs for a loss of at least epsilon lie beyond
    a point, where u = e^(-x / scale) solves a linear equation; delta is the difference of tails.
    """
    shift = np.exp(1.0 / scale)
    epsilons = np.append(np.linspace(0.0, 1.0 / scale, 300)[:-1], 1.0 / scale)
    k = np.exp((epsilons - 1.0 / scale) / 2.0)
    u = np.maximum((1.0 - k) / np.maximum(k * shift - 1.0, 1e-300), 0.0)
    near, far = u * shift / (1.0 + u * shift), u / (1.0 + u)  # P[X > x - 1], P[X > x]
    deltas = near - np.exp(epsilons) * far + 1e-15  # what rounding may take from a difference
    return odp.from_profile(epsilons, np.append(deltas[:-1], 0.0))  # a loss of at most 1 / scale


if __name__ == "__main__":
    run = logistic(4.0)
    x = np.linspace(-400.0, 400.0, 2_000_001)
    density = expit(x / 4) * expit(-x / 4) / 4, expit((x - 1) / 4) * expit((1 - x) / 4) / 4
    whole = np.maximum(density[1] - np.exp(0.1) * density[0], 0.0).sum() * (x[1] - x[0])
    claimed = odp.Guarantee(run).delta(0.1)
    assert whole <= claimed <= 1.001 * whole, (whole, claimed)
    print("one run:", odp.Guarantee(run).epsilon(1e-5))
    print("the best of about ten:", odp.selection_guarantee(run, odp.Geometric(10)).epsilon(1e-5))
