"""The best of a secret, random number of invocations, with OpenDP's user-defined measurements.

T is drawn first, then the measurement is invoked T times, and only the candidate with the largest
score is released (Papernot and Steinke, arXiv 2110.03620v2). T is truncated negative binomial:

    Pr[T = k] is proportional to (1 - g)^k times the product over l < k of (l + n) / (l + 1),

k = 1, 2, 3, ..., where g is ``stop_probability`` and the positive integer n is ``shape``. With
shape 1 it is geometric: after each invocation the search stops with probability g.

* :func:`make_select_best_candidate` takes a measurement with a Renyi curve, or one with
  zero-concentrated differential privacy, and has a Renyi curve.
* :func:`make_select_best_candidate_fixed_delta` takes a measurement with a privacy profile and is
  (epsilon, delta)-private for one delta. Its epsilon is smaller than what follows from a curve.
"""

import bisect
import math
import secrets
from collections.abc import Callable
from decimal import ROUND_CEILING, Context, Decimal, localcontext
from fractions import Fraction

import numpy as np
import opendp.prelude as dp

_RELEASE = "(f64, ExtrinsicObject)"
# Differences of doubles are exact in it, and what is not exact is rounded up.
_UPWARD = Context(prec=400, rounding=ROUND_CEILING)
# Orders that the Renyi bound minimises over, besides 1. Every order gives a bound.
_ORDERS = tuple(1 + 2 ** (k / 8) for k in range(-64, 97))


def make_select_best_candidate(
    measurement: dp.Measurement, stop_probability: float, shape: int = 1
) -> dp.Measurement:
    r"""Release the best of T invocations of ``measurement``, under Renyi differential privacy.

    If ``measurement`` is :math:`\epsilon(\alpha)`-RDP, the selection is
    :math:`\epsilon'(\alpha)`-RDP with, for any :math:`\beta \ge 1`, shape :math:`n` and stop
    probability :math:`g`,

    .. math::
        \epsilon'(\alpha) = \epsilon(\alpha) + (1 + n) \left[ (1 - 1/\beta) \epsilon(\beta)
            + \ln(1/g) / \beta \right] + \frac{\ln E[T]}{\alpha - 1}

    (Theorem 2 of the paper). The least over a list of :math:`\beta` and of orders from
    :math:`\alpha` on is taken. The time that the
    selection takes reveals T, and must not be released.

    Required features: ``contrib``, ``honest-but-curious``

    :param measurement: Releases ``(score, candidate)``, with ``TO="(f64, ExtrinsicObject)"``. The
        candidate with the largest score is the best; a score that is not a number is below all.
    :param stop_probability: In (0, 1).
    :param shape: A positive integer. A larger one makes T vary less and costs more.
    :return: A measurement under ``renyi_divergence()`` that releases ``(score, candidate)``.
    :raises ValueError: if an argument is out of range, or the measure has no Renyi curve
    """
    count = _RunCount(stop_probability, shape)
    if measurement.output_measure == dp.zero_concentrated_divergence():

        def run_curve(d_in: object) -> Callable[[float], float]:
            rho = measurement.map(d_in)
            return lambda alpha: _float_above(Fraction(rho) * Fraction(alpha))

    elif measurement.output_measure == dp.renyi_divergence():
        run_curve = measurement.map
    else:
        raise ValueError(
            f"measurement has the output measure {measurement.output_measure}, which has no Renyi "
            "curve; renyi_divergence() and zero_concentrated_divergence() are supported"
        )

    def privacy_map(d_in: object) -> Callable[[float], float]:
        run = run_curve(d_in)
        term = count.renyi_term(run)

        def bound(alpha: float) -> float:
            with localcontext(_UPWARD):
                per_order = count.log_mean / (Decimal(alpha) - 1)
                return _float_above(Decimal(run(alpha)) + term + per_order)

        bounds = [bound(order) for order in _ORDERS]

        def curve(alpha: float) -> float:
            if not 1 < alpha < math.inf:
                raise ValueError(f"alpha is {alpha}; it must be above 1 and finite")
            # Renyi divergences grow with the order, so the bound at a larger one holds here too.
            larger = bounds[bisect.bisect(_ORDERS, alpha) :]
            return min([bound(alpha), *larger])

        return curve

    return dp.m.make_user_measurement(
        measurement.input_domain,
        measurement.input_metric,
        dp.renyi_divergence(),
        count.best_of(measurement),
        privacy_map,
        TO=_RELEASE,
    )


def make_select_best_candidate_fixed_delta(
    measurement: dp.Measurement, delta: float, stop_probability: float, shape: int = 1
) -> dp.Measurement:
    r"""Release the best of T invocations of ``measurement``, for one delta.

    Let :math:`H(x)` be the measurement's privacy profile at :math:`x \ge 0`, continued by
    :math:`H(-x) = 1 - e^{-x} + e^{-x} H(x)`, let :math:`G(p)` be the least of
    :math:`e^x p + H(x)` over all real :math:`x`, and :math:`\varphi(s) = E[s^T]`. With the convex

    .. math::
        \Phi(t) = \sup_p \, [\varphi'(1 - p) - t \varphi'(1 - G(p))]_+
            = \sum_i w_i [1 - t / s_i]_+

    the selection's profile is at most :math:`\sum_i w_i H(\epsilon - \ln s_i)`. The reason: an
    output :math:`y` wins if one invocation returns it and no other is better. So its density is at
    most :math:`P(y) \varphi'(1 - p)` on one data set and at least :math:`P'(y) \varphi'(1 - G(p))`
    on the other, where :math:`p` is the mass under :math:`P` of what is better than :math:`y`.

    Required features: ``contrib``, ``honest-but-curious``

    :param measurement: As for :func:`make_select_best_candidate`, under
        ``smoothed_max_divergence()``.
    :param delta: In (0, 1).
    :param stop_probability: In (0, 1).
    :param shape: A positive integer.
    :return: A measurement under ``fixed_smoothed_max_divergence()`` that releases
        ``(score, candidate)``. Its map returns ``(epsilon, delta)``.
    :raises ValueError: if an argument is out of range, or the measure has no privacy profile
    """
    count = _RunCount(stop_probability, shape)
    if not 0 < delta < 1:
        raise ValueError(f"delta is {delta}; it must be in (0, 1)")
    if measurement.output_measure != dp.smoothed_max_divergence():
        raise ValueError(
            f"measurement has the output measure {measurement.output_measure}, which is no "
            "privacy profile; smoothed_max_divergence() is supported, see make_zCDP_to_approxDP"
        )

    def privacy_map(d_in: object) -> tuple[float, float]:
        profile = _SelectionProfile(measurement.map(d_in).delta, count)
        return profile.epsilon(delta), delta

    return dp.m.make_user_measurement(
        measurement.input_domain,
        measurement.input_metric,
        dp.fixed_smoothed_max_divergence(),
        count.best_of(measurement),
        privacy_map,
        TO=_RELEASE,
    )


class _RunCount:
    """The law of T.

    Attributes:
        mean: E[T].
        log_mean: Its logarithm, rounded up.
        log_inverse_stop: ln(1 / g), rounded up.
    """

    def __init__(self, stop_probability: float, shape: int) -> None:
        if not 0 < stop_probability < 1:
            raise ValueError(f"stop_probability is {stop_probability}; it must be in (0, 1)")
        if isinstance(shape, bool) or not isinstance(shape, int) or not 1 <= shape <= 1000:
            raise ValueError(f"shape is {shape}; it must be an integer from 1 to 1000")
        self._stop, self._shape = Fraction(stop_probability), shape
        mean = shape * (1 - self._stop) / (self._stop * (1 - self._stop**shape))
        self.mean = float(mean)
        self.log_mean = _log_above(mean)
        self.log_inverse_stop = _log_above(1 / self._stop)

    def draw(self) -> int:
        """Returns T, drawn exactly from the operating system's randomness."""
        # The failures before the n-th success are negative binomial; none of them is no T.
        while True:
            failures = sum(self._failures() for _ in range(self._shape))
            if failures:
                return failures

    def _failures(self) -> int:
        failures = 0
        while secrets.randbelow(self._stop.denominator) >= self._stop.numerator:
            failures += 1
        return failures

    def best_of(self, measurement: dp.Measurement) -> Callable[[object], tuple[float, object]]:
        """Returns the function of the selection."""

        def rank(release: tuple[float, object]) -> float:
            return -math.inf if math.isnan(release[0]) else release[0]

        def function(arg: object) -> tuple[float, object]:
            best = measurement(arg)
            for _ in range(self.draw() - 1):
                release = measurement(arg)
                # Among equal scores the first stays: which one that is, is random.
                if rank(release) > rank(best):
                    best = release
            return best

        return function

    def renyi_term(self, run: Callable[[float], float]) -> Decimal:
        """Returns (1 + n) times the least over b of (1 - 1/b) run(b) + ln(1/g) / b, or above."""
        with localcontext(_UPWARD):
            terms = [self.log_inverse_stop]  # b = 1, where the run's curve does not matter
            for order in _ORDERS:
                b = Decimal(order)
                terms.append((b - 1) / b * Decimal(run(order)) + self.log_inverse_stop / b)
            return (1 + self._shape) * min(terms)

    def derivative(self, s: np.ndarray) -> np.ndarray:
        """Returns phi'(s) = E[T] (g / (1 - (1 - g) s))^(n + 1), for s in [0, 1]."""
        odds = float(1 / self._stop - 1)
        return self.mean * np.exp(-(self._shape + 1) * np.log1p(odds * (1 - s)))

    @property
    def rounding(self) -> float:
        """A bound on the relative error of :meth:`derivative`."""
        return 1e-13 * (1 + self._shape) * (1 + self.mean)


class _SelectionProfile:
    """The privacy profile of a selection, from the profile of one invocation.

    Args:
        run: The profile, called at epsilons from 0 on.
        count: The law of T.
        step: Largest relative change of phi' over a cell of the grid of p. The smaller, the
            tighter; every grid gives a bound.
        points: At how many epsilons the profile is read.
    """

    def __init__(
        self,
        run: Callable[[float], float],
        count: _RunCount,
        step: float = 1e-3,
        points: int = 3000,
    ) -> None:
        reach = 0.25
        while run(reach) - run(400.0) > 1e-15 and reach < 400.0:
            reach *= 1.25
        x = np.linspace(0.0, reach, points)
        values = np.minimum.accumulate([min(1.0, run(float(at))) for at in x])
        # H, and the lines above G: a slope e^-x with the height H(-x), for every x.
        below = -np.expm1(-x) + np.exp(-x) * values
        self._x = np.concatenate([-x[:0:-1], x])
        self._h = np.concatenate([below[:0:-1], values])
        self._slope, self._height = np.exp(-self._x), self._h[::-1]
        self._meet = np.maximum.accumulate(np.diff(self._height) / -np.diff(self._slope))
        p = self._grid(count, step)
        # Neither gain nor cost grows with p: of a cell, the gain is taken at the left end and the
        # cost at the right one.
        gain = count.derivative(1 - p[:-1]) * (1 + count.rounding)
        cost = count.derivative(1 - self._trade_off(p[1:])) * (1 - count.rounding)
        self._weights, kinks = _hinges(gain, np.minimum.accumulate(cost))
        self._shifts = np.log(kinks)

    def delta(self, epsilon: float) -> float:
        """Returns an upper bound on the selection's delta, epsilon >= 0."""
        sticks = self._stick(epsilon - self._shifts)
        return min(1.0, float(sticks @ self._weights) * (1 + 1e-12))

    def epsilon(self, delta: float) -> float:
        """Returns an epsilon at which :meth:`delta` is at most ``delta``; inf if none is found."""
        if self.delta(0.0) <= delta:
            return 0.0
        low, high = 0.0, 1.0
        while self.delta(high) > delta:
            low, high = high, 2 * high
            if high > 1e4:
                return math.inf
        while high - low > 1e-9 * high:
            middle = (low + high) / 2
            low, high = (middle, high) if self.delta(middle) > delta else (low, middle)
        return high

    def _stick(self, x: np.ndarray) -> np.ndarray:
        """Returns an upper bound of H: in e^x it is convex, so below its chords."""
        inside = np.clip(x, self._x[0], self._x[-1])
        i = np.minimum(np.searchsorted(self._x, inside, side="right") - 1, self._x.size - 2)
        part = np.expm1(inside - self._x[i]) / np.expm1(self._x[i + 1] - self._x[i])
        h = self._h[i] + part * (self._h[i + 1] - self._h[i])
        before = np.exp(np.minimum(x - self._x[0], 0.0))
        return np.where(x < self._x[0], 1 - before * (1 - self._h[0]), h) + 1e-15

    def _trade_off(self, p: np.ndarray) -> np.ndarray:
        """Returns an upper bound of G: the lowest of three lines, each of which is one."""
        i = np.searchsorted(self._meet, p)
        lines = [
            self._slope[k] * p + self._height[k]
            for k in (np.maximum(i - 1, 0), i, np.minimum(i + 1, self._meet.size))
        ]
        return np.minimum(np.min(lines, axis=0) + 1e-15, 1.0)

    def _grid(self, count: _RunCount, step: float) -> np.ndarray:
        ends = np.geomspace(1e-25, 0.1, 250)
        p = np.unique(np.concatenate([[0.0, 1.0], ends, 1 - ends, np.linspace(0, 1, 50)]))
        while p.size < 50_000:
            gain, cost = count.derivative(1 - p), count.derivative(1 - self._trade_off(p))
            split = (gain[:-1] > (1 + step) * gain[1:]) | (cost[:-1] > (1 + step) * cost[1:])
            split &= (gain[:-1] > 1e-17 * count.mean) & (p[:-1] > 0)
            split &= np.diff(p) > 1e-14 * p[1:]
            if not split.any():
                break
            left, right = p[:-1][split], p[1:][split]
            middle = np.where(right > 4 * left, np.sqrt(left * right), (left + right) / 2)
            p = np.unique(np.concatenate([p, middle]))
        return p


def _hinges(gain: np.ndarray, cost: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns w and s: the largest of 0 and gain - cost t is the sum of w [1 - t/s]_+."""
    order = np.lexsort((-gain, cost))
    gain, cost = gain[order], cost[order]
    shows = gain > np.maximum.accumulate(np.concatenate([[-1.0], gain[:-1]]))
    gain, cost = np.append(0.0, gain[shows]), np.append(0.0, cost[shows])
    # Costs are positive, so the line of zeros is the first of the hull.
    hull: list[int] = []
    for k in range(gain.size):
        while len(hull) > 1:
            i, j = hull[-2:]
            rise, next_rise = gain[j] - gain[i], gain[k] - gain[j]
            if rise * (cost[k] - cost[j]) > next_rise * (cost[j] - cost[i]):
                break
            hull.pop()
        hull.append(k)
    weights = np.diff(gain[hull])
    return weights, weights / np.diff(cost[hull])


def _log_above(x: Fraction) -> Decimal:
    """Returns a number that is at least ln x, for x >= 1."""
    with localcontext(_UPWARD):
        quotient = Decimal(x.numerator) / Decimal(x.denominator)
        # The logarithm itself is rounded to the nearest number.
        return quotient.ln().next_plus()


def _float_above(x: Decimal | Fraction) -> float:
    """Returns a double that is at least x."""
    nearest = float(x)
    exact = nearest if math.isinf(nearest) else type(x)(nearest)
    return nearest if exact >= x else math.nextafter(nearest, math.inf)
