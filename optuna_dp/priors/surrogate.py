"""Score models: from the outcomes of earlier runs to a mean and a spread for any point.

The seam is two small protocols. A score model is a value without state: fitting returns a new
object, so that threads may share one, and the result is a function of the history alone, so that
a worker that starts from scratch proposes exactly as one that has been there from the beginning.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeAlias, TypeVar, runtime_checkable

import numpy as np
import numpy.typing as npt

from optuna_dp.core.arrays import FloatArray
from optuna_dp.errors import InvalidArgumentError

if TYPE_CHECKING:
    from sklearn.gaussian_process import GaussianProcessRegressor

_Single: TypeAlias = npt.NDArray[np.float32]
_Float = TypeVar("_Float", np.float32, np.float64)

# The newest runs that enter a fit of the hyperparameters, and the runs that enter the posterior:
# the newest half and the best half. They bound time and memory (a square matrix of this size).
_FITTED_RUNS = 128
_MOST_RUNS = 256
# Candidates that are looked at together, which bounds the memory.
_BLOCK = 4096


@runtime_checkable
class FittedModel(Protocol):
    """What a score model has learnt."""

    def predict(self, x: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Mean score and its standard deviation at the points ``x`` (N, d); each of shape (N,)."""


@runtime_checkable
class ScoreModel(Protocol):
    """Learns scores from points of the unit cube.

    ``fit`` must be a pure function of its arguments (and of settings or a seed held by the
    model): no state from one call to the next, except caches that cannot change a result.
    """

    def fit(self, x: FloatArray, y: FloatArray) -> FittedModel:
        """Learns from points ``x`` (n, d) and finite scores ``y`` (n,); n and d may be 0."""


def checked_model(value: object) -> ScoreModel:
    """Returns ``value`` if it is a score model; refuses anything else."""
    if not isinstance(value, ScoreModel):
        raise InvalidArgumentError("surrogate", value, allowed="it must have a method fit(x, y)")
    return value


def describe_model(model: ScoreModel) -> str:
    """Names a score model: its class and, for those with a plain ``repr``, its settings."""
    kind = type(model)
    settings = "" if kind.__repr__ is object.__repr__ else repr(model)
    return f"{kind.__module__}.{kind.__qualname__}:{settings}"


@dataclass(frozen=True)
class GaussianProcess:
    """scikit-learn's Gaussian process: an ARD Matern 5/2 kernel and observation noise.

    Scores are standardised. The hyperparameters are those of maximum posterior density given the
    first 4, 8, 16, ... runs: refitted when the history has doubled, so that their cost does not
    grow with every run and they depend on the history alone. Fewer than 4 runs use typical
    hyperparameters.
    """

    def fit(self, x: FloatArray, y: FloatArray) -> FittedModel:
        """Learns from points ``x`` (n, d) and finite scores ``y`` (n,)."""
        n, d = x.shape
        if n == 0:
            return Constant(0.0, 1.0)
        center, scale = _moments(y)
        if d == 0:
            return Constant(center, scale)
        theta = self.hyperparameters(x, y)
        rows = np.arange(n)
        if n > _MOST_RUNS:
            newest = rows[-(_MOST_RUNS // 2) :]
            best = np.argsort(y[: -len(newest)], kind="stable")[-(_MOST_RUNS - len(newest)) :]
            rows = np.union1d(best, newest)
        return Posterior.of(x[rows], (y[rows] - center) / scale, theta, center, scale)

    def hyperparameters(self, x: FloatArray, y: FloatArray) -> FloatArray:
        """Logarithms of amplitude, lengths and noise, in units of the spread of y; (d + 2,)."""
        n, d = x.shape
        if n < 4:
            return _typical(d)
        end = 1 << (n.bit_length() - 1)
        begin = max(0, end - _FITTED_RUNS)
        prefix = np.ascontiguousarray(x[begin:end])
        center, scale = _moments(y[begin:end])
        # Rounded, so that the key does not depend on how the caller has scaled the scores.
        z = np.round((y[begin:end] - center) / scale, 9) + 0.0
        return most_probable(prefix.tobytes(), z.tobytes(), d)


@dataclass(frozen=True)
class Constant:
    """Knows a mean and a spread and nothing about where."""

    mean: float
    std: float

    def predict(self, x: FloatArray) -> tuple[FloatArray, FloatArray]:
        """See :class:`FittedModel`."""
        return np.full(len(x), self.mean), np.full(len(x), self.std)


@dataclass(frozen=True, eq=False)
class Posterior:
    """What a Gaussian process predicts of the mean score after its observations.

    It is that of scikit-learn's ``GaussianProcessRegressor`` with the kernel ``ConstantKernel *
    Matern(nu=2.5) + WhiteKernel`` and no optimizer, from one Cholesky factor. The candidates' part
    is computed in single precision: what it decides is a choice among scores with noise.

    Attributes:
        x: Observed points over the length scales, shape (n, d).
        factor: Lower Cholesky factor of the covariance of the scores, shape (n, n).
        weights: Solution of covariance times weights = scores, shape (n,).
        amplitude: Variance of the mean score before any observation.
        lengths: Length scales, shape (d,).
        center: Mean of the scores before they were standardised.
        scale: Their spread.
    """

    x: FloatArray
    factor: FloatArray
    weights: FloatArray
    amplitude: float
    lengths: FloatArray
    center: float
    scale: float

    @classmethod
    def of(
        cls, x: FloatArray, z: FloatArray, theta: FloatArray, center: float, scale: float
    ) -> Posterior:
        """Returns what is known from standardised scores ``z`` (n,) at ``x`` (n, d).

        Args:
            x: Points of the unit cube.
            z: Standardised scores.
            theta: Logarithms of amplitude, lengths and noise, shape (d + 2,).
            center: What standardising subtracted.
            scale: What standardising divided by.
        """
        from scipy.linalg import cho_solve, cholesky  # start-up time

        amplitude, *lengths, noise = np.exp(theta)
        points = x / np.array(lengths)
        covariance = amplitude * _matern(_squared_distances(points, points))
        # scikit-learn adds this to the noise, so that equal points can be told apart.
        covariance.flat[:: len(x) + 1] += noise + 1e-10
        factor = cholesky(covariance, lower=True, check_finite=False)
        weights = cho_solve((factor, True), z, check_finite=False)
        return cls(points, factor, weights, amplitude, np.array(lengths), center, scale)

    def predict(self, x: FloatArray) -> tuple[FloatArray, FloatArray]:
        """See :class:`FittedModel`."""
        blocks = [x[i : i + _BLOCK] for i in range(0, len(x), _BLOCK)] or [x]
        means, variances = zip(*map(self._predicted, blocks), strict=True)
        std = np.sqrt(np.maximum(np.concatenate(variances), 0.0))
        return self.center + self.scale * np.concatenate(means), self.scale * std

    def _predicted(self, x: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Means and variances of standardised mean scores at the points of one block."""
        from scipy.linalg import solve_triangular  # start-up time

        single_x, factor, weights = self._in_single_precision
        offsets = (x - 0.5) / self.lengths
        # One product, of rows (-2 a, |a|^2, 1) and (b, 1, |b|^2); about the middle, so that
        # little is lost to rounding.
        right_factors = np.empty((len(x), x.shape[1] + 2), dtype=np.float32)
        right_factors[:, :-2] = offsets
        right_factors[:, -2] = 1.0
        right_factors[:, -1] = (offsets**2).sum(axis=1)
        squared = (right_factors @ single_x.T).T  # in the order of columns, as the solver wants it
        np.maximum(squared, 0.0, out=squared)
        covariance = _matern(squared)
        covariance *= np.float32(self.amplitude)
        means = np.asarray(weights @ covariance, dtype=np.float64)
        whitened = solve_triangular(
            factor, covariance, lower=True, overwrite_b=True, check_finite=False
        )
        spent = np.einsum("ij,ij->j", whitened, whitened).astype(np.float64)
        return means, self.amplitude - spent

    @functools.cached_property
    def _in_single_precision(self) -> tuple[_Single, _Single, _Single]:
        """The observed points as one factor of squared distances, the factor, and the weights."""
        offsets = self.x - 0.5 / self.lengths
        rows = [-2.0 * offsets, (offsets**2).sum(axis=1)[:, None], np.ones((len(offsets), 1))]
        points = np.concatenate(rows, axis=1).astype(np.float32)
        factor = np.asfortranarray(self.factor, dtype=np.float32)
        return points, factor, self.weights.astype(np.float32)


def _squared_distances(rows: FloatArray, other_rows: FloatArray) -> FloatArray:
    """Squared distances between rows, shape (rows, other rows)."""
    lengths = (rows**2).sum(axis=1)[:, None] + (other_rows**2).sum(axis=1)[None, :]
    squares: FloatArray = np.maximum(lengths - 2.0 * (rows @ other_rows.T), 0.0)
    return squares


def _matern(squared: npt.NDArray[_Float]) -> npt.NDArray[_Float]:
    """Matern's correlation of smoothness 5/2 at squared distances; overwrites them."""
    squared *= 5.0
    distances = np.sqrt(squared)
    squared /= 3.0
    squared += distances
    squared += 1.0
    np.negative(distances, out=distances)
    np.exp(distances, out=distances)
    squared *= distances
    return squared


def _moments(y: FloatArray) -> tuple[float, float]:
    """Mean and spread for standardising; a constant sample has spread 1."""
    center, scale = float(np.mean(y)), float(np.std(y))
    # A spread at rounding level is no spread.
    if not scale > 1e-12 * max(1.0, abs(center)):
        scale = 1.0
    return center, scale


def _typical(d: int) -> FloatArray:
    """Amplitude 1, noise 0.1, and lengths that grow as distances in the unit cube do."""
    typical: FloatArray = np.log(np.array([1.0] + [0.4 * math.sqrt(d)] * d + [0.1]))
    return typical


def _regressor(x: FloatArray, z: FloatArray, theta: FloatArray) -> GaussianProcessRegressor:
    """A Gaussian process with the hyperparameters ``exp(theta)`` given scores ``z`` at ``x``."""
    from sklearn.gaussian_process import GaussianProcessRegressor  # start-up time
    from sklearn.gaussian_process.kernels import (  # start-up time
        ConstantKernel,
        Matern,
        WhiteKernel,
    )

    amplitude, *lengths, noise = np.exp(theta)
    kernel = ConstantKernel(amplitude) * Matern(lengths, nu=2.5) + WhiteKernel(noise)
    return GaussianProcessRegressor(kernel, optimizer=None).fit(x, z)


@functools.lru_cache(maxsize=64)
def most_probable(x_bytes: bytes, z_bytes: bytes, d: int) -> FloatArray:
    """Hyperparameters of maximum posterior density; cached by content, so purely a function.

    Log-normal priors keep the likelihood of a handful of noisy runs from explaining them away by
    a length scale of zero. Any hyperparameters within the bounds give a usable model, so the
    optimiser's own opinion of its convergence does not matter.

    Args:
        x_bytes: Points of the unit cube, shape (n, d), d >= 1, as float64.
        z_bytes: Standardised scores, shape (n,), as float64.
        d: The number of directions.
    """
    from scipy.optimize import minimize  # start-up time

    z = np.frombuffer(z_bytes)
    start = _typical(d)
    spreads = np.array([0.7] + [1.0] * d + [1.5])
    widest = np.log([(0.05, 20.0)] + [(0.02, 50.0)] * d + [(1e-3, 20.0)])
    regressor = _regressor(np.frombuffer(x_bytes).reshape(len(z), d), z, start)

    def objective(theta: FloatArray) -> tuple[float, FloatArray]:
        likelihood, gradient = regressor.log_marginal_likelihood(theta, eval_gradient=True)
        off = (theta - start) / spreads
        return 0.5 * float(off @ off) - likelihood, off / spreads - gradient

    bounds = start[:, None] + widest
    optimum: FloatArray = minimize(
        objective, start, jac=True, bounds=bounds, options={"maxiter": 30}
    ).x
    optimum = optimum if np.isfinite(optimum).all() else start
    optimum.flags.writeable = False  # it is cached
    return optimum
