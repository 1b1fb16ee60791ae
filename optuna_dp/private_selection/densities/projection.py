"""Projection of a desired density onto the densities within [c, C] of the prior.

``f`` minimises a distance from the desired ratio ``w`` subject to ``c <= f_i <= C`` and
``sum_i pi0_i f_i = 1`` (DP-HyPO, arXiv 2306.05734v2, equation 3.1, Appendices C and D; all three
distances are taken with respect to the prior):

* ``"l2"``: the L2(pi0) norm of ``f - w`` (equation 3.1). Solution ``f = clip(w - nu, c, C)``.
* ``"kl"``: KL(w || f) (equation C.1 with an infinite penalty: the moment projection).
  Solution ``f = clip(w / nu, c, C)``.
* ``Penalized(nu)``: the norm plus ``nu`` times KL (equation C.1), by convex programming.

The first two have one unknown, found exactly by sorting (docs/explanation/bounded-densities.md,
"Projections"). Whatever the method, ``shares.enforce`` has the last word.
"""

from __future__ import annotations

import bisect
import importlib
import math
import warnings
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np

from optuna_dp import validation
from optuna_dp.arrays import FloatArray, IntArray
from optuna_dp.errors import InvalidArgumentError
from optuna_dp.private_selection.densities.shares import BoundedDensity, enforce, uniform_masses

# Above this many candidates a few bisection steps spare most of the sort.
_BISECT_ABOVE = 20_000
_BISECT_STEPS = 5
# exp(+-300) and products of two of them stay finite.
_MAX_LOG_WIDTH = 300.0


@dataclass(frozen=True)
class Penalized:
    """The distance of equation C.1: ``||f - w||_2 + penalty * KL(w || f)``.

    Args:
        penalty: Non-negative; 0 is ``"l2"``, infinity is ``"kl"``.
    """

    penalty: float

    def __post_init__(self) -> None:
        value = validation.number("penalty", self.penalty)
        if value < 0.0:
            raise InvalidArgumentError("penalty", self.penalty, "it must not be negative")


Projection: TypeAlias = Literal["l2", "kl"] | Penalized


def check_projection(value: Any) -> Projection:
    """Returns ``value`` if it names a projection."""
    if not isinstance(value, Penalized) and value not in ("l2", "kl"):
        raise InvalidArgumentError(
            "projection", value, 'it must be "kl", "l2" or Penalized(penalty)'
        )
    projection: Projection = value
    return projection


def projection_to_json(projection: Projection) -> dict[str, Any]:
    """The projection as plain data, for the record of a plan."""
    if isinstance(projection, Penalized):
        # JSON has no infinity; an infinite penalty is the KL projection.
        if math.isinf(projection.penalty):
            return {"method": "kl"}
        return {"method": "penalized", "penalty": float(projection.penalty)}
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
        :class:`~optuna_dp.private_selection.densities.shares.BoundedDensity`). It is the
        projection itself up to the resolution of the shares (``N * 2**-53`` for equal masses).
    """
    bounds = validation.density_bounds(bounds)
    projection = check_projection(projection)
    raw = np.asarray(log_weights, dtype=np.float64)
    if raw.ndim != 1 or raw.size == 0:
        raise InvalidArgumentError(
            "log_weights", raw.shape, "it must be a one-dimensional array of at least one weight"
        )
    if masses is None:
        masses = uniform_masses(raw.size)
    elif masses.shape != raw.shape:
        raise InvalidArgumentError("masses", masses.shape, f"it must have shape {raw.shape}")
    logs = _shifted(raw)
    if bounds == (1.0, 1.0) or logs.min() == 0.0:
        # No choice, or no preference: the prior itself, to the last bit.
        return enforce(np.ones(raw.size), masses, bounds)
    # A ratio above M would be a probability above one: such a C bounds nothing.
    c, big_c = bounds[0], min(bounds[1], float(masses.sum()))
    if projection == "kl":
        f = _kl(logs, masses, c, big_c)
    elif projection == "l2":
        f = _l2(_normalised(logs, masses), masses, c, big_c)
    else:
        f = _penalized(logs, masses, c, big_c, projection.penalty)
    return enforce(f, masses, bounds)


def _shifted(logs: FloatArray) -> FloatArray:
    """Log-weights with maximum 0; NaN is no weight, infinities share all of it."""
    known = np.where(np.isnan(logs), -np.inf, logs)
    top = known.max()
    if top == -np.inf:
        return np.zeros(logs.shape)
    if top == np.inf:
        return np.where(known == np.inf, 0.0, -np.inf)
    with np.errstate(over="ignore"):
        result: FloatArray = known - top
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
    n = x.size
    if int(masses.max()) == 1:
        rank = min(max(math.ceil(part * n), 1), n)
        return float(np.partition(x, n - rank)[n - rank])
    order = np.argsort(-x, kind="stable")
    reached = np.searchsorted(np.cumsum(masses[order]), part * float(masses.sum()))
    return float(x[order[min(int(reached), n - 1)]])


def _l2(w: FloatArray, masses: IntArray, c: float, big_c: float) -> FloatArray:
    """``clip(w - nu, c, C)``, as ``clip(x + t, c, C)`` with x relative to the reference."""
    width = big_c - c
    x = np.clip(w - _reference(w, masses, c, big_c), -width, width)
    m = masses.astype(np.float64)
    t = _root(c - x, big_c - x, m, m * x, m, (c, big_c), (c, big_c))
    result: FloatArray = np.clip(x + t, c, big_c)
    return result


def _kl(logs: FloatArray, masses: IntArray, c: float, big_c: float) -> FloatArray:
    """``clip(w / nu, c, C)``, as ``clip(y t, c, C)`` with y relative to the reference."""
    reference = _reference(logs, masses, c, big_c)
    if reference == -np.inf:
        # Too few weights are positive for the mass that c leaves over: no root. The limit of the
        # projections of ever smaller positive weights: C where w > 0, the rest spread evenly.
        positive = logs > -np.inf
        total, on = float(masses.sum()), float(masses[positive].sum())
        rest = (total - big_c * on) / (total - on)
        return np.where(positive, big_c, rest)
    width = min(math.log(big_c) - math.log(c), _MAX_LOG_WIDTH)
    y = np.exp(np.clip(logs - reference, -width, width))
    m = masses.astype(np.float64)
    t = _root(c / y, big_c / y, m, np.zeros(1), m * y, (c, big_c), (c, big_c))
    result: FloatArray = np.clip(y * t, c, big_c)
    return result


def _root(
    enter: FloatArray,
    leave: FloatArray,
    mass: FloatArray,
    offset: FloatArray,
    slope: FloatArray,
    bounds: tuple[float, float],
    bracket: tuple[float, float],
) -> float:
    """Solves ``sum_i mass_i f_i(t) = sum_i mass_i`` for t, exactly but for rounding.

    ``mass_i f_i(t)`` is ``c mass_i`` up to ``t = enter_i``, ``offset_i + slope_i t`` from there to
    ``leave_i``, and ``C mass_i`` beyond: non-decreasing and piecewise linear in t.

    Args:
        enter: Where candidate i leaves the lower bound, shape (N,).
        leave: Where it reaches the upper bound, shape (N,); in the same order as ``enter``.
        mass: Prior mass, shape (N,).
        offset: Shape (N,), or (1,) for zero everywhere.
        slope: Shape (N,).
        bounds: (c, C).
        bracket: The root lies between these.
    """
    c, big_c = bounds
    low, high = bracket
    target = float(mass.sum())
    offset = np.broadcast_to(offset, mass.shape)

    if mass.size > _BISECT_ABOVE:
        floor, ceiling, buffer = c * mass, big_c * mass, np.empty_like(mass)
        for _ in range(_BISECT_STEPS):
            middle = 0.5 * (low + high)
            np.multiply(slope, middle, out=buffer)
            buffer += offset
            np.clip(buffer, floor, ceiling, out=buffer)
            low, high = (middle, high) if buffer.sum() < target else (low, middle)

    # Candidates whose piece cannot change between low and high enter as constants.
    at_top, at_bottom = leave <= low, enter >= high
    linear = (enter <= low) & (leave >= high) & ~at_top & ~at_bottom
    fixed = big_c * float(mass[at_top].sum()) + c * float(mass[at_bottom].sum())
    fixed += float(offset[linear].sum())
    fixed_slope = float(slope[linear].sum())
    open_ = np.flatnonzero(~(at_top | at_bottom | linear))

    order = open_[np.argsort(enter[open_], kind="stable")]
    p, q = enter[order], leave[order]
    prefix = np.zeros((3, order.size + 1))
    for row, values in enumerate((mass, offset, slope)):
        np.cumsum(values[order], out=prefix[row, 1:])
    sum_mass, sum_offset, sum_slope = prefix

    def pieces(t: float) -> tuple[float, float]:
        """Constant and slope of the sum in the segment that holds t."""
        top = int(np.searchsorted(q, t, side="right"))
        on = max(int(np.searchsorted(p, t, side="left")), top)
        constant = fixed + big_c * sum_mass[top] + c * (sum_mass[-1] - sum_mass[on])
        constant += sum_offset[on] - sum_offset[top]
        return float(constant), float(fixed_slope + sum_slope[on] - sum_slope[top])

    def reaches(t: float) -> bool:
        constant, gradient = pieces(t)
        return constant + gradient * t >= target

    for knots in (p, q):
        # The sum is non-decreasing, so the knots that reach the target are the last ones.
        first = bisect.bisect_left(knots, True, key=reaches)
        if first < knots.size:
            high = min(high, float(knots[first]))
        if first > 0:
            low = max(low, float(knots[first - 1]))
    constant, gradient = pieces(0.5 * (low + high))
    if gradient <= 0.0:
        return low
    return min(max((target - constant) / gradient, min(low, high)), max(low, high))


def _penalized(
    logs: FloatArray, masses: IntArray, c: float, big_c: float, penalty: float
) -> FloatArray:
    """Equation C.1 by convex programming (Clarabel), then made feasible by an L2 projection."""
    if penalty == 0.0:
        return _l2(_normalised(logs, masses), masses, c, big_c)
    exact = _kl(logs, masses, c, big_c)
    if math.isinf(penalty):
        return exact
    cp: Any = importlib.import_module("cvxpy")  # heavy, and rarely wanted

    w = _normalised(logs, masses)
    prior = masses / float(masses.sum())
    f = cp.Variable(w.size)
    divergence = -(prior * w) @ cp.log(f)  # KL(w || f) without its constant part
    distance = cp.norm(cp.multiply(np.sqrt(prior), f - w), 2)
    problem = cp.Problem(
        cp.Minimize(distance + penalty * divergence), [f >= c, f <= big_c, prior @ f == 1.0]
    )
    try:
        with warnings.catch_warnings():
            # "Solution may be inaccurate": it is made feasible below in any case.
            warnings.simplefilter("ignore")
            problem.solve(solver=cp.CLARABEL)
    except cp.error.SolverError:
        return exact
    if f.value is None or not np.isfinite(f.value).all():
        # No answer is an answer of the solver, not of the user's data: use the exact limit.
        return exact
    return _l2(np.asarray(f.value, dtype=np.float64), masses, c, big_c)
