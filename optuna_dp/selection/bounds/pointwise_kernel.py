"""The operators K of the pointwise bound, one for each cell of functions k0.

Theorem: ``docs/explanation/history-bound.md``; cells: ``pointwise-bound.md`` beside it (our own).
For an output y let k0(s) be the chance, under the prior, that a run whose privacy loss is s beats
y. It is one function for all histories and slots, and it may be taken to be a step function that
falls along the losses,

    k0 = 1 | q_high | q_low | 0     on the O-quantiles     0 .. u1 .. u2 .. u3 .. F

(F is the O-mass of finite losses). A policy in [c, C] moves it to anything in [lo(k0), hi(k0)], at
each loss apart. A cell is a set of such triples: u_i in [u_i-, u_i+], with an integral p of k0 in
[p-, p+]. Its operator keeps, of every number of highest losses, at least what any k0 of the cell
keeps where V > 0, and of every number of lowest losses at most what any keeps where V < 0.

============  ====================  ===========================================================
code          notation              meaning
============  ====================  ===========================================================
``levels``    q_high, q_low         the bends of lo and hi, (1 - c)/(C - c) and (C - 1)/(C - c)
``a``         a_i                   p = sum of a_i u_i
``g``         g_i                   rises of 1 - lo(k0) over the three steps
``h``         h_i                   rises of 1 - hi(k0)
``keep_lo``   k_lo                  O-mass of each tap that counts where V is positive
``keep_hi``   k_hi                  O-mass of each tap that counts where V is negative
============  ====================  ===========================================================
"""

from __future__ import annotations

import numpy as np

from optuna_dp.core.arrays import FloatArray, IntArray
from optuna_dp.selection.bounds.pointwise_grid import SLACK, LossGrid, Values

_EPS = float(np.finfo(np.float64).eps)


class Kernel:
    """K for a batch of cells: ``k_lo V_+ - k_hi V_-``, two direct sums of non-negative terms.

    Args:
        grid: The grid.
        keep_lo: Shape (cells, taps), rounded up.
        keep_hi: Shape (cells, taps), rounded down.
        keep_infinite: What counts of the infinite loss that the grid's tails made, shape (cells,).

    Guarantees:
        * ``apply`` returns at least K V for every k0 of the cell, for every V that the given
          values bound from above and that does not decrease with the state.
    """

    def __init__(
        self, grid: LossGrid, keep_lo: FloatArray, keep_hi: FloatArray, keep_infinite: FloatArray
    ) -> None:
        self.grid = grid
        self.keep_lo, self.keep_hi, self.keep_infinite = keep_lo, keep_hi, keep_infinite
        self._both = np.stack([keep_lo, keep_hi])
        #: The factor of V(1, 0), all of whose mass is alike.
        self.keep_right: FloatArray = (keep_lo.sum(axis=1) + keep_infinite) * (1.0 + SLACK)
        #: The factor of V(0, 1).
        self.keep_left: FloatArray = np.minimum(keep_hi @ np.exp(-grid.taps) * (1.0 - SLACK), 1.0)

    def take(self, selection: IntArray) -> Kernel:
        """Returns the operators of some cells; one may occur more than once."""
        return Kernel(
            self.grid,
            self.keep_lo[selection],
            self.keep_hi[selection],
            self.keep_infinite[selection],
        )

    def apply(self, values: Values) -> Values:
        """Returns an upper bound on K V."""
        g = self.grid
        rows, n = values.inner.shape
        start, end = g.pad_left, g.pad_left + n
        # V_+ and V_-.
        padded = np.empty((2, rows, end + g.pad_right))
        np.maximum(values.inner, 0.0, out=padded[0, :, start:end])
        np.subtract(padded[0, :, start:end], values.inner, out=padded[1, :, start:end])
        # Beyond the grid: chords towards the ends V(0, 1) and V(1, 0), lemma 6.
        padded[:, :, :start] = padded[:, :, start, None]
        padded[1, :, :start] -= values.left[:, None] * g.left_excess
        np.multiply(padded[:, :, end - 1, None], g.right_weight, out=padded[:, :, end:])
        padded[0, :, end:] += values.right[:, None] * (1.0 - g.right_weight)
        gain, cost = self._correlate(padded)
        gain -= cost
        gain += (self.keep_infinite * values.right)[:, None]
        return Values(gain, self.keep_left * values.left, self.keep_right * values.right)

    def _correlate(self, padded: FloatArray) -> FloatArray:
        """Returns sum_j kernel_j V(x_i + l_j) for each state i: direct sums, no FFT."""
        g = self.grid
        # Position of the first tap's state, for the first grid point.
        begin = g.pad_left + g.first_tap
        if 8 * g.used.size < g.taps.size:
            total = np.zeros((*padded.shape[:2], g.size))
            for tap in g.used.tolist():
                states = padded[:, :, begin + tap : begin + tap + g.size]
                total += self._both[:, :, tap, None] * states
            return total
        # What sliding_window_view returns, without its checks: they took as long as the sum.
        sign, row, step = padded.strides
        windows: FloatArray = np.ndarray(
            (*padded.shape[:2], g.size, g.taps.size),
            np.float64,
            padded,
            begin * step,
            (sign, row, step, step),
        )
        return np.asarray(np.einsum("spij,spj->spi", windows, self._both))


class CellKernels:
    """Makes the operators of cells on one grid.

    Args:
        grid: The grid.
        bounds: (c, C), with 0 < c <= 1 <= C.

    Attributes:
        finite_mass: F; what the grid's tails sent to infinite loss is part of it.
    """

    def __init__(self, grid: LossGrid, bounds: tuple[float, float]) -> None:
        c, big_c = bounds
        self.grid = grid
        # O-mass above each tap, from the highest one down, and O-mass below, from the lowest up.
        mass_above = grid.infinite_mass + np.cumsum(grid.mass[::-1])
        self._above: FloatArray = np.concatenate([[0.0, grid.infinite_mass], mass_above])
        mass_below = np.concatenate([[0.0], np.cumsum(grid.mass)])
        self.finite_mass = float(mass_above[-1])
        #: More than the rounding of these sums, and of what is made of them.
        self._rounding = 2.0 * (grid.mass.size + 64) * _EPS + SLACK
        self._below: FloatArray = mass_below * (1.0 - self._rounding)
        # Without freedom (c = C = 1) lo and hi are straight: one step, from 1 to 0.
        bends = (1.0, 0.0)
        if big_c > c:
            bends = ((1.0 - c) / (big_c - c), (big_c - 1.0) / (big_c - c))
        high, low = max(bends), min(bends)
        # The two bends add up to 1; written so, that small remainders are accurate.
        most_high, least_high = min(1.0 - c * high, big_c * low), max(1.0 - big_c * high, c * low)
        most_low, least_low = min(1.0 - c * low, big_c * high), max(1.0 - big_c * low, c * high)
        self.g = _rises(most_high, most_low)
        self.h = _rises(least_high, least_low)
        self.a = _rises(low, high)

    def adaptive(self, low: FloatArray, high: FloatArray) -> Kernel:
        """Returns K of slots whose density lies in [c, C].

        Args:
            low: Lower ends (u1, u2, u3, p) of the cells, shape (cells, 4).
            high: Upper ends.
        """
        return self.kernel(low, high, self.g, self.h)

    def plain(self, low: FloatArray, high: FloatArray) -> Kernel:
        """Returns K of slots that draw from the prior itself: 1 - k0 is kept, no more, no less."""
        return self.kernel(low, high, self.a, self.a)

    def kernel(self, low: FloatArray, high: FloatArray, g: FloatArray, h: FloatArray) -> Kernel:
        """Returns K of lemma C for the given rises of what is kept."""
        u_low, u_high, p_low, p_high = low[:, :3], high[:, :3], low[:, 3], high[:, 3]
        w_low, w_high = self.finite_mass - u_high, self.finite_mass - u_low + 2.0 * _EPS
        # Among the highest losses: all that the box can keep, less what p >= p_low takes back.
        surplus = w_high @ self.a - (self.finite_mass - p_low) - 16.0 * _EPS
        retained = np.minimum(w_high[:, :, None], self._above).transpose(0, 2, 1) @ g
        top = retained - self.taken_back(surplus, g, w_low, w_high, self._above)
        # Among the lowest losses: what the box must keep, and what p <= p_high adds.
        surplus = u_high @ self.a - p_high - 16.0 * _EPS
        retained = np.maximum(self._below - u_high[:, :, None], 0.0).transpose(0, 2, 1) @ h
        bottom = retained + self.taken_back(surplus, h, u_low, u_high, self._below)
        rounded_up, rounded_down = 1.0 + self._rounding, 1.0 - self._rounding
        increments = np.diff(top, axis=1) + 4.0 * _EPS
        return Kernel(
            self.grid,
            np.clip(increments[:, :0:-1], 0.0, self.grid.mass) * rounded_up,
            np.clip(np.diff(bottom, axis=1), 0.0, self.grid.mass) * rounded_down,
            np.clip(increments[:, 0], 0.0, self.grid.infinite_mass) * rounded_up,
        )

    def taken_back(
        self,
        surplus: FloatArray,
        rises: FloatArray,
        low: FloatArray,
        high: FloatArray,
        masses: FloatArray,
    ) -> FloatArray:
        """Returns the least change below each mass if sum a_i high_i falls by ``surplus``.

        What lies above such a mass falls at no cost, then the cheapest steps do: a knapsack.

        An example with two steps: a = (0.5, 0.5), rises (0.2, 0.6), both steps from 0.5 down to
        0.1 at least, a mass of 0.4, surplus 0.15. (1) Above 0.4 each step falls by 0.1 at no cost.
        That is 0.5 * 0.1 + 0.5 * 0.1 = 0.1 of the sum; 0.05 is left. (2) Below 0.4 each step can
        fall by another 0.3. A unit of the sum costs 0.2 / 0.5 = 0.4 in the first step and 1.2 in
        the second. So the first one takes it all: it falls by another 0.1, and 0.4 * 0.05 = 0.02
        is the least change.

        Args:
            surplus: Shape (cells,); nothing is taken back where it is negative.
            rises: g or h.
            low: How far each step may fall, shape (cells, 3).
            high: From where.
            masses: O-masses, shape (taps,).
        """
        low, high, remainder = (
            low[:, :, None],
            high[:, :, None],
            np.maximum(surplus, 0.0)[:, None],
        )
        free_decrease = np.maximum(high - np.maximum(low, masses), 0.0)
        remainder = np.maximum(remainder - np.einsum("i,pij->pj", self.a, free_decrease), 0.0)
        priced_decrease = np.maximum(np.minimum(high, masses) - low, 0.0)
        cost: FloatArray = np.zeros_like(remainder)
        steps = np.flatnonzero(self.a)
        for i in steps[np.argsort(rises[steps] / self.a[steps])]:
            decrease = np.minimum(self.a[i] * priced_decrease[:, i], remainder)
            cost += rises[i] / self.a[i] * decrease
            remainder = remainder - decrease
        return cost


def _rises(lower: float, upper: float) -> FloatArray:
    """Returns the steps of what is kept: 0 | first | second | 1."""
    return np.maximum([lower, upper - lower, 1.0 - upper], 0.0)
