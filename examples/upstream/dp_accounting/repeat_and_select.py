"""Privacy loss distribution of the best of a secret number of runs.

A mechanism is run T times, where T is drawn in secret, and only the best output
is released. `RepeatAndSelectDpEvent` describes this, and `RdpAccountant` bounds
its Renyi divergences. This module bounds its hockey-stick divergences, which
gives a smaller epsilon, and returns a `PrivacyLossDistribution`, which composes
with others.

Notation. For one direction of adjacency let (P, P') dominate one run and

  H(x) = sup_E P(E) - e^x P'(E)     the hockey-stick divergence, x real
  G(p) = sup {P'(E) : P(E) <= p}    the trade-off curve
  phi(s) = E[s^T]                   the generating function of T
  Phi(t) = sup over p in [0, 1] of the positive part of
           phi'(1 - p) - t phi'(1 - G(p)).

Then the output (A, A') of the selection satisfies, for every real eps,

  H_A(eps) <= E_{L ~ P}[Phi(e^(eps - L))] + Pr[T = 0] max(0, 1 - e^eps),

where L = log(P / P'). The reason: an output y wins if one run returns it and no
other run is better. So its density under A is at most P(y) phi'(1 - p), where p
is the mass of what is better than y. Under A' it is at least
P'(y) phi'(1 - G(p)). Take the supremum over p. Phi is convex and does not
increase, so the expectation is a mixture of hockey sticks, and any dominating
pair may stand for the run. For a piecewise linear Phi

  E[Phi(e^(eps - L))] = Phi(inf) + sum_i w_i H(eps - log s_i),   w_i >= 0.

Ties are broken by a uniform number that each run draws for itself.
"""

import math
from collections.abc import Callable

import numpy as np
from dp_accounting import dp_event, privacy_accountant
from dp_accounting.pld import (
  pld_pmf,
  pld_privacy_accountant,
  privacy_loss_distribution,
)
from scipy import optimize

CompositionErrorDetails = (
  privacy_accountant.PrivacyAccountant.CompositionErrorDetails
)
NeighborRel = privacy_accountant.NeighboringRelation

# Largest relative change of phi' over one cell of the grid of p. The bound is
# above the supremum by about this factor.
_STEP = 5e-4
_MAX_CELLS = 100_000
# Cells whose phi' is below this part of the largest add at most it to delta.
_NEGLIGIBLE = 1e-17
# Points at which the profile of a run is read, and that of the selection is
# calculated. Between points both are bounded by chords.
_RUN_POINTS = 20_000
_SELECTION_POINTS = 1_500
# Privacy losses that add less to delta than this count as infinite.
_TAIL = 1e-15
# Added to what is read from a distribution, for the rounding of its sums.
_ROUNDING = 1e-15
# Losses beyond it count as infinite.
_LARGEST_EPSILON = 500.0
# Values calculated at once: about 100 MB.
_AT_ONCE = 2_000_000


def from_repeat_and_select(
  run: privacy_loss_distribution.PrivacyLossDistribution,
  mean: float,
  shape: float,
  value_discretization_interval: float = 1e-4,
) -> privacy_loss_distribution.PrivacyLossDistribution:
  """Returns the privacy loss distribution of the best of T runs.

  T is independent of the data and secret. The runs are independent, given the
  data; all of them are ranked by one order of outputs that does not depend on
  the data; ties are broken at random. Only the best output is released. The
  hyperparameters of each run may be drawn from one distribution, if `run`
  covers all of them and they are part of the output.

  Args:
    run: The privacy loss distribution of one run, rounded pessimistically.
      Rounding that it lost by FFT convolutions is multiplied by at most `mean`.
    mean: The expectation of T, at least 1. A mean of 1 is one run, unless shape
      is infinite.
    shape: The shape of T, at least 0: 0 for the logarithmic distribution, 1 for
      the geometric one, infinity for Poisson, otherwise a truncated negative
      binomial one. These are the parameters of `RepeatAndSelectDpEvent`.
    value_discretization_interval: The length of the discretization interval of
      the returned distribution.

  Returns:
    A pessimistic estimate.

  Raises:
    ValueError: If mean or shape is out of range or `run` is optimistic.
  """
  # pylint:disable=protected-access
  remove, add = run._pmf_remove, run._pmf_add
  if not (remove._pessimistic_estimate and add._pessimistic_estimate):
    raise ValueError('The distribution of a run must be pessimistic.')
  # pylint:enable=protected-access
  count = _RunCount(mean, shape)
  if count.is_one:
    return run
  directions = [_Selection(_Profile(remove, add), count)]
  if add is not remove:
    directions.append(_Selection(_Profile(add, remove), count))

  reach = max(_reach(selection.delta) for selection in directions)
  points = reach * np.linspace(0, 1, _SELECTION_POINTS) ** 1.5
  rounded = np.unique(np.ceil(points / value_discretization_interval))
  deltas = [
    selection.delta(rounded * value_discretization_interval)
    for selection in directions
  ]
  pmfs = [
    _connect_the_dots(forward, reverse, rounded, value_discretization_interval)
    for forward, reverse in zip(deltas, deltas[::-1], strict=True)
  ]
  return privacy_loss_distribution.PrivacyLossDistribution(*pmfs)


class RepeatAndSelectPLDAccountant(pld_privacy_accountant.PLDAccountant):
  """PLDAccountant that supports `RepeatAndSelectDpEvent`.

  The event of a run may be any event that the accountant supports, another
  `RepeatAndSelectDpEvent` included.
  """

  def _maybe_compose(
    self, event: dp_event.DpEvent, count: int, do_compose: bool
  ) -> CompositionErrorDetails | None:
    if not isinstance(event, dp_event.RepeatAndSelectDpEvent):
      return super()._maybe_compose(event, count, do_compose)
    try:
      _RunCount(event.mean, event.shape)
    except ValueError as error:
      return CompositionErrorDetails(
        invalid_event=event, error_message=str(error)
      )
    run = type(self)(
      self.neighboring_relation, self._value_discretization_interval
    )
    error = run._maybe_compose(event.event, 1, do_compose)
    if error is not None or not do_compose:
      return error
    if run._contains_non_dp_event:
      self._contains_non_dp_event = True
    elif count > 0:
      selection = from_repeat_and_select(
        run._pld, event.mean, event.shape, self._value_discretization_interval
      )
      self._pld = self._pld.compose(selection.self_compose(count))
    return None


class _RunCount:
  """The law of T. See Definition 1 of https://arxiv.org/abs/2110.03620.

  Attributes:
    mean: The expectation of T.
    prob_zero: The probability of T = 0, in which case nothing is released.
    is_one: Whether T is 1.
    rounding: A bound on the relative error of `derivative`.
  """

  def __init__(self, mean: float, shape: float):
    # The same values as RdpAccountant takes.
    if math.isnan(shape) or shape < 0:
      raise ValueError(f'shape must be at least 0. Got {shape}.')
    if not 1 <= mean < math.inf:
      raise ValueError(f'mean must be finite and at least 1. Got {mean}.')
    self.mean = mean
    self._shape = shape
    self.prob_zero = 0.0
    self.is_one = mean == 1 and shape < math.inf
    self.rounding = 1e-12 * mean
    if shape == math.inf:
      self.prob_zero = math.exp(-mean)
    elif not self.is_one:
      self._log_gamma = _log_gamma_of_mean(mean, shape)
      # The bound is that of gamma, of which the mean is a function.
      self.mean = math.exp(_log_mean_of_gamma(self._log_gamma, shape))
      self.rounding *= 1 + shape

  def derivative(self, s: np.ndarray) -> np.ndarray:
    """Returns phi'(s), for s in [0, 1]."""
    if self._shape == math.inf:
      return self.mean * np.exp(-self.mean * (1 - s))
    # phi'(s) = mean (gamma / (1 - (1 - gamma) s))^(shape + 1)
    odds = math.expm1(-self._log_gamma)
    return self.mean * np.exp(-(self._shape + 1) * np.log1p(odds * (1 - s)))


def _log_mean_of_gamma(log_gamma: float, shape: float) -> float:
  # The mean is shape (1 - gamma) / (gamma (1 - gamma^shape)), and its limit
  # where shape is 0.
  norm = -math.expm1(shape * log_gamma) / shape if shape > 0 else -log_gamma
  return math.log(-math.expm1(log_gamma)) - log_gamma - math.log(norm)


def _log_gamma_of_mean(mean: float, shape: float) -> float:
  def excess(log_gamma: float) -> float:
    return _log_mean_of_gamma(log_gamma, shape) - math.log(mean)

  # The mean falls from infinity to 1 as gamma grows from 0 to 1.
  lower, upper = -1.0, -1e-12
  while excess(lower) < 0:
    lower *= 2
  if excess(upper) > 0:
    return upper
  return optimize.brentq(excess, lower, upper, xtol=1e-300, rtol=1e-14)


class _Profile:
  """Hockey-stick divergences of one run in one direction, at every epsilon."""

  def __init__(self, forward: pld_pmf.PLDPmf, reverse: pld_pmf.PLDPmf):
    """Reads the distributions.

    Args:
      forward: The privacy loss in this direction.
      reverse: The privacy loss in the other direction.
    """
    # They are read at epsilon >= 0. Below 0, small probabilities and their
    # errors are multiplied by large numbers.
    reach = max(_reach(_stick(pmf)) for pmf in (forward, reverse))
    x = np.linspace(0, reach, _RUN_POINTS)
    deltas = _stick(forward)(x), _stick(reverse)(x)
    # Each bounds the total variation distance.
    deltas[0][0] = deltas[1][0] = min(deltas[0][0], deltas[1][0])
    self._x = np.concatenate([-x[:0:-1], x])
    self._h = _both_sides(x, *deltas)
    # For every t = e^-x, G(p) <= t p + H'(-x), where H' is the other
    # direction's divergence. Each of these lines is an upper bound.
    self._slope = np.exp(-self._x)
    self._height = _both_sides(x, *deltas[::-1])[::-1]
    rise, fall = np.diff(self._height), -np.diff(self._slope)
    self._meet = np.maximum.accumulate(rise / fall)

  def delta(self, x: np.ndarray) -> np.ndarray:
    """Returns an upper bound of H(x), x real."""
    # H is convex in t = e^x. So it is below its chords, with H = 1 at t = 0.
    inside = np.clip(x, self._x[0], self._x[-1])
    i = np.searchsorted(self._x, inside, side='right') - 1
    i = np.minimum(i, self._x.size - 2)
    weight = np.expm1(inside - self._x[i]) / np.expm1(
      self._x[i + 1] - self._x[i]
    )
    h = self._h[i] + weight * (self._h[i + 1] - self._h[i])
    before = np.exp(np.minimum(x - self._x[0], 0))
    return np.where(x < self._x[0], 1 - before * (1 - self._h[0]), h)

  def trade_off(self, p: np.ndarray) -> np.ndarray:
    """Returns an upper bound of G(p)."""
    # The lowest line is the one between the points where it meets its
    # neighbors. Where rounding hides it, a neighbor is as valid.
    i = np.searchsorted(self._meet, p)
    lines = [
      self._slope[k] * p + self._height[k]
      for k in (np.maximum(i - 1, 0), i, np.minimum(i + 1, self._meet.size))
    ]
    return np.minimum(np.min(lines, axis=0), 1)


def _stick(pmf: pld_pmf.PLDPmf) -> Callable[[np.ndarray], np.ndarray]:
  def delta(x: np.ndarray) -> np.ndarray:
    # Divergences do not increase, so their bounds need not either.
    values = np.asarray(pmf.get_delta_for_epsilon(x)) + _ROUNDING
    return np.minimum.accumulate(np.clip(values, 0, 1))

  return delta


def _both_sides(
  x: np.ndarray, forward: np.ndarray, reverse: np.ndarray
) -> np.ndarray:
  """Returns the forward divergence at -x, without 0, and at x >= 0."""
  below = -np.expm1(-x) + np.exp(-x) * reverse
  return np.concatenate([below[:0:-1], forward])


def _reach(delta: Callable[[np.ndarray], np.ndarray]) -> float:
  """Returns an epsilon beyond which delta falls by less than _TAIL."""
  x = np.geomspace(0.1, _LARGEST_EPSILON, 200)
  values = delta(x)
  return float(x[np.argmax(values - values[-1] <= _TAIL)])


class _Selection:
  """Hockey-stick divergences of the selection in one direction.

  They are Phi(inf) + sum_i w_i H(eps - log s_i), besides T = 0.
  """

  def __init__(self, run: _Profile, count: _RunCount):
    self._run = run
    p = _grid(run, count)
    gain = count.derivative(1 - p[:-1]) * (1 + count.rounding)
    cost = count.derivative(1 - run.trade_off(p[1:])) * (1 - count.rounding)
    # Both do not increase with p. So within a cell the gain is at most that at
    # its left end, and the cost at least that at its right end.
    cost = np.maximum(np.minimum.accumulate(cost), 0)
    self._floor, self._weights, kinks = _hinges(gain, cost)
    self._shifts = np.log(kinks)

  def delta(self, epsilon: np.ndarray) -> np.ndarray:
    """Returns an upper bound, for epsilon >= 0, where T = 0 adds nothing."""
    result = np.empty(epsilon.size)
    rows = max(1, _AT_ONCE // max(1, self._shifts.size))
    for start in range(0, epsilon.size, rows):
      part = slice(start, start + rows)
      sticks = self._run.delta(epsilon[part, None] - self._shifts)
      result[part] = sticks @ self._weights
    result = np.clip(result * (1 + 1e-12) + self._floor, 0, 1)
    return np.minimum.accumulate(result)


def _grid(run: _Profile, count: _RunCount) -> np.ndarray:
  """Returns 0 = p_0 < ... < p_n = 1 with little change of phi' in a cell.

  Every such grid gives a bound.
  """
  ends = np.geomspace(1e-30, 0.1, 300)
  p = np.unique(
    np.concatenate([[0, 1], ends, 1 - ends, np.linspace(0, 1, 100)])
  )
  p = p[(p >= 0) & (p <= 1)]
  least = _NEGLIGIBLE * count.mean
  while p.size < _MAX_CELLS:
    gain = count.derivative(1 - p)
    cost = count.derivative(1 - run.trade_off(p))
    split = (gain[:-1] > (1 + _STEP) * gain[1:]) & (gain[:-1] > least)
    split |= (cost[:-1] > (1 + _STEP) * cost[1:]) & (gain[:-1] > least)
    # Cells of a width that rounding can still divide.
    split &= (p[1:] - p[:-1] > 1e-14 * p[1:]) & (p[:-1] > 0)
    if not split.any():
      break
    left, right = p[:-1][split], p[1:][split]
    middle = np.where(
      right > 4 * left, np.sqrt(left * right), (left + right) / 2
    )
    p = np.unique(np.concatenate([p, middle]))
  return p


def _hinges(
  gain: np.ndarray, cost: np.ndarray
) -> tuple[float, np.ndarray, np.ndarray]:
  """Returns floor, w and s of an envelope.

  The largest of gain_i - cost_i t and 0 is floor + sum_i w_i max(0, 1 - t/s_i),
  for every t >= 0.
  """
  order = np.lexsort((-gain, cost))
  gain, cost = gain[order], cost[order]
  # Of several lines with less gain and more cost none shows.
  best = np.maximum.accumulate(np.concatenate([[-1.0], gain[:-1]]))
  gain, cost = gain[gain > best], cost[gain > best]
  floor = float(gain[0]) if cost[0] == 0 else 0.0
  if cost[0] > 0:
    gain, cost = np.append(0.0, gain), np.append(0.0, cost)
  hull: list[int] = []
  for k in range(gain.size):
    while len(hull) > 1:
      i, j = hull[-2:]
      # Left turns are dropped: the hull is concave.
      if (gain[j] - gain[i]) * (cost[k] - cost[j]) > (gain[k] - gain[j]) * (
        cost[j] - cost[i]
      ):
        break
      hull.pop()
    hull.append(k)
  weights, fall = np.diff(gain[hull]), np.diff(cost[hull])
  return floor, weights, weights / fall


def _connect_the_dots(
  forward: np.ndarray,
  reverse: np.ndarray,
  rounded: np.ndarray,
  interval: float,
) -> pld_pmf.PLDPmf:
  """Returns the distribution through a profile.

  Args:
    forward: The divergences in this direction.
    reverse: The divergences in the other direction.
    rounded: The epsilons of both, divided by the interval, from 0 on.
    interval: The discretization interval.
  """
  both = np.minimum(forward[0], reverse[0])
  forward, reverse = np.minimum(forward, both), np.minimum(reverse, both)
  x = rounded * interval
  return pld_pmf.create_pmf_pessimistic_connect_dots(
    interval,
    np.concatenate([-rounded[:0:-1], rounded]),
    np.minimum.accumulate(_both_sides(x, forward, reverse)),
  )
