"""Small moves of an attack's masses, one at a time: where whole outputs were moved before."""

from __future__ import annotations

import math

import numpy as np

from optuna_dp.arrays import FloatArray
from optuna_dp.attacks.history_attack import HistoryAttack, Outcome, shares_of
from optuna_dp.attacks.policy_search import shown_epsilon

# The logarithm of the first moves, and of the last ones.
_FIRST, _LAST = 0.5, 0.06
# What a mass of nothing begins with, for blocks and for events.
_SEEDS = (1e-4, 1e-6)


def polished(
    world: HistoryAttack,
    gamma: float,
    start: tuple[float, FloatArray, FloatArray],
    level: float,
    delta: float,
    moves: int,
) -> tuple[float, FloatArray, FloatArray]:
    """Returns (epsilon, tops, events) that small moves from some masses lead to.

    A move multiplies one mass; it stays if the advantage at the present epsilon is larger. That
    epsilon rises as soon as the attack shows more.

    Args:
        world: Of the mechanisms.
        gamma: Of the geometric law.
        start: (epsilon, tops, events); the epsilon is not used.
        level: The epsilon to begin with, which the masses may be too weak to show.
        delta: Of the epsilon.
        moves: About how many are tried, at most.
    """

    def outcome(epsilon: float) -> Outcome:
        return world.geometric(shares_of(world.on, tops, events), gamma, epsilon)

    def shown(of: Outcome) -> float:
        return shown_epsilon(of.on, of.off, delta)

    def height(of: Outcome) -> float:
        return of.on - math.exp(level) * of.off

    tops, events = start[1].copy(), start[2].copy()
    found, step, tried = outcome(level), _FIRST, 0
    while step > _LAST and tried < moves:
        moved = False
        for masses, seed in zip((tops, events), _SEEDS, strict=True):
            for at in np.ndindex(masses.shape):
                old = float(masses[at])
                ways = [min(old * math.exp(way * step), 0.999) for way in (1.0, -1.0)]
                for new in ways if old > 1e-12 else [seed * step]:
                    masses[at] = new
                    other = outcome(level)
                    tried += 1
                    if height(other) > height(found) + 1e-6 * delta:
                        found, moved = other, True
                        break
                    masses[at] = old
                if shown(found) > level:
                    level = shown(found)
                    found = outcome(level)
        step = step if moved else 0.5 * step
    return shown(found), tops, events
