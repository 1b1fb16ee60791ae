"""The privacy profile of selection whose policy sees only the private outputs of earlier runs.

The theorem and its proof are our own: ``docs/explanation/history-bound.md``. For one direction of
adjacency, a dominating pair (O, O') of one run, a law of T and densities in [c, C],

    delta_A(eps) <= E_{L ~ O}[ Phi(e^(eps - L)); L < inf ] + E[T] O{L = inf}
                    + P[T = 0] (1 - e^eps)_+,
    Phi(t) = sup_p [ V1_1(1, t) ]_+,
    V2_k = P[T=k] (a - b) + K V2_{k+1},
    V1_k = max(C V2_k, c V2_k) + K V1_{k+1},

where K removes from O (without its infinite losses) the best part, of mass u in [lo(p), hi(p)],
of its lowest losses.

===========  ===============================  ================================================
code         notation                         meaning
===========  ===============================  ================================================
``after``    V2_k                             value once y is among the first k outputs
``before``   V1_k                             value while no run has put out y yet
``head``     N                                runs treated one by one; the rest by a bound
``missing``  P[T > N]                         probability of T that is charged to delta
``envelope`` Phi(t_i)                         at the grid's t_i
===========  ===============================  ================================================
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from optuna_dp import validation
from optuna_dp.accounting.bounds import smallest_epsilon
from optuna_dp.accounting.dominating_pairs import DominatingPair
from optuna_dp.arrays import FloatArray
from optuna_dp.errors import InvalidArgumentError
from optuna_dp.private_selection.bounds.history_kernel import SLACK, HistoryGrid, Removal, Values
from optuna_dp.private_selection.bounds.history_stationary import solve_stationary
from optuna_dp.private_selection.trial_counts.base import TrialCount
from optuna_dp.private_selection.trial_counts.negative_binomial import NegativeBinomial

STEP = 0.01
"""Change of log phi'(1 - p) over one interval of p, where it matters."""

POINTS_PER_SPREAD = 8.0
"""Grid points per root mean square of the run's privacy loss."""

_NEGLIGIBLE_TAIL = 1e-15
# Relative rounding of P[T = k], taken outward.
_PMF_ROUNDING = 1e-12
# Of E[T], what the runs after the head of a negative binomial law may carry.
_TAIL_SHARE = 0.003
_MAX_HEAD = 3000
# Runs treated one by one at most where no bound for the rest is at hand: P[T > N] is charged.
_MAX_RUNS = 2000
# A bound that charges more than this is not worth its time: the profile bound is smaller by then.
_LARGEST_CHARGE = 1e-3
# A cap that is reached less often than this is treated as no cap: see _law.
_NEVER = 1e-42
_LARGEST_EPSILON = 60.0
# Seconds that one recursion may take by a rough estimate before its grids are made coarser.
_PATIENCE = 2.0
_LARGEST_SCALE = 0.6
_MAX_EXTENSIONS = 4


class HistoryProfile:
    """Upper bound on the privacy profile of a selection by a history-only policy, one direction.

    Implements the theorem of ``docs/explanation/history-bound.md``, whose conditions the caller
    guarantees: the policy is a function of earlier outputs (those of completed batches, fixed by
    slot numbers) and of data-independent randomness. The guarantee of a selection needs both
    directions: the larger of the profiles built from ``pair`` and from ``pair.reversed()``.

    Guarantees:
        * ``delta(eps)`` is at least the hockey-stick divergence at e^eps of the released output,
          for every real eps, every law of T and every such policy, on every grid: coarser grids
          are larger, never wrong.
        * The result lies in [0, 1], does not increase with eps and is never NaN.
        * A run that does not depend on the data costs exactly nothing.
        * ``epsilon(d)`` returns the safe side: ``delta(epsilon(d)) <= d``.

    Args:
        pair: Dominates one run, whatever its hyperparameters, in this direction.
        trials: The law of T.
        density_bounds: (c, C), with 0 < c <= 1 <= C.
        step: Change of log phi'(1 - p) over one interval of p; the excess is proportional to it.
        points_per_spread: Grid points per root mean square of the loss; the excess falls with
            its square.

    Attributes:
        shape: (intervals of p, grid points, taps) that were used; zeros if none were needed.
        missing: P[T > N] where the recursion stopped at N, contained in every delta.
        gave_up: Whether the law was too long for this bound, so that it says nothing (delta 1).
    """

    def __init__(
        self,
        pair: DominatingPair,
        trials: TrialCount,
        density_bounds: tuple[float, float] = (1.0, 1.0),
        *,
        step: float = STEP,
        points_per_spread: float = POINTS_PER_SPREAD,
    ) -> None:
        c, big_c = validation.density_bounds(density_bounds)
        step = validation.positive("step", step)
        points_per_spread = validation.positive("points_per_spread", points_per_spread)
        self._pair = pair
        self._none = float(trials.pmf(0))
        self.missing = 0.0
        self.shape = (0, 0, 0)
        self.gave_up = False
        self._farthest = 1e4
        # Some run has an output of infinite loss: at most E[T] times the chance that one has.
        self._hit = min(trials.mean * pair.infinite_mass, 1.0 - self._none)
        positive = pair.mass > 0.0
        if not np.any(positive):
            # All loss is infinite: nothing is protected as soon as there is a run.
            self._set(np.zeros(1), np.zeros(1))
            return
        if pair.infinite_mass == 0.0 and np.all(pair.losses[positive] == 0.0):
            # The runs have one law on both datasets, and so has any function of them.
            self._set(np.array([0.0, 1.0]), np.array([1.0 - self._none, 0.0]))
            return
        self._law, self._trials, self._bounds = _law(trials), trials, (c, big_c)
        self.missing = self._law.missing
        if trials.uncapped is not trials:
            self._farthest = _LARGEST_EPSILON
        if self.missing > _LARGEST_CHARGE:
            self._give_up()
            return
        # A pair without finite losses other than zero is at home on any scale.
        spread = math.sqrt(float(np.sum(pair.mass * pair.losses**2))) or 1.0
        # V bends on the scale of the losses, and of 1 as a function of log t.
        scale = min(spread, _LARGEST_SCALE)
        left = right = 8.0 * scale + 4.0 * (spread - scale)
        # Beyond the grid Phi is bounded by its last value: find out, coarsely, where it stops
        # falling.
        for _ in range(_MAX_EXTENSIONS):
            grid, values = self._solve(8.0 * step, scale / 4.0, left, right, 0.1 * _PATIENCE)
            ends = np.maximum(values.inner[:, [0, grid.size // 16]].max(axis=0), 0.0)
            if ends[0] <= 1e-13 or ends[0] > 0.999 * ends[1]:
                break
            left *= 1.6
        grid, values = self._solve(step, scale / points_per_spread, left, right, _PATIENCE)
        envelope = np.maximum(values.inner.max(axis=0), 0.0)
        self.shape = (values.right.size, grid.size, grid.taps.size)
        top = max(float(values.right.max()), 0.0)
        self._set(
            np.concatenate([[0.0], grid.t[::-1]]),
            np.concatenate([[top], envelope[::-1]]) * (1.0 + SLACK),
        )

    def _solve(
        self, step: float, spacing: float, left: float, right: float, patience: float
    ) -> tuple[HistoryGrid, Values]:
        """Returns V1_1 and its grid, both coarser than asked for if it would take too long."""
        c, big_c = self._bounds
        grid = HistoryGrid(self._pair, spacing, left, right)
        intervals = _intervals(self._trials, c, big_c, step)
        coarser = _coarsening(grid, self._law, intervals[0].size, patience)
        if coarser > 1.0:
            grid = HistoryGrid(self._pair, grid.spacing * coarser, left, right)
            intervals = _intervals(self._trials, c, big_c, step * coarser)
        return grid, _recursion(Removal(grid, *intervals), self._law, c, big_c)

    def _give_up(self) -> None:
        """The bound that holds always, at once."""
        self.gave_up = True
        self.missing = 1.0
        self._set(np.zeros(1), np.zeros(1))

    def _set(self, knots: FloatArray, heights: FloatArray) -> None:
        # Phi does not increase; rounding must not let it.
        self._knots = knots
        self._heights = np.maximum.accumulate(heights[::-1])[::-1]

    def phi(self, t: npt.ArrayLike) -> FloatArray:
        """Returns the envelope that is used, an upper bound on Phi(t) for each t >= 0.

        Chords of a convex function between the grid points; constant beyond the last, since Phi
        does not increase.
        """
        at = np.asarray(t, dtype=np.float64)
        return np.asarray(np.interp(at, self._knots, self._heights), dtype=np.float64)

    def delta(self, epsilons: npt.ArrayLike) -> FloatArray:
        """Returns the bound on delta at each epsilon (any real number; same shape)."""
        eps = np.asarray(epsilons, dtype=np.float64)
        if np.any(np.isnan(eps)):
            raise InvalidArgumentError("epsilons", epsilons, "they must not be NaN")
        flat = np.clip(eps.reshape(-1), -1e4, self._farthest)
        pair = self._pair
        out = np.empty(flat.size)
        chunk = max(1, 2_000_000 // max(1, pair.losses.size))
        for start in range(0, flat.size, chunk):
            gap = flat[start : start + chunk, None] - pair.losses[None, :]
            out[start : start + chunk] = self.phi(np.exp(np.minimum(gap, 700.0))) @ pair.mass
        # A pair is normalised up to rounding; O-mass that is missing counts as infinite loss.
        out += max(0.0, 1.0 - pair.infinite_mass - float(pair.mass.sum())) * self._heights[0]
        out += self._hit + self.missing + self._none * -np.expm1(np.minimum(flat, 0.0))
        return np.clip(out * (1.0 + SLACK), 0.0, 1.0).reshape(eps.shape)

    def epsilon(self, delta: float) -> float:
        """Returns an epsilon >= 0 with ``delta(epsilon) <= delta``; ``inf`` if there is none."""
        return smallest_epsilon(self.delta, validation.open_unit("delta", delta))


@dataclass(frozen=True)
class _Law:
    """P[T = k] for k = 1..head, and bounds on the ratios of what follows.

    With ``low`` = ``high`` = 0 nothing follows but ``missing`` = P[T > head]. Otherwise
    low <= P[T=k+1]/P[T=k] <= high < 1 for every k >= head.
    """

    pmf: FloatArray
    low: float
    high: float
    missing: float

    @property
    def head(self) -> int:
        return self.pmf.size


def _law(trials: TrialCount) -> _Law:
    base = trials.uncapped
    if base is not trials and base.tail((trials.maximum or 0) - 1) <= _NEVER:
        # min(T, n) and T are alike but for P[T >= n], which moves A - e^eps A' by at most
        # (1 + e^eps) P[T >= n]: nothing up to an epsilon of 60, and what holds there holds above.
        law = _law(base)
        return _Law(law.pmf, law.low, law.high, law.missing + _NEVER * math.exp(61.0))
    if isinstance(trials, NegativeBinomial) and trials.gamma < 1.0:
        z, eta = 1.0 - trials.gamma, trials.shape
        head = 1 if eta == 1.0 else _head_of(trials)
        ratio = z * (head + eta) / (head + 1.0)
        # Ratios are monotone in k, from `ratio` towards z.
        low, high = min(ratio, z), max(ratio, z)
        if high < 1.0 - 1e-9 and low > 0.0:
            return _Law(_pmf(trials, head), low, high, 0.0)
    head = min(_last_that_counts(trials), _MAX_RUNS)
    return _Law(_pmf(trials, head), 0.0, 0.0, float(trials.tail(head)))


def _coarsening(grid: HistoryGrid, law: _Law, rows: int, patience: float) -> float:
    """Returns by how much the grids must be coarser for long laws and wide losses (1 if none)."""
    cells = float(rows * grid.size)
    seconds = (law.head - 1) * cells * (grid.used.size + 24) / 3e8
    if law.high > 0.0:
        lower, upper = (min(pad, grid.size) for pad in (grid.pad_left, grid.pad_right))
        seconds += cells * (lower + 8) * (lower + upper) / 3e8
    return float(max(1.0, (seconds / patience)) ** (1.0 / 3.0))


def _pmf(trials: TrialCount, head: int) -> FloatArray:
    return trials.pmf(np.arange(1, head + 1))


def _head_of(trials: NegativeBinomial) -> int:
    """Returns a head after which little of E[T] is left (any head is sound)."""
    head = 8
    # E[T; T > n] = n P[T > n] + the sum of later tails, at most about n + 1/gamma of them.
    while head < _MAX_HEAD:
        left = float(trials.tail(head)) * (head + 1.0 / trials.gamma)
        growing = (1.0 - trials.gamma) * (head + trials.shape) / (head + 1.0)
        if left <= _TAIL_SHARE * trials.mean and growing < 1.0:
            break
        head = int(1.25 * head) + 1
    return min(head, _MAX_HEAD)


def _last_that_counts(trials: TrialCount) -> int:
    """Returns N with P[T > N] negligible, at most the largest possible T."""
    high = 1
    while float(trials.tail(high)) > _NEGLIGIBLE_TAIL and high < 10**7:
        high *= 2
    low = high // 2
    while high - low > 1:
        middle = (low + high) // 2
        if float(trials.tail(middle)) > _NEGLIGIBLE_TAIL:
            low = middle
        else:
            high = middle
    return high


def _intervals(
    trials: TrialCount, c: float, big_c: float, step: float
) -> tuple[FloatArray, FloatArray]:
    """Returns (1 - lo(p1), 1 - hi(p2)) of intervals [p1, p2] that cover [0, 1].

    Any cover is sound; this one spends its intervals where phi'(1 - p) falls to e^-3 of phi'(1),
    which is where the supremum over p is attained.
    """
    dense, fall = _fall(trials)
    end = min(float(fall[-1]), 16.0)
    wanted = np.concatenate([np.arange(0.0, min(3.0, end), step), np.arange(3.0, end, 4.0 * step)])
    # Where the law hardly reacts to p, intervals are short on the scale of p itself.
    edges = np.interp(wanted, fall, dense)
    coarse = np.concatenate([np.linspace(0.0, 0.5, 9), 1.0 - 0.5 ** np.arange(1, 15), [1.0]])
    p = np.unique(np.clip(np.concatenate([edges, coarse]), 0.0, 1.0))
    first, last = p[:-1], p[1:]
    keep_most = np.minimum(1.0 - c * first, big_c * (1.0 - first))
    keep_least = np.maximum(np.maximum(1.0 - big_c * last, c * (1.0 - last)), 0.0)
    return keep_most, keep_least


@functools.lru_cache(maxsize=8)  # Long laws take a quarter of a second.
def _fall(trials: TrialCount) -> tuple[FloatArray, FloatArray]:
    """Returns points p in [0, 1], and log phi'(1) - log phi'(1 - p) there, at most 40."""
    dense = np.concatenate([[0.0], np.logspace(-14.0, 0.0, 2801)])
    with np.errstate(divide="ignore"):
        fall = np.log(trials.mean) - np.log(np.asarray(trials.pgf_derivative(1.0 - dense)))
    return dense, np.maximum.accumulate(np.clip(np.nan_to_num(fall, posinf=40.0), 0.0, 40.0))


def _recursion(removal: Removal, law: _Law, c: float, big_c: float) -> Values:
    """Returns V1_1 on the grid."""
    grid = removal.grid
    unit = _unit(grid, removal.keep_right.size)
    head = law.head
    weight = float(law.pmf[-1])
    if law.high > 0.0:
        after = solve_stationary(removal, unit, law.low, law.high)
        before = solve_stationary(removal, _winner(after, c, big_c), law.low, law.high)
        after, before = _scaled(after, weight), _scaled(before, weight)
    else:
        after = _scaled(unit, weight)
        before = _winner(after, c, big_c)
    # Both in one step: where steps are small, what numpy does besides the sums is most of it.
    rows = unit.right.size
    twice = removal.take(np.tile(np.arange(rows), 2))
    for k in range(head - 1, 0, -1):
        moved = twice.apply(after.joined(before))
        after = _added(_scaled(unit, float(law.pmf[k - 1])), moved.take(slice(rows)))
        before = _added(_winner(after, c, big_c), moved.take(slice(rows, None)))
    return before


def _unit(grid: HistoryGrid, rows: int) -> Values:
    """Returns a - b, widened by the rounding of the probabilities of T that multiply it."""
    more, less = 1.0 + _PMF_ROUNDING, 1.0 - _PMF_ROUNDING
    return Values(
        np.broadcast_to(more - less * grid.t, (rows, grid.size)),
        np.full(rows, -less),
        np.full(rows, more),
    )


def _winner(values: Values, c: float, big_c: float) -> Values:
    """Returns max(C V, c V): the density of the run that puts out y, at its worst."""
    inner = np.maximum(big_c * values.inner, c * values.inner)
    return Values(inner, c * values.left, big_c * values.right)


def _scaled(values: Values, factor: float) -> Values:
    return Values(factor * values.inner, factor * values.left, factor * values.right)


def _added(one: Values, other: Values) -> Values:
    return Values(one.inner + other.inner, one.left + other.left, one.right + other.right)
