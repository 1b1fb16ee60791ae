"""Projection of a desired density onto the densities within [c, C] of the prior.

``f`` minimises a distance from the desired ratio ``w`` subject to ``c <= f_i <= C`` and
``sum_i pi0_i f_i = 1`` (DP-HyPO, arXiv 2306.05734v2, equation 3.1, Appendices C and D; both
distances are taken with respect to the prior):

* ``"l2"``: the L2(pi0) norm of ``f - w`` (equation 3.1). Solution ``f = clip(w - nu, c, C)``.
* ``"kl"``: KL(w || f) (equation C.1 with an infinite penalty: the moment projection).
  Solution ``f = clip(w / nu, c, C)``.

Each has one unknown, found by bisection (docs/explanation/bounded-densities.md, "Projections").
A :class:`~optuna_dp.ConvexProjection` minimises any other convex distance, by cvxpy. Whatever the
method, ``shares.enforce`` has the last word.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Literal, TypeAlias

import numpy as np

from optuna_dp.core import validation
from optuna_dp.core.arrays import FloatArray, IntArray
from optuna_dp.core.value_types import JsonValue
from optuna_dp.errors import InvalidArgumentError
from optuna_dp.priors.densities.convex_projection import ConvexProjection
from optuna_dp.priors.densities.shares import BoundedDensity, enforce, uniform_masses

# exp(+-300) and products of two of them stay finite.
_MAX_LOG_WIDTH = 300.0


Projection: TypeAlias = Literal["l2", "kl"] | ConvexProjection


def check_projection(value: object) -> Projection:
    """Returns ``value`` if it is a projection."""
    if isinstance(value, ConvexProjection):
        return value
    if value not in ("l2", "kl"):
        raise InvalidArgumentError(
            "projection", value, allowed='it must be "kl", "l2" or a ConvexProjection'
        )
    projection: Projection = value
    return projection


def describe_projection(projection: Projection) -> dict[str, JsonValue]:
    """What workers must agree on, as plain data for the record of a plan."""
    if isinstance(projection, ConvexProjection):
        return projection.describe()
    return {"method": projection}


def scores_to_log_weights(scores: FloatArray, beta: float) -> FloatArray:
    """Logarithms of softmax weights, ``beta * (s - max s)``, up to a constant.

    Algorithm 3 of DP-HyPO (arXiv 2306.05734v2). A score of NaN or minus infinity counts as the
    lowest possible one (weight 0): a candidate about which the score model has nothing to say is
    not preferred. Scores of plus infinity share all the weight. If no score is left, all weights
    are equal.

    Args:
        scores: Any floats, shape (N,).
        beta: Inverse temperature, finite and non-negative; 0 gives equal weights.

    Returns:
        Values at most 0, minus infinity allowed, at least one of them 0; shape (N,).
    """
    beta = validation.non_negative("beta", beta)
    s = np.asarray(scores, dtype=np.float64)
    if beta == 0.0 or s.size == 0:
        return np.zeros(s.shape)
    with np.errstate(over="ignore"):
        result: FloatArray = beta * _shifted(s)
    return result


def project_log(
    log_weights: FloatArray,
    bounds: tuple[float, float],
    projection: Projection = "kl",
    masses: IntArray | None = None,
) -> BoundedDensity:
    """Projects weights, given by their logarithms, onto the densities within [c, C] of the prior.

    A sharp softmax underflows as plain weights, and the KL projection then no longer knows which
    of the vanished candidates was better; their logarithms still do.

    Args:
        log_weights: ``log w_i``, shape (N,), any floats, up to a constant. NaN counts as no
            weight; infinite weights share all of it; if nothing is left, the weights are equal.
        bounds: ``(c, C)`` with ``0 < c <= 1 <= C``.
        projection: The distance that is minimised.
        masses: The prior's integer masses (``shares.integer_masses``); by default all are equal.

    Guarantees:
        The result is within the bounds and adds up *exactly*, for every input (see
        :class:`~optuna_dp.priors.densities.shares.BoundedDensity`). It is the
        projection itself up to the resolution of the shares (``N * 2**-53`` for equal masses), or
        up to the accuracy of the solver.

    Raises:
        ProjectionError: If the solver of a :class:`~optuna_dp.ConvexProjection` fails.
    """
    bounds = validation.density_bounds(bounds)
    projection = check_projection(projection)
    raw = np.asarray(log_weights, dtype=np.float64)
    if raw.ndim != 1 or raw.size == 0:
        raise InvalidArgumentError(
            "log_weights",
            raw.shape,
            allowed="it must be a one-dimensional array of at least one weight",
        )
    if masses is None:
        masses = uniform_masses(raw.size)
    elif masses.shape != raw.shape:
        raise InvalidArgumentError(
            "masses", masses.shape, allowed=f"it must have shape {raw.shape}"
        )
    logs = _shifted(raw)
    if bounds == (1.0, 1.0) or logs.min() == 0.0:
        # No choice, or no preference: the prior itself, to the last bit.
        return enforce(np.ones(raw.size), masses, bounds)
    # A ratio above M would be a probability above one: such a C bounds nothing.
    c, big_c = bounds[0], min(bounds[1], float(masses.sum()))
    if projection == "kl":
        f = _kl(logs, masses, c, big_c)
    elif isinstance(projection, ConvexProjection):
        prior = masses / float(masses.sum())
        f = projection.ratios(_normalised(logs, masses), prior, c, big_c)
    else:
        f = _l2(_normalised(logs, masses), masses, c, big_c)
    return enforce(f, masses, bounds)


def weights_of(log_weights: FloatArray, masses: IntArray) -> FloatArray:
    """Weights from their logarithms, relative to the prior: what :func:`project_log` projects.

    Args:
        log_weights: As of :func:`project_log`.
        masses: The prior's integer masses.
    """
    return _normalised(_shifted(log_weights), masses)


def _shifted(logs: FloatArray) -> FloatArray:
    """Log-weights with maximum 0; NaN is no weight, infinities share all of it."""
    weights = np.where(np.isnan(logs), -np.inf, logs)
    top = weights.max()
    if top == -np.inf:
        return np.zeros(logs.shape)
    if top == np.inf:
        return np.where(weights == np.inf, 0.0, -np.inf)
    with np.errstate(over="ignore"):
        result: FloatArray = weights - top
    return result


def _normalised(logs: FloatArray, masses: IntArray) -> FloatArray:
    """Weights w with ``sum_i m_i w_i = M``."""
    w = np.exp(logs)
    result: FloatArray = w * (float(masses.sum()) / float(np.dot(masses, w)))
    return result


def _reference(x: FloatArray, masses: IntArray, c: float, big_c: float) -> float:
    """The x that tops the part (1-c)/(C-c) of the prior's mass.

    The solution takes this candidate to between c and C before clipping (docs page,
    "Projections"): that brackets the unknown, and what lies further than the width of the
    bounds from it may be clipped beforehand, so that nothing overflows or cancels.
    """
    part = (1.0 - c) / (big_c - c)
    order = np.argsort(-x)
    reached = np.searchsorted(np.cumsum(masses[order]), part * float(masses.sum()))
    return float(x[order[min(int(reached), x.size - 1)]])


def _l2(w: FloatArray, masses: IntArray, c: float, big_c: float) -> FloatArray:
    """``clip(w - nu, c, C)``, as ``clip(x + t, c, C)`` with x relative to the reference."""
    width = big_c - c
    x = np.clip(w - _reference(w, masses, c, big_c), -width, width)
    return _solved(lambda t: np.clip(x + t, c, big_c), masses, c, big_c)


def _kl(logs: FloatArray, masses: IntArray, c: float, big_c: float) -> FloatArray:
    """``clip(w / nu, c, C)``, as ``clip(y t, c, C)`` with y relative to the reference."""
    reference = _reference(logs, masses, c, big_c)
    if reference == -np.inf:
        # Too few weights are positive for the mass that c leaves over: no root. The limit of the
        # projections of ever smaller positive weights: C where w > 0, the rest spread evenly.
        positive = logs > -np.inf
        total, on = float(masses.sum()), float(masses[positive].sum())
        remainder = (total - big_c * on) / (total - on)
        return np.where(positive, big_c, remainder)
    width = min(math.log(big_c) - math.log(c), _MAX_LOG_WIDTH)
    y = np.exp(np.clip(logs - reference, -width, width))
    return _solved(lambda t: np.clip(y * t, c, big_c), masses, c, big_c)


def _solved(
    f: Callable[[float], FloatArray], masses: IntArray, low: float, high: float
) -> FloatArray:
    """Returns f(t) with ``sum_i m_i f_i(t) = sum_i m_i``, to the last bit of t.

    Args:
        f: Non-decreasing in t.
        masses: m, the prior's masses.
        low: The root lies between this and ``high``.
        high: See ``low``.
    """
    target = float(masses.sum())
    middle = 0.5 * (low + high)
    while low < middle < high:
        mass = float(np.dot(masses, f(middle)))
        low, high = (middle, high) if mass < target else (low, middle)
        middle = 0.5 * (low + high)
    return f(middle)
