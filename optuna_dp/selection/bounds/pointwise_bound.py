"""The privacy profile of selection whose policy sees only the private outputs of earlier runs.

The theorem and its proof are our own: ``docs/explanation/history-bound.md``. For one direction
of adjacency, a dominating pair (O, O') of one run, a law of T and densities in [c, C], of which
the first ``startup_runs`` slots make no use,

    delta_A(eps) <= E_{L ~ O}[ Phi(e^(eps - L)); L < inf ] + E[T] O{L = inf}
                    + P[T = 0] (1 - e^eps)_+,
    Phi(t) = sup over k0 of [ V1_1(1, t) ]_+,
    V2_k = P[T=k] (a - b) + K_{k+1} V2_{k+1},
    V1_k = max(C_k V2_k, c_k V2_k) + K_k V1_{k+1},

where K_k keeps an atom of loss l with weight 1 - lo_k(k0(l)) if V is positive there and with
1 - hi_k(k0(l)) if it is negative. Slot k has c_k = C_k = 1 and lo_k = hi_k = k0 if it is one of
the start-up runs. The supremum is over step functions with three steps, covered by cells.

=============  ===============================  =============================================
code           notation                         meaning
=============  ===============================  =============================================
``v2``         V2_k                             value once y is among the first k outputs
``v1``         V1_k                             value while no run has put out y yet
``head``       N                                runs treated one by one; the rest by a bound
``missing``    P[T > N]                         probability of T that is charged to delta
``knots``      t_i                              the grid's t, rising
``heights``    Phi(t_i)                         upper bounds there, chords in between
=============  ===============================  =============================================
"""

from __future__ import annotations

import functools
import math
import threading
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from threadpoolctl import threadpool_limits

from optuna_dp.accounting.bounds import ProfileMethod, smallest_epsilon
from optuna_dp.accounting.dominating_pairs import DominatingPair
from optuna_dp.core import validation
from optuna_dp.core.arrays import FloatArray, IntArray
from optuna_dp.errors import InvalidArgumentError
from optuna_dp.selection.bounds.pointwise_grid import FEW_LOSSES, SLACK, LossGrid, Values
from optuna_dp.selection.bounds.pointwise_kernel import CellKernels, Kernel
from optuna_dp.selection.bounds.pointwise_search import Axis, Cells, search
from optuna_dp.selection.bounds.pointwise_stationary import solve_stationary
from optuna_dp.selection.bounds.profile_bound import DataProfile
from optuna_dp.selection.laws.base import TrialCount

CELLS = 1200
"""Cells that a search evaluates."""

POINTS_PER_SPREAD = 6.0
"""Grid points per root mean square of the run's privacy loss."""

# Multiplications that a search may take, once it has evaluated the fewest cells.
_WORK = 8e8
_FEWEST_CELLS = 120
# So many cells are worth a grid that is wider by this factor; for the fewest, it is wider yet.
_ENOUGH_CELLS = 600
_WIDER = 1.5
# The direction whose run has the larger epsilon at this delta is searched. The other one has few
# cells at first, if its epsilon is smaller by so much that these may suffice.
_COMPARED_AT = 1e-5
_SMALLER = 0.95
_COARSE_CELLS = 48
# What numpy does beside each sum and each step, and what LAPACK saves, in multiplications.
_OVERHEAD = 24
_WORK_OF_A_STEP = 1.5e5
_SOLVED_AT_ONCE = 8
# A cover is searched for one of these numbers of start-up runs, and serves for those above.
_RUNGS = (0, 8)
# Start-up runs that the recursion follows: more are charged as these.
_MAX_STARTUP = 64
# Cells evaluated at a time: their kernels must fit into the memory.
_ROWS = 64
_NEGLIGIBLE_TAIL = 1e-15
# Relative rounding of P[T = k], taken outward.
_PMF_ROUNDING = 1e-12
# By how much of what a cell keeps of E[T] the bounds on late ratios may miss it, and may miss it
# while a cover is searched.
_TAIL = 0.003
_ROUGH_TAIL = 0.1
# For pairs of few losses, whose epsilon moves in leaps and whose steps take little work.
_ROUGH_TAIL_OF_FEW = 0.01
_MORE_WORK_FOR_FEW = 4.0
_MAX_HEAD = 3000
# Runs treated one by one at most where no bound for the rest is at hand: P[T > N] is charged.
_MAX_RUNS = 2000
# A bound that charges more than this is not worth its time: the profile bound is smaller by then.
_LARGEST_CHARGE = 1e-3
# A cap that is reached less often than this is treated as no cap: see law_of.
_NEVER = 1e-42
_LARGEST_EPSILON = 60.0
_LARGEST_SCALE = 0.6
_MAX_EXTENSIONS = 4


class PointwiseProfile:
    """Upper bound on the privacy profile of a selection by a history-only policy, one direction.

    Implements the theorem of ``docs/explanation/history-bound.md``, whose conditions the caller
    guarantees: the policy is a function of earlier outputs (those of completed batches, fixed by
    slot numbers) and of data-independent randomness; the first ``startup_runs`` slots draw from
    the prior itself. The guarantee of a selection needs both directions:
    :func:`pointwise_bound`.

    Guarantees:
        * ``delta(eps)`` is at least the hockey-stick divergence at e^eps of the released output,
          for every real eps, every law of T and every such policy, for any number of cells and on
          every grid: fewer cells and coarser grids are larger, never wrong.
        * The result lies in [0, 1], does not increase with eps and is never NaN.
        * A run that does not depend on the data costs exactly nothing.
        * More start-up runs never cost more, up to rounding; from 7 to 8, where the cover
          changes, up to what a search leaves.
        * The same result on every machine: work is counted, not timed.
        * ``epsilon(d)`` returns the safe side: ``delta(epsilon(d)) <= d``.

    Args:
        pair: Dominates one run, whatever its hyperparameters, in this direction.
        trials: The law of T.
        density_bounds: (c, C), with 0 < c <= 1 <= C, of the slots after the start-up runs.
        startup_runs: How many slots draw from the prior, at least 0.
        cells: How many cells a search may evaluate, at least 1; at least 24 are.
        points_per_spread: Grid points per root mean square of the loss; the excess falls with
            its square.
        cover: Cells to take, as :attr:`cover` of another profile of the same law; None searches.

    Attributes:
        cover: The cells that were used; None if none were needed.
        shape: (cells, grid points, taps) that were used; zeros if none were needed.
        missing: P[T > N] where the recursion stopped at N, contained in every delta.
        gave_up: Whether the law was too long for this bound, so that it says nothing (delta 1).
    """

    def __init__(
        self,
        pair: DominatingPair,
        trials: TrialCount,
        density_bounds: tuple[float, float] = (1.0, 1.0),
        *,
        startup_runs: int = 0,
        cells: int = CELLS,
        points_per_spread: float = POINTS_PER_SPREAD,
        cover: Cells | None = None,
    ) -> None:
        self._bounds = validation.density_bounds(density_bounds)
        startup_runs = validation.whole("startup_runs", startup_runs, 0)
        cells = validation.whole("cells", cells, 1)
        points_per_spread = validation.positive("points_per_spread", points_per_spread)
        self._pair, self._trials = pair, trials
        self._none = float(trials.pmf(0))
        self.missing = 0.0
        self.shape = (0, 0, 0)
        self.gave_up = False
        self._farthest = 1e4
        self.cover = cover
        # Some run has an output of infinite loss: at most E[T] times the chance that one has.
        self._hit = min(trials.mean * pair.infinite_mass, 1.0 - self._none)
        # Once start-up runs cover T, it is selection from the prior.
        self._late = float(trials.tail(startup_runs))
        self._plain = DataProfile(pair, trials) if startup_runs and self._late < 1e-2 else None
        positive = pair.mass > 0.0
        if not np.any(positive):
            # All loss is infinite: nothing is protected as soon as there is a run.
            self._set(np.zeros(1), np.zeros(1))
            return
        if pair.infinite_mass == 0.0 and np.all(pair.losses[positive] == 0.0):
            # The runs have one law on both datasets, and so has any function of them.
            self._set(np.array([0.0, 1.0]), np.array([1.0 - self._none, 0.0]))
            return
        self._startup = min(startup_runs, _MAX_STARTUP, _last_that_counts(trials))
        # Of a cell whose runs are beaten once in about E[T]: cells that matter are like this.
        typical = heads_of(trials, np.array([trials.mean / (1.0 + trials.mean)]), _TAIL)
        # The grids and the cover are those of a rung: more start-up runs never cost more.
        rung = max(rung for rung in _RUNGS if rung <= self._startup)
        self._law = law_of(trials, max(int(typical[0]), rung + 1))
        self.missing = self._law.missing
        if trials.uncapped is not trials:
            self._farthest = _LARGEST_EPSILON
        if self.missing > _LARGEST_CHARGE:
            # The bound that holds always, at once.
            self.gave_up, self.missing = True, 1.0
            self._set(np.zeros(1), np.zeros(1))
            return
        # A pair without finite losses other than zero is at home on any scale.
        deviation = math.sqrt(float(np.sum(pair.mass * pair.losses**2))) or 1.0
        # V bends on the scale of the losses, and of 1 as a function of log t.
        scale = min(deviation, _LARGEST_SCALE)
        left = right = 8.0 * scale + 4.0 * (deviation - scale)
        # Beyond the grid Phi is bounded by its last value: find out, coarsely, where it stops
        # falling.
        axis = Axis(trials)
        evaluation = functools.partial(_Evaluation, trials, self._bounds, axis)
        for _ in range(_MAX_EXTENSIONS):
            coarse = evaluation(LossGrid(pair, scale / 4.0, left, right), self._startup, 1.0)
            knots, heights = coarse.phi(coarse(axis.everything()))
            last_value, earlier_value = heights[[-1, -1 - knots.size // 16]]
            if last_value <= 1e-13 or last_value > 0.999 * earlier_value:
                break
            left *= 1.6
        grid = LossGrid(pair, scale / points_per_spread, left, right)
        affordable = _WORK / _work(grid, self._law)
        if affordable < _FEWEST_CELLS:
            grid = LossGrid(
                pair, grid.spacing * math.sqrt(_FEWEST_CELLS / affordable), left, right
            )
        closely, values = evaluation(grid, self._startup, _TAIL), None
        if cover is None:
            rough_tail, work = _ROUGH_TAIL, _WORK
            if pair.losses.size <= FEW_LOSSES:
                rough_tail, work = _ROUGH_TAIL_OF_FEW, _MORE_WORK_FOR_FEW * _WORK
            rough, is_close = evaluation(grid, rung, rough_tail), affordable >= CELLS
            if not is_close:
                wider = LossGrid(pair, _WIDER * grid.spacing, left, right)
                rough = evaluation(wider, rung, rough_tail)
            cover, values = search(
                axis,
                rough.kernels,
                rough,
                lambda evaluated: (
                    evaluated < cells and (evaluated < _FEWEST_CELLS or rough.work < work)
                ),
            )
            if not is_close or rung < self._startup or self._law.low < self._law.high:
                values = None
        if values is None:
            values = closely(cover)
        self.cover = cover
        self.shape = (cover.low.shape[0], grid.size, grid.taps.size)
        self._set(*closely.phi(values))

    def _set(self, knots: FloatArray, heights: FloatArray) -> None:
        # Phi does not increase; rounding must not let it.
        self._knots = knots
        self._heights = np.maximum.accumulate(heights[::-1])[::-1]

    def phi(self, t: npt.ArrayLike) -> FloatArray:
        """Returns the envelope that is used, an upper bound on Phi(t) for each t >= 0.

        Chords of a convex function between the grid points; constant beyond the last, since Phi
        does not increase.
        """
        points = np.asarray(t, dtype=np.float64)
        return np.asarray(np.interp(points, self._knots, self._heights), dtype=np.float64)

    def delta(self, epsilons: npt.ArrayLike) -> FloatArray:
        """Returns the bound on delta at each epsilon (any real number; same shape)."""
        eps = np.asarray(epsilons, dtype=np.float64)
        if np.any(np.isnan(eps)):
            raise InvalidArgumentError("epsilons", epsilons, allowed="they must not be NaN")
        flat_eps = np.clip(eps.reshape(-1), -1e4, self._farthest)
        pair = self._pair
        deltas = np.empty(flat_eps.size)
        chunk = max(1, 2_000_000 // max(1, pair.losses.size))
        for start in range(0, flat_eps.size, chunk):
            gap = flat_eps[start : start + chunk, None] - pair.losses[None, :]
            deltas[start : start + chunk] = self.phi(np.exp(np.minimum(gap, 700.0))) @ pair.mass
        # A pair is normalised up to rounding; O-mass that is missing counts as infinite loss.
        deltas += max(0.0, 1.0 - pair.infinite_mass - float(pair.mass.sum())) * self._heights[0]
        deltas += self._hit + self.missing + self._none * -np.expm1(np.minimum(flat_eps, 0.0))
        if self._plain is not None:
            late = (1.0 + np.exp(np.minimum(flat_eps, 700.0))) * self._late
            deltas = np.minimum(deltas, self._plain.delta(flat_eps) + late)
        return np.clip(deltas * (1.0 + SLACK), 0.0, 1.0).reshape(eps.shape)

    def epsilon(self, delta: float) -> float:
        """Returns an epsilon >= 0 with ``delta(epsilon) <= delta``; ``inf`` if there is none."""
        return smallest_epsilon(self.delta, validation.open_unit("delta", delta))


class _Evaluation:
    """Bounds on V1_1 of cells, on one grid.

    Args:
        trials: The law of T.
        bounds: (c, C).
        axis: What the coordinates of the cells mean.
        grid: The grid.
        startup: How many start-up runs there are.
        tail_share: See :func:`heads_of`.

    Attributes:
        kernels: What makes the operators of cells.
        work: About how many multiplications it took so far.
    """

    def __init__(
        self,
        trials: TrialCount,
        bounds: tuple[float, float],
        axis: Axis,
        grid: LossGrid,
        startup: int,
        tail_share: float,
    ) -> None:
        self.kernels = CellKernels(grid, bounds)
        self.work = 0.0
        self._trials, self._bounds, self._axis, self._grid = trials, bounds, axis, grid
        self._startup, self._tail_share = startup, tail_share

    def __call__(self, cover: Cells) -> Values:
        """Returns the bounds on the grid."""
        grid, kernels, startup = self._grid, self.kernels, self._startup
        cells = cover.low.shape[0]
        values = Values(np.empty((cells, grid.size)), np.empty(cells), np.empty(cells))
        # Cells of similar p have similar solutions, and a solver begins at the last one.
        order = np.argsort(cover.low[:, 3], kind="stable")
        for start in range(0, cells, _ROWS):
            part = order[start : start + _ROWS]
            low = self._axis.quantiles(cover.low[part], kernels.finite_mass)
            high = self._axis.quantiles(cover.high[part], kernels.finite_mass)
            later = kernels.adaptive(low, high)
            plain = kernels.plain(low, high) if startup else later
            heads = heads_of(self._trials, later.keep_right, self._tail_share)
            for head in np.unique(heads):
                law = law_of(self._trials, max(int(head), startup + 1))
                rows = np.flatnonzero(heads == head)
                found = recursion(later.take(rows), plain.take(rows), law, self._bounds, startup)
                values.put(part[rows], found)
                self.work += rows.size * _work(grid, law) + law.head * _WORK_OF_A_STEP
        return values

    def phi(self, values: Values) -> tuple[FloatArray, FloatArray]:
        """Returns t, rising from zero, and upper bounds on Phi(t), from those of a cover."""
        heights = np.append(values.right.max(), values.inner.max(axis=0)[::-1])
        return np.append(0.0, self._grid.t[::-1]), np.maximum(heights, 0.0) * (1.0 + SLACK)


# What limits the threads of BLAS remembers how many there were: one at a time.
_ALONE = threading.Lock()


@functools.lru_cache(maxsize=32)
def pointwise_bound(
    pair: DominatingPair,
    trials: TrialCount,
    density_bounds: tuple[float, float],
    startup_runs: int = 0,
    cells: int = CELLS,
) -> ProfileMethod:
    """Returns the larger of the two directions, which is what a guarantee needs; cached.

    Args:
        pair: Dominates one run, forward; ``pair.reversed()`` in the other direction.
        trials: The law of T.
        density_bounds: See :class:`PointwiseProfile`.
        startup_runs: See there.
        cells: See there; few of them say quickly where to look.
    """

    def profile(side: DominatingPair, cells: int, cover: Cells | None = None) -> PointwiseProfile:
        # Several threads make LAPACK's small systems slower, many times where processors are busy.
        with _ALONE, threadpool_limits(1, user_api="blas"):
            return PointwiseProfile(
                side, trials, density_bounds, startup_runs=startup_runs, cells=cells, cover=cover
            )

    sides = (pair, pair.reversed())
    of_one_run = [side.epsilon(_COMPARED_AT) for side in sides]
    larger = int(of_one_run[1] > of_one_run[0])
    searched, other = profile(sides[larger], cells), sides[1 - larger]
    too_long = "more runs are likely than this bound can follow one by one"
    # For most pairs a few cells show that the other direction is the smaller one.
    is_smaller = of_one_run[1 - larger] < _SMALLER * of_one_run[larger]
    return ProfileMethod(
        searched,
        _DeferredProfile(lambda: profile(other, cells, searched.cover)),
        too_long if searched.gave_up else None,
        coarse_reverse=profile(other, min(cells, _COARSE_CELLS)) if is_smaller else None,
    )


class _DeferredProfile:
    """A profile that is computed when it is first asked for."""

    def __init__(self, compute: Callable[[], PointwiseProfile]) -> None:
        self._profile = functools.cache(compute)

    def delta(self, epsilons: npt.ArrayLike) -> FloatArray:
        """Returns delta at each epsilon."""
        return self._profile().delta(epsilons)


@dataclass(frozen=True)
class Law:
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
        """How many probabilities are given one by one."""
        return self.pmf.size


@functools.lru_cache(maxsize=64)
def law_of(trials: TrialCount, head: int = 1) -> Law:
    """Returns the law with a head of at least so many runs, if anything follows it.

    ``missing`` does not depend on ``head``.
    """
    base = trials.uncapped
    if base is not trials and base.tail((trials.maximum or 0) - 1) <= _NEVER:
        # min(T, n) and T are alike but for P[T >= n], which moves A - e^eps A' by at most
        # (1 + e^eps) P[T >= n]: nothing up to an epsilon of 60, and what holds there holds above.
        law = law_of(base, head)
        difference = _NEVER * math.exp(_LARGEST_EPSILON + 1.0)
        return Law(law.pmf, law.low, law.high, law.missing + difference)
    shortest = _shortest_head(trials)
    if shortest is None:
        head = min(_last_that_counts(trials), _MAX_RUNS)
        return Law(_pmf(trials, head), 0.0, 0.0, float(trials.tail(head)))
    head = max(head, shortest)
    ratios = trials.ratios(head)
    assert ratios is not None
    return Law(_pmf(trials, head), min(ratios), max(ratios), 0.0)


@functools.lru_cache(maxsize=8)
def _shortest_head(trials: TrialCount) -> int | None:
    """Returns the first N from which on all ratios of the law are known to lie below one."""
    for head in range(1, _MAX_HEAD + 1):
        ratios = trials.ratios(head)
        if ratios is None:
            return None
        if max(ratios) < 1.0 - 1e-9 and min(ratios) > 0.0:
            return head
    return None


def heads_of(trials: TrialCount, keep: FloatArray, tail_share: float) -> IntArray:
    """Returns for each cell a head after which bounds on the ratios are close enough.

    Any head is sound. How much of anything one run keeps says how soon later ones do not matter.

    Args:
        trials: The law of T.
        keep: The most that K keeps of anything, shape (cells,).
        tail_share: By how much of E[T keep^(T-1)] the bounds on the ratios may miss it.
    """
    laws = _laws_of_heads(trials)
    heads = np.array([law.head for law in laws])
    weight, low, high = np.array([(law.pmf[-1], law.low, law.high) for law in laws]).T
    keep = np.minimum(keep, 1.0)[:, None]

    def later(ratio: FloatArray) -> FloatArray:
        """E[T keep^(T-1); T >= N] / (P[T = N] keep^(N-1)), for one ratio."""
        rest = 1.0 / (1.0 - keep * ratio)
        return heads * rest + rest * (rest - 1.0)

    excess = weight * keep ** (heads - 1) * (later(high) - later(low))
    is_close = excess <= tail_share * np.asarray(trials.pgf_derivative(keep))
    is_close[:, -1] = True
    return np.asarray(heads[is_close.argmax(axis=1)])


@functools.lru_cache(maxsize=8)
def _laws_of_heads(trials: TrialCount) -> list[Law]:
    """Returns the law with heads that double, as long as a longer one is closer."""
    laws = [law_of(trials)]
    while laws[-1].low < laws[-1].high and 2 * laws[-1].head < _MAX_HEAD:
        laws.append(law_of(trials, 2 * laws[-1].head + 1))
    return laws


def _work(grid: LossGrid, law: Law) -> float:
    """Returns about how many multiplications one cell takes."""
    taps = min(grid.taps.size, grid.size)
    work = 2.0 * (law.head - 1) * grid.size * (grid.used.size + _OVERHEAD)
    return work + (grid.size * taps**2 / _SOLVED_AT_ONCE if law.high > 0.0 else 1.0)


def _pmf(trials: TrialCount, head: int) -> FloatArray:
    return trials.pmf(np.arange(1, head + 1))


def _last_that_counts(trials: TrialCount) -> int:
    """Returns N >= 1 with P[T > N] negligible, at most the largest possible T."""
    return max(trials.first_with_tail(_NEGLIGIBLE_TAIL), 1)


def recursion(
    later: Kernel, plain: Kernel, law: Law, bounds: tuple[float, float], startup: int
) -> Values:
    """Returns V1_1 on the grid, for each cell.

    Args:
        later: K of the slots whose density lies in [c, C].
        plain: K of the start-up runs.
        law: The law of T.
        bounds: (c, C).
        startup: How many start-up runs there are.
    """

    def k_of(slot: int) -> Kernel:
        return later if slot > startup else plain

    def won(v2: Values, slot: int) -> Values:
        """max(C V2, c V2): the density of the run that puts out y, at its worst."""
        c, big_c = bounds if slot > startup else (1.0, 1.0)
        inner_values = np.maximum(big_c * v2.inner, c * v2.inner)
        return Values(inner_values, c * v2.left, big_c * v2.right)

    # a - b, widened by the rounding of the probabilities of T that multiply it.
    grid, cells = later.grid, later.keep_right.size
    rounded_up, rounded_down = 1.0 + _PMF_ROUNDING, 1.0 - _PMF_ROUNDING
    unit_values = np.broadcast_to(rounded_up - rounded_down * grid.t, (cells, grid.size))
    unit = Values(unit_values, np.full(cells, -rounded_down), np.full(cells, rounded_up))
    v2, weight = unit, float(law.pmf[-1])
    if law.high > 0.0:
        v2 = solve_stationary(later, unit, law.low, law.high)
        v1 = solve_stationary(later, won(v2, law.head), law.low, law.high)
    else:
        v1 = won(v2, law.head)
    v2, v1 = v2.scaled(weight), v1.scaled(weight)
    # Both in one step: where steps are small, what numpy does besides the sums is most of it.
    double_step, both = later.take(np.tile(np.arange(cells), 2)), v2.joined(v1)
    for k in range(law.head - 1, 0, -1):
        if k > startup:
            both = double_step.apply(both)
            v2, v1 = both.take(slice(cells)), both.take(slice(cells, None))
        else:
            v2, v1 = k_of(k + 1).apply(v2), k_of(k).apply(v1)
        v2.add(unit.scaled(float(law.pmf[k - 1])))
        v1.add(won(v2, k))
    return v1
