"""Values over a cell of step functions, right to the second order in the cell's width.

Statement and proof: ``docs/explanation/pointwise-bound.md``, "Cells with slopes" (our own).
Over a cell, with middle_i + d_i the O-mass above the i-th step, |d_i| <= radius_i, and x a state,

    V(x; d) <= base(x) + sum_i d_i slopes_i(x) + rest(x),    rest >= 0.

=============  ==================  =============================================================
code           notation            meaning
=============  ==================  =============================================================
``base``       A                   the recursion at the cell's middle, does not decrease in x
``slopes``     G_i                 its derivative along the mass above the i-th step
``rest``       E                   everything of second order, as an upper bound
``reach``      H                   sum_i radius_i |G_i|, the most that the slopes may add
=============  ==================  =============================================================

Each is a function on the grid with its two ends (:class:`Values`): the inner values have shape
(cells, n), those of the slopes (cells, 3, n).
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from optuna_dp.arrays import BoolArray, FloatArray
from optuna_dp.private_selection.bounds.history_kernel import SLACK, Removal, Values
from optuna_dp.private_selection.bounds.history_stationary import LinearSystems, solve_stationary
from optuna_dp.private_selection.bounds.pointwise_kernel import StepKernels

_MOST_PATTERNS = 8


@dataclass(frozen=True, eq=False)
class Sloped:
    """An upper bound on V over the cells: base, slopes and rest."""

    base: Values
    slopes: Values
    rest: Values

    @classmethod
    def constant(cls, base: Values) -> Sloped:
        """Returns what does not depend on where in the cell one is."""
        rows, n = base.inner.shape
        slopes = Values(np.zeros((rows, 3, n)), np.zeros((rows, 3)), np.zeros((rows, 3)))
        return cls(base, slopes, Values(np.zeros((rows, n)), np.zeros(rows), np.zeros(rows)))

    def scaled(self, factor: float) -> Sloped:
        """Returns the bound on ``factor`` V, for a factor that is not negative."""
        return Sloped(*(_each(lambda v: factor * v, p) for p in self._parts()))

    def added(self, other: Sloped) -> Sloped:
        """Returns the bound on the sum."""
        pairs = zip(self._parts(), other._parts(), strict=True)
        return Sloped(*(_each(np.add, one, two) for one, two in pairs))

    def _parts(self) -> tuple[Values, Values, Values]:
        return self.base, self.slopes, self.rest


class SlopedKernel:
    """The operators K of cells, for bounds with slopes.

    Args:
        kernels: Those of the grid.
        below_low: Lower ends u of the cells, O-masses below the steps, shape (cells, 3).
        below_high: Upper ends.
        plain: Whether the slots draw from the prior itself.

    Attributes:
        unusable: Cells whose middle lies among what the grid's tails sent to infinite loss:
            their slopes mean nothing.

    Guarantees:
        * ``apply`` returns a bound on K_u V at each ordered u of a cell, for every V that the
          given bound holds for and that does not decrease with the state.
    """

    def __init__(
        self, kernels: StepKernels, below_low: FloatArray, below_high: FloatArray, plain: bool
    ) -> None:
        self.grid = grid = kernels.grid
        self._gains, self._costs = kernels.weights(plain)
        self.rounding = kernels.rounding
        up, down = 1.0 + self.rounding, 1.0 - self.rounding
        self._top, bottom = kernels.finite_mass - below_low, kernels.finite_mass - below_high
        middle = 0.5 * (self._top + bottom)
        self.radius: FloatArray = np.maximum(self._top - middle, middle - bottom) * up
        ends = (self._top, up), (middle, 1.0), (bottom, down)
        most, half, least = (kernels.parts(mass, widened) for mass, widened in ends)
        self._moved = np.maximum(most - half, half - least)
        self._most, self._infinite = kernels.kept(self._top, self._gains, up)
        self._some, _ = kernels.kept(self._top, self._costs, up)
        gap = self._most - kernels.kept(bottom, self._costs, down)[0]
        # Without freedom both kernels are one, wherever in the cell.
        self._gap = np.zeros_like(gap) if plain else np.maximum(gap, 0.0)
        self.centre = Removal.from_kernels(
            grid,
            kernels.kept(middle, self._gains, up)[0],
            kernels.kept(middle, self._costs, down)[0],
            self._infinite,
        )
        self.largest = Removal.from_kernels(grid, self._most, self._some, self._infinite)
        self._prime = np.exp(-grid.taps)
        self.most_left: FloatArray = np.minimum(self._some @ self._prime * up, 1.0)
        self.most_right: FloatArray = np.minimum(self.largest.keep_right, 1.0)
        taps = kernels.taps_at(middle)
        self.unusable: BoolArray = np.any((taps >= grid.taps.size) & (self.radius > 0.0), axis=1)
        self._tap = np.minimum(taps, grid.taps.size - 1)

    @functools.cached_property
    def _systems(self) -> LinearSystems:
        return LinearSystems(self.centre, kept=True)

    @functools.cached_property
    def _systems_of_rests(self) -> LinearSystems:
        return LinearSystems(self.largest)

    def reach(self, slopes: Values) -> Values:
        """Returns H."""
        return _each(lambda v: np.einsum("pi,pi...->p...", self.radius, np.abs(v)), slopes)

    def most(self, bound: Sloped) -> Values:
        """Returns the largest value of the bound over each cell."""
        return _each(lambda a, h, e: a + h + e, bound.base, self.reach(bound.slopes), bound.rest)

    def apply(self, bound: Sloped) -> Sloped:
        """Returns a bound on K V."""
        once = self.turned_base(bound.base)
        return self.turned_slopes(once, bound.slopes).with_rest(bound.rest)

    def turned_base(self, a: Values) -> TurnedBase:
        """Returns what a step makes of A alone."""
        centre, base = self.centre, self._padded(a)
        inner = centre._correlate(np.maximum(base, 0.0), centre.keep_lo)
        inner -= centre._correlate(np.maximum(-base, 0.0), centre.keep_hi)
        inner += (centre.keep_infinite * a.right)[:, None]
        after = _rising(Values(inner, centre.keep_left * a.left, centre.keep_right * a.right))
        steep = Values(self._steepness(base), *self._steepness_of_ends(a))
        # Which atom a middle ends in is decided up to rounding.
        top = 2.0 * self.rounding * self._top
        unsure = _each(lambda g: np.einsum("pi,pi...->p...", top, np.abs(g)), steep)
        return TurnedBase(base, after, steep, unsure)

    def turned_slopes(self, once: TurnedBase, d: Values) -> TurnedSlopes:
        """Returns what a step makes of A and G, for any rest that may come on top."""
        base, slopes, correlate = once.padded, self._padded(d), self.centre._correlate
        positive = base > 0.0
        reach = np.einsum("pi,pix->px", self.radius, np.abs(slopes))
        tiny = 2.0 * self.rounding
        more = correlate(tiny * reach, self._most)
        # What the slopes may take across zero.
        more += correlate(_crossing(base, reach), self._gap)
        for i in range(3):
            # Mass that d_i moves meets what the slopes add there. What slope i adds falls where
            # mass comes in, and grows where it goes, if it is negative: never a gain.
            met = reach - self.radius[:, i, None] * np.maximum(-slopes[:, i], 0.0)
            more += correlate(np.where(positive, met, 0.0), self._gains[i] * self._moved[i])
            more += correlate(np.where(positive, 0.0, met), self._costs[i] * self._moved[i])
        # The ends are numbers, of one sign: V(0, 1) <= 0 and V(1, 0) >= 0.
        ends = self.reach(d)
        more += (self._infinite * ends.right)[:, None]
        moved = np.einsum("i,ipj->pj", self._costs, self._moved) @ self._prime
        more_left = (moved + tiny * self.most_left) * ends.left
        moved = np.einsum("i,ipj->p", self._gains, self._moved) + self._infinite
        more_right = (moved + tiny * self.most_right) * ends.right
        more_of_both = _each(np.add, Values(more, more_left, more_right), once.rest)
        after = self.slopes_after(once, d)
        return TurnedSlopes(self, base, reach, once.base, after, more_of_both)

    def slopes_after(self, once: TurnedBase, d: Values) -> Values:
        """Returns G'."""
        centre, positive = self.centre, once.padded > 0.0
        turned = [
            centre._correlate(np.where(positive, each, 0.0), centre.keep_lo)
            + centre._correlate(np.where(positive, 0.0, each), centre.keep_hi)
            for each in self._padded(d).transpose(1, 0, 2)
        ]
        return Values(
            np.stack(turned, axis=1) + once.slopes.inner,
            centre.keep_left[:, None] * d.left + once.slopes.left,
            centre.keep_right[:, None] * d.right + once.slopes.right,
        )

    def kept_of_rest(self, base: FloatArray, reach: FloatArray, e: Values) -> Values:
        """Returns what a step keeps of the rest E.

        Args:
            base: A at every state that a tap leads to.
            reach: H, there.
            e: E.
        """
        correlate, rest = self.centre._correlate, self._padded(e)
        above = _above_zero(base, reach, rest)
        more = correlate(above, self._most) + correlate(rest - above, self._some)
        more += (self._infinite * e.right)[:, None]
        return Values(more, self.most_left * e.left, self.most_right * e.right)

    def bent(self, bound: Sloped, least: float, most: float) -> Sloped:
        """Returns a bound on max(least V, most V), 0 < least <= most."""
        a, d, e = bound.base, bound.slopes, bound.rest
        factor = np.where(a.inner > 0.0, most, least)
        reach = self.reach(d).inner
        above = _above_zero(a.inner, reach, e.inner)
        rest = most * above + least * (e.inner - above)
        rest += (most - least) * _crossing(a.inner, reach)
        rest += most * SLACK * (reach + e.inner)
        return Sloped(
            Values(factor * a.inner, least * a.left, most * a.right),
            Values(factor[:, None] * d.inner, least * d.left, most * d.right),
            Values(rest, least * e.left, most * e.right),
        )

    def solved(self, source: Sloped, low: float, high: float) -> Sloped:
        """Returns a bound on the solution of V = source + R K V, R v = max(low v, high v).

        The middle is solved as ever, then the slopes (linear), then the rest (again a maximum of
        linear systems). What comes out is made sound as in
        :func:`~optuna_dp.private_selection.bounds.history_stationary.solve_stationary`: one more step
        is made with it, and the rest takes up whatever is missing.
        """
        g, centre = self.grid, self.centre
        base = _rising(solve_stationary(centre, source.base, low, high, self._systems))
        low, high = low * (1.0 - SLACK), high * (1.0 + SLACK)
        found = Sloped.constant(base)
        # The ends are numbers.
        left, right = self._steepness_of_ends(base)
        slopes, rest = found.slopes, found.rest
        slopes.left[:] = source.slopes.left + low * left
        slopes.left[:] /= (1.0 - low * centre.keep_left)[:, None]
        slopes.right[:] = source.slopes.right + high * right
        slopes.right[:] /= (1.0 - np.minimum(high * centre.keep_right, high))[:, None]
        once = self.turned_base(base)
        # Of the slopes themselves only their ends are known as yet.
        of_ends = self._systems.constant(slopes.left.T, slopes.right.T).transpose(1, 0, 2)
        ratio = np.where(once.base.inner <= 0.0, low, high)
        wanted = source.slopes.inner + ratio[:, None] * (once.slopes.inner + of_ends)
        rows = range(base.right.size)
        for row in rows:
            slopes.inner[row] = self._systems.again(row, wanted[row])
        step = self.turned_slopes(once, slopes)

        def missing() -> Values:
            """What the rest has to hold, for the next step to stay below the bound."""
            new = source.added(self.bent(step.with_rest(rest), low, high))
            off = self.reach(_each(np.subtract, new.slopes, slopes))
            more = _each(lambda a, b: np.maximum(a - b, 0.0), new.base, base)
            return _each(lambda e, h, a: e + h + a, new.rest, off, more)

        wants = missing()
        rest.left[:] = wants.left / (1.0 - low * self.most_left)
        rest.right[:] = wants.right / (1.0 - high * self.most_right)
        wanted = missing().inner
        without = self.most(found).inner
        # Signs are guessed by their number: what a wrong guess misses is added below.
        for row in rows:
            below = int(np.count_nonzero(without[row] <= 0.0))
            for _ in range(_MOST_PATTERNS):
                rest.inner[row] = self._systems_of_rests.solve(
                    row, wanted[row], (below, 0), (low, high)
                )
                now = int(np.count_nonzero(without[row] + rest.inner[row] <= 0.0))
                if now == below:
                    break
                below = now
        np.maximum(rest.inner, 0.0, out=rest.inner)
        short = _each(lambda a, b: np.maximum(a - b, 0.0), missing(), rest)
        scale = (1.0 + 1e-6) / (1.0 - high)
        flat = np.maximum(short.inner[:, g.t <= 1.0].max(axis=1), short.right) * scale
        steep = (short.inner / g.t)[:, g.t > 1.0].max(axis=1, initial=0.0)
        steep = np.maximum(steep, short.left) * scale
        rest.inner[:] += flat[:, None] + steep[:, None] * g.t
        rest.left[:] += steep
        rest.right[:] += flat
        return found

    def _padded(self, values: Values) -> FloatArray:
        """Returns the values at every state that a tap leads to, chords beyond the grid."""
        g, n = self.grid, self.grid.size
        out = np.empty((*values.inner.shape[:-1], g.pad_left + n + g.pad_right))
        out[..., g.pad_left : g.pad_left + n] = values.inner
        out[..., : g.pad_left] = values.inner[..., :1] + values.left[..., None] * g.left_excess
        out[..., g.pad_left + n :] = values.inner[..., -1:] * g.right_weight
        out[..., g.pad_left + n :] += values.right[..., None] * (1.0 - g.right_weight)
        return out

    def _steepness(self, base: FloatArray) -> FloatArray:
        """Returns how K V grows with the mass above each step, at the middle: (cells, 3, n)."""
        g = self.grid
        states = g.pad_left + g.first_tap + self._tap[:, :, None] + np.arange(g.size)
        there = np.take_along_axis(base[:, None, :], states, axis=2)
        gain, cost = np.maximum(there, 0.0), np.maximum(-there, 0.0)
        return np.asarray(self._gains[:, None] * gain - self._costs[:, None] * cost)

    def _steepness_of_ends(self, base: Values) -> tuple[FloatArray, FloatArray]:
        left = self._costs * self._prime[self._tap] * base.left[:, None]
        return left, self._gains * base.right[:, None]


@dataclass(frozen=True, eq=False)
class TurnedBase:
    """What a step makes of A: A', what it adds to G', and to E' for the rounding of that."""

    padded: FloatArray
    base: Values
    slopes: Values
    rest: Values


@dataclass(frozen=True, eq=False)
class TurnedSlopes:
    """What a step makes of A and G. Only E' still hangs on E, which is sought with these fixed."""

    kernel: SlopedKernel
    padded: FloatArray
    reach: FloatArray
    base: Values
    slopes: Values
    more: Values

    def with_rest(self, rest: Values) -> Sloped:
        """Returns the bound after the step, for the rest E before it."""
        kept = self.kernel.kept_of_rest(self.padded, self.reach, rest)
        widened = 1.0 + 2.0 * self.kernel.rounding
        total = _each(lambda one, two: (one + two) * widened, kept, self.more)
        return Sloped(self.base, self.slopes, total)


def _each(make: Callable[..., FloatArray], *values: Values) -> Values:
    """Returns what ``make`` makes of the inner values, and of each end."""
    return Values(
        make(*(v.inner for v in values)),
        make(*(v.left for v in values)),
        make(*(v.right for v in values)),
    )


def _crossing(base: FloatArray, reach: FloatArray) -> FloatArray:
    """Returns how far the slopes may cross zero."""
    return np.maximum(reach - np.abs(base), 0.0)


def _above_zero(base: FloatArray, reach: FloatArray, rest: FloatArray) -> FloatArray:
    """Returns how much of the rest may lie above zero."""
    above = np.maximum(np.minimum(reach - np.abs(base), 0.0) + rest, 0.0)
    return np.where(base > 0.0, rest, above)


def _rising(base: Values) -> Values:
    inner = np.maximum.accumulate(base.inner, axis=1)
    return Values(inner, base.left, np.maximum(base.right, inner[:, -1]))
