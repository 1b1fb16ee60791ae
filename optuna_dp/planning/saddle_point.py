"""Estimates the cost of composed sampled Gaussians in milliseconds. It is no bound.

For a pair P, Q with loss L = log(dP / dQ), the privacy profile is a contour integral of the moment
generating function M(z) = E_P e^(zL), for any a > 0:

    delta(eps) = 1 / (2 pi i) * integral over Re z = a of M(z) e^(-z eps) / (z (z + 1)) dz.

M of a composition is the product of M's of its parts, so nothing is convolved. Where a minimises
the integrand on the real line, its saddle point, the rest of the integral cancels least and falls
off fastest (Alghamdi et al., "The Saddle-Point Accountant for Differential Privacy", arXiv
2208.09595). The direction is the removal of a record, the more expensive of the two.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from dp_accounting import dp_event
from scipy.optimize import brentq, minimize_scalar

from optuna_dp.accounting.discretisation import interval_for
from optuna_dp.accounting.kinds.base import Part
from optuna_dp.core.arrays import FloatArray

ComplexArray = npt.NDArray[np.complex128]

# Points of the contour: a hundred do for losses that are nearly normal, low rates have longer
# tails. There are enough when the integrand has fallen to this part of its height.
_FREQUENCIES = (200, 800, 3200)
_FALLEN = 1e-5
# Outcomes at which one step's M is integrated: eight to a standard deviation. Four are too few far
# up the contour, and estimates jump by a per cent.
_PER_DEVIATION, _DEVIATIONS, _MOST_OUTCOMES = 8, 9.0, 8000
_LEAST_ORDER, _LARGEST_ORDER = 0.05, 1e5


class Steps(NamedTuple):
    """``steps`` steps of DP-SGD; without sampling at rate 1."""

    rate: float
    noise_multiplier: float
    steps: int


def estimated_epsilon(
    parts: list[Steps], delta: float, *, near: float, replace_one: bool = False
) -> float:
    """Returns about the epsilon that the accounting finds for all the steps together.

    Args:
        parts: What is composed.
        delta: In (0, 1).
        near: Where the epsilon is looked for, positive.
        replace_one: Whether a record is replaced rather than removed.
    """
    parts = [*parts, *_rounding(parts, replace_one)]

    def log_moments(order: float, step: float = 0.0, count: int = 1) -> ComplexArray:
        moments = np.zeros(count, dtype=np.complex128)
        for part in parts:
            moments += part.steps * _log_moments(order, step, count, part, replace_one)
        return moments

    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        # Hardly less than the mean loss, of which this is an upper bound.
        epsilon = max(near, float(log_moments(_LEAST_ORDER)[0].real) / _LEAST_ORDER)
        if not epsilon < math.inf:
            return math.inf
        for _ in range(4):
            solution = _solved(log_moments, _saddle(log_moments, epsilon), delta, epsilon)
            if abs(math.log(solution / epsilon)) < 0.3:
                return solution
            epsilon = solution
    return epsilon


def _log_moments(
    order: float, step: float, count: int, part: Steps, replace_one: bool
) -> ComplexArray:
    """Returns log M(z) of one step at z = order + i step k, k < count."""
    if part.rate >= 1.0:
        sensitivity = 2.0 if replace_one else 1.0
        z = order + 1j * step * np.arange(count)
        return np.asarray(z * (z + 1.0) * 0.5 * (sensitivity / part.noise_multiplier) ** 2)
    # Under e^(zL) the outcomes move by up to this much.
    log_weight, with_record, loss = _outcomes(part, order + 1.0, replace_one)
    exponent = order * loss + with_record
    # M - 1, small as it is; far out only the weight keeps it finite.
    weight = np.exp(log_weight)
    beyond = np.exp(exponent + log_weight) - weight
    change = np.full(count, np.where(exponent < 1.0, np.expm1(exponent) * weight, beyond).sum())
    if count == 1:
        return np.log1p(change.astype(np.complex128))
    # From one z to the next each outcome turns by an angle: no exponentials of complex numbers.
    at_order = np.exp(exponent + log_weight)
    phases, angle = at_order.astype(np.complex128), np.exp(1j * step * loss)
    turns = np.zeros(count, dtype=np.complex128)
    for k in range(1, count):
        phases *= angle
        turns[k] = phases.sum()
    turns[1:] -= at_order.sum()
    return np.log1p(change + turns)


def _outcomes(
    part: Steps, shift: float, replace_one: bool
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Returns (log of the noise's weights, log P over noise, loss) at outcomes of one step."""
    noise, variance = part.noise_multiplier, part.noise_multiplier**2
    low = -_DEVIATIONS * noise - (shift if replace_one else 0.0)
    high = _DEVIATIONS * noise + shift
    count = min(math.ceil((high - low) * _PER_DEVIATION / noise), _MOST_OUTCOMES)
    x, step = np.linspace(low, high, count, retstep=True)
    log_weight = -0.5 * x**2 / variance + math.log(step / (noise * math.sqrt(2.0 * math.pi)))

    def log_ratio(moved_to: float) -> FloatArray:
        """Log of the density with the record over that of the noise alone."""
        log_moved = math.log(part.rate) + (x * moved_to - 0.5) / variance
        return np.asarray(np.logaddexp(math.log1p(-part.rate), log_moved))

    with_record = log_ratio(1.0)
    loss = with_record - log_ratio(-1.0) if replace_one else with_record
    return log_weight, with_record, loss


def _rounding(parts: list[Steps], replace_one: bool) -> list[Steps]:
    """Returns the Gaussian mechanism that costs what the accounting's grid adds.

    An atom at a distance d above a point of the grid is split between that and the next one, which
    adds d (interval - d) to the variance of the loss, and half of it to the mean.
    """
    sampled_parts = [part for part in parts if part.rate < 1.0]
    if not sampled_parts:
        return []
    events = [
        Part(
            dp_event.PoissonSampledDpEvent(
                part.rate, dp_event.GaussianDpEvent(part.noise_multiplier)
            ),
            part.steps,
        )
        for part in sampled_parts
    ]
    relation = "replace_one" if replace_one else "add_or_remove_one"
    interval = interval_for(events, [None] * len(events), relation)
    added = 0.0
    for part in sampled_parts:
        log_weight, with_record, loss = _outcomes(part, 1.0, replace_one)
        above = np.mod(loss, interval)
        weight = np.exp(log_weight + with_record)
        added += part.steps * float(weight @ (above * (interval - above)))
    return [Steps(1.0, (2.0 if replace_one else 1.0) * added**-0.5, 1)] if added > 0.0 else []


LogMoments = Callable[..., ComplexArray]  # Of an order, a step along the contour, a count.


def _saddle(log_moments: LogMoments, epsilon: float) -> float:
    """Returns about the order a > 0 at which the integrand is smallest on the real line."""

    def height(log_order: float) -> float:
        order = math.exp(log_order)
        moment = float(log_moments(order)[0].real)
        value = moment - order * epsilon - math.log(order * (order + 1.0))
        # Too large for floats: the further out, the worse.
        return value if math.isfinite(value) else 1e200 * (10.0 + log_order)

    ends = (math.log(_LEAST_ORDER), math.log(_LARGEST_ORDER))
    return math.exp(minimize_scalar(height, bounds=ends, method="bounded", options=_COARSELY).x)


_COARSELY = {"xatol": 0.05}


def _solved(log_moments: LogMoments, order: float, delta: float, near: float) -> float:
    """Returns the epsilon at which the integral through this order is ``delta``."""
    width = 0.01 * order
    below, at, above = (
        float(log_moments(a)[0].real) for a in (order - width, order, order + width)
    )
    spread = math.sqrt(max((below - 2.0 * at + above) / width**2, 1e-12))
    # A third of the way to the pole at 0; 16 points within two deviations of a normal loss.
    step = min(order / 3.0, 0.4 / spread)
    for count in _FREQUENCIES:
        z = np.asarray(order + 1j * step * np.arange(count), dtype=np.complex128)
        integrand = log_moments(order, step, count) - np.log(z * (z + 1.0))
        if integrand[-1].real < integrand[0].real + math.log(_FALLEN):
            break
    weights = np.full(z.size, step / math.pi)
    weights[0] /= 2.0

    def excess(epsilon: float) -> float:
        value = float(weights @ np.exp(integrand - z * epsilon).real)
        return math.log(max(value, 1e-300) / delta)

    low = high = near
    while excess(low) < 0.0 and low > 1e-9:
        low /= 1.5
    while excess(high) > 0.0 and high < 1e6:
        high *= 1.5
    if low == high or excess(low) < 0.0 or excess(high) > 0.0:
        return low if excess(near) < 0.0 else high
    return float(brentq(excess, low, high, rtol=1e-7))
