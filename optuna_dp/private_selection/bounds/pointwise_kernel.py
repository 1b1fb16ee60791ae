"""The operators K of the pointwise bound, one for each cell of step functions k0.

Theorem and proofs: ``docs/explanation/pointwise-bound.md`` (our own). For an output y let k0(s) be
the chance, under the prior, that a run whose privacy loss is s beats y. It is one function for all
histories and slots, and it may be taken to be a step function that falls along the losses,

    k0 = 1 | q_high | q_low | 0     on the O-quantiles     0 .. u1 .. u2 .. u3 .. F

(F is the O-mass of finite losses). A policy in [c, C] moves it to anything in [lo(k0), hi(k0)], at
each loss apart. What is kept, 1 - lo(k0) and 1 - hi(k0), is then a sum of three kernels "the
highest losses of O-mass F - u_i" with non-negative weights.

=============  ==================  =============================================================
code           notation            meaning
=============  ==================  =============================================================
``levels``     (q_high, q_low)     the bends of lo and hi, (1 - c)/(C - c) and (C - 1)/(C - c)
``below``      u_i                 O-mass of the lowest losses up to a step, ends of a cell
``gains``      g_i                 1 - lo(k0) = sum of the g_i over the steps to the left
``costs``      h_i                 the same of 1 - hi(k0)
=============  ==================  =============================================================
"""

from __future__ import annotations

import numpy as np

from optuna_dp.arrays import FloatArray, IntArray
from optuna_dp.private_selection.bounds.history_kernel import SLACK, HistoryGrid, Removal

_EPS = float(np.finfo(np.float64).eps)


class StepKernels:
    """Makes the operators of cells {k0 : below_low <= u <= below_high} on one grid.

    Args:
        grid: The grid.
        bounds: (c, C), with 0 < c <= 1 <= C.

    Guarantees:
        * The operator of a cell is at least K_k0 V, for every k0 in the cell and every V that the
          given values bound from above: k0 does not decrease with u, so what is kept where V is
          positive is largest at the lower ends, what is kept where V is negative is least at the
          upper ends.
    """

    def __init__(self, grid: HistoryGrid, bounds: tuple[float, float]) -> None:
        c, big_c = bounds
        self.grid = grid
        above = np.cumsum(grid.mass[::-1])[::-1]
        self._above = np.concatenate([above[1:], [0.0]]) + grid.infinite_mass
        #: Sums over atoms and over the three steps are widened by this, more than their rounding.
        self.rounding = (grid.mass.size + 64) * _EPS + SLACK
        #: O-mass of all finite losses; what the grid's tails sent to infinity is on top of them.
        self.finite_mass = float(above[0]) + grid.infinite_mass
        # Without freedom (c = C = 1) lo and hi are straight: one step, from 1 to 0.
        bends = (1.0, 0.0)
        if big_c > c:
            bends = ((1.0 - c) / (big_c - c), (big_c - 1.0) / (big_c - c))
        high, low = max(bends), min(bends)
        self.levels = (high, low)
        # The two bends add up to 1; written so, that small remainders are accurate.
        most_high, least_high = min(1.0 - c * high, big_c * low), max(1.0 - big_c * high, c * low)
        most_low, least_low = min(1.0 - c * low, big_c * high), max(1.0 - big_c * low, c * high)
        self._gains = _rises(most_high, most_low)
        self._costs = _rises(least_high, least_low)
        self._plain = _rises(low, high)

    @property
    def step_sizes(self) -> FloatArray:
        """How much of the kernels hangs on each of the three steps, shape (3,)."""
        return np.maximum(self._gains, self._costs)

    def adaptive(self, below_low: FloatArray, below_high: FloatArray) -> Removal:
        """Returns K of slots whose density lies in [c, C], for cells of shape (cells, 3)."""
        return self._removal(below_low, below_high, self._gains, self._costs)

    def plain(self, below_low: FloatArray, below_high: FloatArray) -> Removal:
        """Returns K of slots that draw from the prior itself: 1 - k0 is kept, no more, no less."""
        return self._removal(below_low, below_high, self._plain, self._plain)

    def _removal(
        self, low: FloatArray, high: FloatArray, gains: FloatArray, costs: FloatArray
    ) -> Removal:
        most, infinite = self.kept(self.finite_mass - low, gains, 1.0 + self.rounding)
        least, _ = self.kept(self.finite_mass - high, costs, 1.0 - self.rounding)
        return Removal.from_kernels(self.grid, most, least, infinite)

    def weights(self, plain: bool) -> tuple[FloatArray, FloatArray]:
        """Returns (gains, costs) of the three steps, for slots that draw from the prior or not."""
        return (self._plain, self._plain) if plain else (self._gains, self._costs)

    def parts(self, top: FloatArray, widened: float) -> FloatArray:
        """Returns what is above each step of each tap, shape (3, cells, taps)."""
        mass = np.maximum(top.T, 0.0)[:, :, None] * widened
        return np.clip(mass - self._above, 0.0, self.grid.mass)

    def taps_at(self, top: FloatArray) -> IntArray:
        """Returns the tap that a mass counted from the highest losses ends in; same shape.

        It is the number of taps where the mass ends in what was sent to infinite loss.
        """
        more = np.searchsorted(self._above[::-1], top, side="right")
        return np.asarray(self._above.size - more, dtype=np.int64)

    def kept(
        self, top: FloatArray, weights: FloatArray, widened: float
    ) -> tuple[FloatArray, FloatArray]:
        """Returns what is kept of each tap, and of the infinite loss that the grid made.

        Args:
            top: O-mass above each step, shape (cells, 3).
            weights: Of the three steps, gains or costs.
            widened: One more or less than the rounding.
        """
        kept = np.zeros((top.shape[0], self.grid.mass.size))
        infinite = np.zeros(top.shape[0])
        for i in range(3):
            mass = np.maximum(top[:, i], 0.0) * widened
            kept += weights[i] * np.clip(mass[:, None] - self._above, 0.0, self.grid.mass)
            infinite += weights[i] * np.minimum(mass, self.grid.infinite_mass)
        return kept * widened, infinite * widened


def _rises(first: float, second: float) -> FloatArray:
    """Returns the steps of what is kept: 0 | first | second | 1."""
    return np.maximum([first, second - first, 1.0 - second], 0.0)
