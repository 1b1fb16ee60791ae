"""Hyperparameters of a Gaussian process: the likelihood, its gradient, and its maximum.

========================  ======================================================================
``theta``                 logarithms of amplitude a, length scales l_1 .. l_d, noise s; (d + 2,)
``K(theta)``              ``a (1 + r + r^2/3) exp(-r) + s I``, r = sqrt(5) |(x - x') / l|
========================  ======================================================================
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from optuna_dp.arrays import FloatArray

# A diagonal this large keeps the factorisation of nearly equal points going.
_JITTER = 1e-10
_LOG_2PI = math.log(2.0 * math.pi)


class Likelihood:
    """Log marginal likelihood of standardised scores (Rasmussen & Williams 2006, section 5.4).

    Args:
        x: Points, shape (n, d).
        z: Scores, shape (n,).
    """

    def __init__(self, x: FloatArray, z: FloatArray) -> None:
        n, d = x.shape
        self._z = z
        # Squared differences by direction, (n * n, d): all that changes later is their scale.
        self._squares = ((x[:, None, :] - x[None, :, :]) ** 2).reshape(n * n, d)

    def __call__(self, theta: FloatArray) -> tuple[float, FloatArray]:
        """Returns the log likelihood at ``theta`` and its gradient; minus infinity if singular."""
        from scipy.linalg import LinAlgError, cho_solve, cholesky  # start-up time
        from scipy.linalg.lapack import dpotri  # start-up time

        n = len(self._z)
        values = np.exp(theta)
        amplitude, inverse_squares, noise = values[0], values[1:-1] ** -2.0, values[-1]
        r = np.sqrt(5.0 * (self._squares @ inverse_squares))
        decay = amplitude * np.exp(-r)
        kernel = (decay * (1.0 + r + r * r / 3.0)).reshape(n, n)
        matrix = kernel.copy()
        matrix.flat[:: n + 1] += noise + _JITTER
        try:
            lower = cholesky(matrix, lower=True, check_finite=False)
        except LinAlgError:
            return -math.inf, np.zeros_like(theta)
        dual = cho_solve((lower, True), self._z, check_finite=False)
        half_determinant = float(np.log(np.diag(lower)).sum())
        value = -0.5 * float(self._z @ dual) - half_determinant - 0.5 * n * _LOG_2PI

        # dL/dtheta_j = tr((dual dual' - K^-1) dK/dtheta_j) / 2.
        inverse = np.tril(dpotri(lower, lower=1)[0])
        inverse += np.tril(inverse, -1).T
        weights = 0.5 * (np.outer(dual, dual) - inverse)
        # dK/dlog l_j = 5/3 a (1 + r) exp(-r) (x_j - x'_j)^2 / l_j^2.
        by_length = (weights.ravel() * decay * (1.0 + r)) @ self._squares
        gradient = np.concatenate(
            [
                [float((weights * kernel).sum())],
                (5.0 / 3.0) * by_length * inverse_squares,
                [noise * float(np.trace(weights))],
            ]
        )
        return value, gradient


def typical_length(d: int) -> float:
    """Half the cube's diagonal, more or less: distances in the unit cube grow with sqrt(d)."""
    return 0.4 * math.sqrt(d)


def most_probable(x: FloatArray, z: FloatArray) -> tuple[float, tuple[float, ...], float]:
    """Amplitude, length scales and noise of maximum posterior density.

    Log-normal priors keep the likelihood of a handful of noisy runs from explaining them away by
    a length scale of zero (typical length ``0.4 sqrt(d)``, typical noise a tenth of the variance).

    Args:
        x: Points of the unit cube, shape (n, d), d >= 1.
        z: Standardised scores, shape (n,).

    Returns:
        Any hyperparameters within the bounds give a usable model, so the optimiser's own opinion
        of its convergence does not matter.
    """
    from scipy.optimize import minimize  # start-up time

    d = x.shape[1]
    typical = typical_length(d)
    likelihood = Likelihood(x, z)
    start = np.log(np.array([1.0] + [typical] * d + [0.1]))
    spreads = np.array([0.7] + [1.0] * d + [1.5])
    bounds = np.log(
        np.array([(0.05, 20.0)] + [(0.02 * typical, 50.0 * typical)] * d + [(1e-4, 2.0)])
    )

    def objective(theta: FloatArray) -> tuple[float, FloatArray]:
        value, gradient = likelihood(theta)
        off = (theta - start) / spreads
        return 0.5 * float(off @ off) - value, off / spreads - gradient

    with np.errstate(all="ignore"):
        found = minimize(
            objective,
            start,
            jac=True,
            method="L-BFGS-B",
            bounds=bounds,
            options={"maxiter": 30},
        ).x
    theta: Any = np.exp(found if np.isfinite(found).all() else start)
    return float(theta[0]), tuple(float(v) for v in theta[1:-1]), float(theta[-1])
