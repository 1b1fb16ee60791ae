"""Score models: from the outcomes of earlier runs to a mean and a spread for any point.

The seam is two small protocols. A score model is a value without state: fitting returns a new
object, so that threads may share one, and the result is a function of the history alone, so that
a worker that starts from scratch proposes exactly as one that has been there from the beginning.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np

from optuna_dp import validation
from optuna_dp.arrays import FloatArray
from optuna_dp.errors import InvalidArgumentError
from optuna_dp.models.hyperparameters import most_probable, typical_length


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


def checked_model(value: Any) -> ScoreModel:
    """Returns ``value`` if it is a score model; refuses anything else."""
    if not isinstance(value, ScoreModel):
        raise InvalidArgumentError("surrogate", value, "it must have a method fit(x, y)")
    return value


def describe_model(model: ScoreModel) -> str:
    """Names a score model: its class and, for those with a plain ``repr``, its settings."""
    kind = type(model)
    settings = "" if kind.__repr__ is object.__repr__ else repr(model)
    return f"{kind.__module__}.{kind.__qualname__}:{settings}"


@dataclass(frozen=True)
class GaussianProcess:
    """A Gaussian process with an ARD Matern 5/2 kernel and observation noise.

    Scores are standardised, and runs of one point are merged (their noise averages out). The
    hyperparameters are those of maximum posterior density given the first 4, 8, 16, ... runs:
    refitted when the history has doubled, so that their cost does not grow with every run and
    they depend on the history alone. Fewer than 4 runs use typical hyperparameters.

    Args:
        fit_points: At most this many runs, the newest, enter a fit of the hyperparameters.
        max_points: At most this many distinct points enter the posterior: the newest half and the
            best half. Bounds time and memory (a square matrix of this size). None is 96 per
            dimension, at most 256: in a plane, more points teach next to nothing.
    """

    fit_points: int = 128
    max_points: int | None = None

    def __post_init__(self) -> None:
        validation.whole("fit_points", self.fit_points, 4)
        if self.max_points is not None:
            validation.whole("max_points", self.max_points, 4)

    def fit(self, x: FloatArray, y: FloatArray) -> FittedModel:
        """Learns from points ``x`` (n, d) and finite scores ``y`` (n,)."""
        n, d = x.shape
        if n == 0:
            return Constant(0.0, 1.0)
        center, scale = _moments(y)
        if d == 0:
            return Constant(center, scale)
        z = (y - center) / scale
        kernel = self.kernel(x, y)
        most = min(96 * d, 256) if self.max_points is None else self.max_points
        points, means, counts = _merge(x, z, most)
        return _posterior(points, means, counts, kernel, center, scale)

    def kernel(self, x: FloatArray, y: FloatArray) -> _Kernel:
        """Returns the amplitude, lengths and noise of the greatest likelihood, in units of y."""
        n, d = x.shape
        if n < 4:
            return _Kernel(1.0, (typical_length(d),) * d, 0.1)
        end = 1 << (n.bit_length() - 1)
        begin = max(0, end - self.fit_points)
        prefix = np.ascontiguousarray(x[begin:end])
        center, scale = _moments(y[begin:end])
        # Rounded, so that the key does not depend on how the caller has scaled the scores.
        z = np.round((y[begin:end] - center) / scale, 9) + 0.0
        return fit_kernel(prefix.tobytes(), z.tobytes(), d)


@dataclass(frozen=True)
class _Kernel:
    """``amplitude * Matern52(|x - x'| / lengths) + noise``."""

    amplitude: float
    lengths: tuple[float, ...]
    noise: float

    def cross(self, a: FloatArray, b: FloatArray) -> FloatArray:
        """Covariances without noise, (len(a), len(b))."""
        from scipy.spatial.distance import cdist  # start-up time

        lengths = np.array(self.lengths)
        r: FloatArray = cdist(a / lengths, b / lengths, "sqeuclidean")
        r *= 5.0
        np.sqrt(r, out=r)
        # 1 + r + r^2/3, in place: most of the time would go into fresh memory.
        polynomial = r / 3.0
        polynomial += 1.0
        polynomial *= r
        polynomial += 1.0
        np.negative(r, out=r)
        np.exp(r, out=r)
        r *= polynomial
        r *= self.amplitude
        return r


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
    """What a Gaussian process predicts after its observations, in blocks of points."""

    kernel: _Kernel
    points: FloatArray  # (m, d)
    cholesky: FloatArray  # (m, m), lower
    dual: FloatArray  # (m,), (K + noise)^-1 z
    center: float
    scale: float

    # Candidates per block: bounds the memory of a prediction to block * m, and keeps it in cache.
    block = 128

    def predict(self, x: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Returns means and deviations at points (n, d)."""
        from scipy.linalg.blas import dtrsm  # start-up time

        mean, variance = np.empty(len(x)), np.empty(len(x))
        for start in range(0, len(x), self.block):
            part = slice(start, start + self.block)
            cross = self.kernel.cross(x[part], self.points)
            mean[part] = cross @ self.dual
            # Transposed, the rows are the columns BLAS wants: solved in place, nothing copied.
            half = dtrsm(1.0, self.cholesky, cross.T, lower=1, overwrite_b=1)
            variance[part] = self.kernel.amplitude - np.einsum("ij,ij->j", half, half)
        std = np.sqrt(np.maximum(variance, 0.0))
        return self.center + self.scale * mean, self.scale * std


def _moments(y: FloatArray) -> tuple[float, float]:
    """Mean and spread for standardising; a constant sample has spread 1."""
    center, scale = float(np.mean(y)), float(np.std(y))
    # A spread at rounding level is no spread.
    if not scale > 1e-12 * max(1.0, abs(center)):
        scale = 1.0
    return center, scale


def _merge(
    x: FloatArray, z: FloatArray, max_points: int
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Distinct points in order of first appearance, their mean scores and numbers of runs."""
    _, first, inverse, counts = np.unique(
        x, axis=0, return_index=True, return_inverse=True, return_counts=True
    )
    inverse = inverse.reshape(-1)  # its shape has changed between versions of numpy
    order = np.argsort(first, kind="stable")
    runs = counts.astype(np.float64)
    means = np.bincount(inverse, weights=z) / runs
    points, means, runs = x[first[order]], means[order], runs[order]
    m = len(points)
    if m > max_points:
        newest = np.arange(m) >= m - max_points // 2
        ranked = np.argsort(np.where(newest, -np.inf, means), kind="stable")
        keep = newest.copy()
        keep[ranked[m - (max_points - max_points // 2) :]] = True
        points, means, runs = points[keep], means[keep], runs[keep]
    return points, means, runs


def _posterior(
    points: FloatArray,
    means: FloatArray,
    counts: FloatArray,
    kernel: _Kernel,
    center: float,
    scale: float,
) -> FittedModel:
    from scipy.linalg import LinAlgError, cho_solve, cholesky  # start-up time

    jitter = 1e-10 * kernel.amplitude
    while True:
        matrix = kernel.cross(points, points)
        matrix.flat[:: len(points) + 1] += kernel.noise / counts + jitter
        try:
            # Symmetric, so the transpose is the same and has the order that LAPACK works in.
            lower = cholesky(matrix.T, lower=True, overwrite_a=True, check_finite=False)
            break
        except LinAlgError:
            jitter *= 100.0  # ends: a large enough diagonal is positive definite
    # The scores are standardised, so the prior mean is zero: far from all runs, an average run.
    dual = cho_solve((lower, True), means, check_finite=False)
    return Posterior(kernel, points, lower, dual, center, scale)


@functools.lru_cache(maxsize=64)
def fit_kernel(x_bytes: bytes, z_bytes: bytes, d: int) -> _Kernel:
    """Hyperparameters of maximum posterior density; cached by content, so purely a function."""
    z = np.frombuffer(z_bytes, dtype=np.float64)
    return _Kernel(*most_probable(np.frombuffer(x_bytes, dtype=np.float64).reshape(len(z), d), z))
