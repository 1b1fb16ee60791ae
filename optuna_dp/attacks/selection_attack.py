"""Explicit attacks on selection without adaptivity: how much privacy it certainly costs.

A bound is worth printing only beside what it cannot be below. Here the adversary chooses which
outputs of a run count as better (``docs/explanation/profile-bound.md``, section "The attack"):
the most incriminating outputs by falling privacy loss, and between them, in ever larger portions,
the *least* incriminating ones. With a block of mass q (under O; g = G(q) under O') and outputs of
mass a (under O; b under O') ranked above it, a group of outputs of masses (o, o') wins with

    phi(1 - q - a) - phi(1 - q - a - o)  on D,   phi(1 - g - b) - phi(1 - g - b - o')  on D',

and ``A(E) - e^eps A'(E)``, summed over any groups, is a lower bound on delta. Losing to the
harmless block is likelier on D' than on D, which is what raises the ratio; how much of the block
should come first depends on the loss, and is what is searched for. The pair must be *attainable*:
the outputs of a real run, or of a garbling of one
(:mod:`optuna_dp.attacks.attainable`). On a pair that only dominates, as accountants
make them, the result is not a lower bound.
"""

from __future__ import annotations

import functools
import itertools
import math
from dataclasses import dataclass

import numpy as np

from optuna_dp.accounting.bounds import smallest_epsilon
from optuna_dp.accounting.dominating_pairs import DominatingPair
from optuna_dp.core import validation
from optuna_dp.core.arrays import FloatArray
from optuna_dp.selection.laws.base import TrialCount

_GRID = 220
# Rounding of a difference of two generating functions; always taken against the attacker.
_ROUNDING = 1e-14
_LARGEST_EPSILON = 500.0


@dataclass(frozen=True)
class SelectionAttack:
    """A reproducible attack on a selection, and what it proves.

    Attributes:
        epsilon: The selection is not (epsilon', delta)-DP for any epsilon' below this.
        delta: At this delta.
        direction: "forward" for (O, O') as the pair has them, "reverse" for (O', O).
        masses: a_i, growing: the groups are the outputs of largest loss, cut at these O-masses.
        blocks: q_i, growing: the O-mass of least incriminating outputs ranked above group i.
    """

    epsilon: float
    delta: float
    direction: str
    masses: tuple[float, ...]
    blocks: tuple[float, ...]


def strongest_attack(pair: DominatingPair, trials: TrialCount, delta: float) -> SelectionAttack:
    """Returns the strongest attack found at ``delta``, over both directions.

    The searches are over grids; whatever they miss makes the lower bound lower. The bisection
    over epsilon returns its lower end.

    Args:
        pair: *Attainable* output laws of one run.
        trials: The law of T.
        delta: In (0, 1).
    """
    return _strongest(pair, trials, validation.open_unit("delta", delta))


@functools.lru_cache(maxsize=64)
def _strongest(pair: DominatingPair, trials: TrialCount, target: float) -> SelectionAttack:
    """The planner asks for the same selection with several density bounds, or after pilots."""
    attacks = []
    for direction, one_way in (("forward", pair), ("reverse", pair.reversed())):
        search = AttackSearch(one_way, trials)
        eps = _largest_epsilon(search, target)
        masses, blocks = search.best(eps)[1:]
        attacks.append(SelectionAttack(eps, target, direction, masses, blocks))
    return max(attacks, key=lambda attack: attack.epsilon)


def _largest_epsilon(search: AttackSearch, delta: float) -> float:
    """Returns an epsilon at which delta is exceeded, nearly the largest (0 if nowhere above 0)."""
    high = smallest_epsilon(search.delta, delta, highest=_LARGEST_EPSILON)
    if high == math.inf:
        return high if search.delta(high) > delta else _LARGEST_EPSILON
    low = high * (1.0 - 2e-9)
    while low > 0.0 and search.delta(low) <= delta:
        low = low * (1.0 - 1e-7) - 1e-300
    return max(low, 0.0)


class AttackSearch:
    """The family of attacks on one direction of one attainable pair."""

    def __init__(self, pair: DominatingPair, trials: TrialCount) -> None:
        self._trials = trials
        self._none = float(trials.pmf(0))
        mass, prime = pair.mass, pair.mass_prime
        # Least incriminating first: (q, G(q)). Most incriminating first: (a, b).
        self._low = np.concatenate([[0.0], np.cumsum(mass)])
        self._low_prime = pair.null_mass + np.concatenate([[0.0], np.cumsum(prime)])
        self._high = pair.infinite_mass + np.concatenate([[0.0], np.cumsum(mass[::-1])])
        self._high_prime = np.concatenate([[0.0], np.cumsum(prime[::-1])])
        near_one = 1.0 - np.logspace(-6, -1, 40)
        self._q = np.unique(np.concatenate([[0.0], np.logspace(-9, -0.05, _GRID), near_one]))
        self._g = np.minimum(1.0, np.interp(self._q, self._low, self._low_prime))
        vertices = self._high[:: max(1, self._high.size // 60)]
        a = np.concatenate(
            [np.logspace(-15, 0, _GRID), vertices[(vertices > 0.0) & (vertices < 1.0)], near_one]
        )
        self._a = np.unique(a)
        b = self._beyond(self._a)
        o, o_prime = np.diff(self._a, prepend=0.0), np.diff(b, prepend=0.0)
        # (groups, blocks): where a group starts and ends, for every mass of the block. Rounding is
        # always taken against the attacker. phi' grows, so o phi'(end) is below the first
        # difference and o' phi'(start) above the second: accurate for the rarest groups.
        before, after = 1.0 - self._q - (self._a - o)[:, None], 1.0 - self._q - self._a[:, None]
        on = np.maximum(
            self._phi(before) - self._phi(after) - _ROUNDING, o[:, None] * self._slope(after)
        )
        self._on = np.where(self._q + self._a[:, None] <= 1.0, on, -np.inf)
        before, after = 1.0 - self._g - (b - o_prime)[:, None], 1.0 - self._g - b[:, None]
        self._off = np.minimum(
            self._phi(before) - self._phi(after) + _ROUNDING,
            o_prime[:, None] * self._slope(before),
        )

    def delta(self, eps: float) -> float:
        """Returns the delta of the best attack found at ``eps``."""
        return self._with_none(float(self._totals(eps).max()), eps)

    def best(self, eps: float) -> tuple[float, tuple[float, ...], tuple[float, ...]]:
        """Returns (delta, masses, blocks) of the best attack found at ``eps``."""
        totals = self._totals(eps)
        row_of_best, column = (int(i) for i in np.unravel_index(totals.argmax(), totals.shape))
        delta = self._with_none(float(totals[row_of_best, column]), eps)
        if totals[row_of_best, column] <= 0.0:
            return delta, (), ()
        columns = [column]
        for row in totals[:row_of_best][::-1]:
            columns.append(int(row[: columns[-1] + 1].argmax()))
        blocks = self._q[columns[::-1]]
        return delta, tuple(self._a[: row_of_best + 1].tolist()), tuple(blocks.tolist())

    def test(self, eps: float) -> tuple[float, float]:
        """Returns (A'(E), A(E)) of the best attack found at ``eps`` >= 0, rounded against it."""
        totals = self._totals(eps)
        row, column = (int(i) for i in np.unravel_index(totals.argmax(), totals.shape))
        if totals[row, column] <= 0.0:
            return 0.0, 0.0
        off, on = 0.0, 0.0
        for i in range(row, -1, -1):
            column = int(totals[i, : column + 1].argmax()) if i < row else column
            off, on = off + float(self._off[i, column]), on + float(self._on[i, column])
        return min(off, 1.0), min(max(on, 0.0), 1.0)

    def _with_none(self, top: float, eps: float) -> float:
        """Adds what T = 0 tells at a negative eps."""
        return min(1.0, max(0.0, top) + self._none * -math.expm1(min(eps, 0.0)))

    def _totals(self, eps: float) -> FloatArray:
        """Returns A(E) - e^eps A'(E) of the best attack that ends with each group and block.

        Shape (groups, blocks). The block never shrinks from group to group: a dynamic program,
        exact on the grid.
        """
        factor = math.exp(min(eps, 700.0)) if eps < math.inf else math.inf
        with np.errstate(invalid="ignore"):
            charge = np.where(self._off > 0.0, factor * self._off, 0.0)
        totals: FloatArray = self._on - charge
        for before, row in itertools.pairwise(totals):
            row += np.maximum.accumulate(before)
        return totals

    def _beyond(self, a: FloatArray) -> FloatArray:
        """Returns the O'-mass of the most incriminating outputs of O-mass ``a``."""
        # Up to its infinite part an event has no mass under O' at all.
        inside = np.interp(a, self._high, self._high_prime)
        return np.asarray(np.where(a <= self._high[0], 0.0, inside))

    def _phi(self, s: FloatArray) -> FloatArray:
        return np.asarray(self._trials.pgf(np.clip(s, 0.0, 1.0)), dtype=np.float64)

    def _slope(self, s: FloatArray) -> FloatArray:
        return np.asarray(self._trials.pgf_derivative(np.clip(s, 0.0, 1.0)), dtype=np.float64)
