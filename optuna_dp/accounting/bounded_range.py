"""Choices of bounded range: an exponential mechanism costs less than its epsilon says.

For neighbouring data sets the loss of an epsilon-bounded-range mechanism lies in
``[t - epsilon, t]`` for some t in [0, epsilon], and is dominated by the two-point pair with just
these losses. What t is depends on the data sets, so the bound is the supremum over t. What is
released *afterwards* cannot move t: the supremum is taken outside. A choice that comes after
others may have another t for each of their outputs: then it is taken inside, which is the
pair of :func:`pair_of_choice`. Proofs: docs/explanation/bounded-range.md.
"""

from __future__ import annotations

import math

import numpy as np

from optuna_dp.accounting.dominating_pairs import DominatingPair
from optuna_dp.core.arrays import FloatArray

# Beyond this loss everything counts as infinite; DominatingPair does the same.
_LARGEST_EPSILON = 600.0
# Beyond this range only what is certain of every curve is said of this one.
_LARGEST_RANGE = 1e100
CHOICE_POINTS = 2000
POINTS = 1000
_CENTRAL_DELTA = 1e-10
# Pieces of the interval of t: the error is of the second order in their length.
PIECES_PER_UNIT = 64
FEWEST_PIECES, _MOST_PIECES = 96, 1024
# What the few operations in double precision below may lose of a delta, and of a loss.
_ROUNDING = 1e-13


def pair_of_choice(epsilon: float) -> DominatingPair:
    """Returns a pair that dominates the choice in any composition, wherever it stands in it.

    ``sup_t`` of the two-point profiles is ``(1 - e^((s - epsilon) / 2))^2 / (1 - e^-epsilon)``,
    attained at ``t = (s + epsilon) / 2``. Both directions are alike.

    Args:
        epsilon: Range of the losses, non-negative.
    """
    if epsilon == 0.0:
        return DominatingPair.identity()
    s = np.linspace(0.0, epsilon, CHOICE_POINTS)
    delta = np.expm1((s - epsilon) / 2.0) ** 2 / -math.expm1(-epsilon)
    return DominatingPair.from_profile(s, delta, delta)


def pair_with_rest(epsilon: float, continuation: DominatingPair) -> DominatingPair:
    """Returns a pair that dominates a choice followed by what ``continuation`` dominates.

    Args:
        epsilon: Range of the choice's losses, non-negative.
        continuation: A pair for everything after the choice, whatever was chosen.
    """
    if continuation.is_infinite or epsilon > _LARGEST_EPSILON:
        return DominatingPair.infinite()
    directions = (continuation, continuation.reversed())
    largest_loss = max(float(np.abs(continuation.losses).max(initial=0.0)) + epsilon, 1e-9)
    top = min(largest_loss, _LARGEST_EPSILON)
    middle = min(
        max(side.epsilon(max(_CENTRAL_DELTA, side.infinite_mass)) for side in directions)
        + epsilon,
        top,
    )
    half_count = POINTS // 2
    s = np.union1d(np.linspace(0.0, top, half_count), np.linspace(0.0, middle, half_count))
    return DominatingPair.from_profile(s, *(_supremum(epsilon, side, s) for side in directions))


def rdp(epsilon: float, orders: FloatArray) -> FloatArray:
    """Returns the largest Renyi divergence of an epsilon-bounded-range mechanism, exactly.

    ``E[e^((a-1) L)]`` of the two-point pair is ``x^(a-1) (A - B x)`` at ``x = e^t`` with
    ``A = (1 - e^-(a epsilon)) / (1 - e^-epsilon)`` and
    ``B = e^-epsilon (1 - e^-((a-1) epsilon)) / (1 - e^-epsilon)``, largest at
    ``x = (a-1) A / (a B)``. It is below the zCDP of Cesar & Rogers (arXiv 2004.07223),
    ``a epsilon^2 / 8``.

    Args:
        epsilon: Non-negative.
        orders: Shape (n,), above 1.
    """
    a = np.asarray(orders, dtype=np.float64)
    if epsilon == 0.0:
        return np.zeros_like(a)
    # Both are proved, and nothing cancels.
    simple_bound = np.minimum(epsilon, a * (epsilon * (epsilon / 8.0)))
    if epsilon > _LARGEST_RANGE:
        return np.asarray(simple_bound, dtype=np.float64)
    log_a = np.log(-np.expm1(-a * epsilon)) - math.log(-math.expm1(-epsilon))
    log_b = np.log(-np.expm1(-(a - 1.0) * epsilon)) - math.log(-math.expm1(-epsilon)) - epsilon
    t = np.log1p(-1.0 / a) + log_a - log_b  # between 0 and epsilon: the moment is 1 at both
    log_moment = (a - 1.0) * t + log_a - np.log(a)
    value = np.maximum(log_moment, 0.0) / (a - 1.0) + _ROUNDING * (1.0 + 1.0 / (a - 1.0))
    return np.asarray(np.minimum(simple_bound, value), dtype=np.float64)


def _supremum(epsilon: float, continuation: DominatingPair, s: FloatArray) -> FloatArray:
    """Upper bounds of ``sup_t H(choice with t, then continuation)`` at each s.

    With ``x = e^t`` the masses of the two outputs are p and 1 - p, affine in x, under one law, and
    p' and 1 - p' under the other. The value is V(p, p') + V(1 - p, 1 - p') with
    V(a, b) = sum (a O - e^s b O')_+, which is convex, and falls as b grows. So where p' and 1 - p'
    are replaced by affine functions below them, it is convex in x, and on a piece of x largest at
    an end. Below 1 - p' is its chord. Below p' are its tangent in the middle of the piece and,
    better where p' is small, ``p e^-t`` with the t of the upper end.
    """
    if epsilon == 0.0:
        return continuation.delta(s)
    pieces = min(max(math.ceil(PIECES_PER_UNIT * epsilon), FEWEST_PIECES), _MOST_PIECES)
    t = epsilon * np.arange(pieces + 1) / pieces
    half_piece = epsilon / pieces / 2.0
    range_mass = -math.expm1(-epsilon)
    high = -np.expm1(t - epsilon) / range_mass
    low = np.exp(-epsilon) * np.expm1(t) / range_mass
    low_part = _value(low, np.exp(epsilon - t) * low, continuation, s)
    to_upper_end = continuation.delta(s[:, None] - t[1:] * (1.0 + _ROUNDING))
    by_tangent, by_ratio = np.zeros((2, s.size, pieces))
    for end, middle, offset in (
        (0, t[:-1] + half_piece, -half_piece),
        (1, t[1:] - half_piece, half_piece),
    ):
        nodes = slice(end, pieces + end)
        tangent = ((2.0 - math.exp(offset)) * np.exp(-middle) - math.exp(-epsilon)) / range_mass
        value = _value(high[nodes], tangent, continuation, s) + low_part[:, nodes]
        by_tangent = np.maximum(by_tangent, value)
        by_ratio = np.maximum(by_ratio, high[nodes] * to_upper_end + low_part[:, nodes])
    suprema = np.minimum(by_tangent, by_ratio).max(axis=1)
    return np.asarray(np.minimum(suprema * (1.0 + _ROUNDING), 1.0))


def _value(
    a: FloatArray, b: FloatArray, continuation: DominatingPair, s: FloatArray
) -> FloatArray:
    """V(a, b) at each s, rounded up; shape (s.size, a.size)."""
    # Rounding may have made b larger, never by so much.
    b = b - _ROUNDING * (np.abs(b) + 1e-3 * a)
    with np.errstate(divide="ignore", invalid="ignore"):
        shift = np.where(b > 0.0, np.log(np.maximum(b, 0.0)) - np.log(a), 0.0)
    shift = np.where(a > 0.0, shift, 0.0)
    with_pair = a * continuation.delta(s[:, None] + shift)
    without_pair = a - np.exp(s)[:, None] * b
    return np.asarray(np.where(b > 0.0, with_pair, without_pair))
