"""The search for mechanisms under policies that see earlier outputs.

Ascent over the ranks of outputs, then moves of single masses.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from optuna_dp.accounting.dominating_pairs import DominatingPair
from optuna_dp.attacks.history_attack import HistoryAttack, Outcome, shares_of
from optuna_dp.attacks.policy_search import Found, rows, shown_epsilon, truncated
from optuna_dp.attacks.selection_attack import SelectionAttack
from optuna_dp.core.arrays import FloatArray
from optuna_dp.selection.laws.base import TrialCount

# Laws up to so many runs are searched as they are, with so many runs followed in all.
_SHORT, _SLOTS = 300, 2000
# Blocks and events of the lambdas to begin with, by those of the plain attack.
_STARTS = (
    ((0.2, 1.0, 2.0), (1.0, 1.0, 1.0)),
    ((0.05, 0.3, 3.0), (1.0, 1.0, 1.0)),
    ((0.02, 0.1, 10.0), (1.0, 0.3, 0.1)),
)
# Points of the policies' lattices per root mean square of the loss: to look around, to report.
_COARSE, _FINE = 4.0, 6.0
# An ascent that ends without an event is begun again at an epsilon smaller by so much.
_LOWER = (0.0, 0.5, 1.0, 2.0)

# Small moves of single masses: the logarithm of the first ones, and of the last.
_FIRST, _LAST = 0.5, 0.06
# What a mass of nothing begins with, for blocks and for events.
_SEEDS = (1e-4, 1e-6)

_Climbed = tuple[float, FloatArray, FloatArray]


def search_history(
    pair: DominatingPair, trials: TrialCount, c: float, big_c: float, start: SelectionAttack
) -> Found | None:
    """Returns the best attack found by ascent over the ranks of outputs, if there is one."""
    delta, plain = start.delta, start.epsilon
    spread = math.sqrt(float(np.sum(pair.mass * pair.losses**2)))
    # Policies at the bounds can about square the likelihood ratio they steer by.
    reach = 1.6 * plain + 6.0 * spread
    geometric = trials.is_memoryless
    gamma = 1.0 / max(trials.mean, 1.0 + 1e-6)
    pmf, tail = (np.zeros(0), 0.0) if geometric else truncated(trials, delta, 1.5 * plain)
    share = min((1.0 - c) / (big_c - c), (big_c - 1.0) / (big_c - c))
    prior = (share, 1.0 - 2.0 * share, share) if share < 0.5 - 1e-9 else (0.5, 0.5)

    def climb(
        points: float,
        tops: FloatArray,
        events: FloatArray,
        level: float,
        own_law: bool,
        moves: int,
    ) -> _Climbed:
        world = HistoryAttack(pair, (c, big_c), prior, reach, points)

        def outcome(shares: FloatArray, epsilon: float) -> Outcome:
            if geometric or not own_law:
                return world.geometric(shares, gamma, epsilon)
            result = world.finite(shares, pmf, epsilon)
            return replace(result, off=result.off + tail)

        # Masses too weak for an epsilon lose less the less they are: up from there lies nothing.
        for lower in _LOWER:
            climbed = _climb(world.on, outcome, tops, events, delta, level - lower, moves)
            if math.isfinite(climbed[0]):
                break
        return climbed

    # Long laws are searched under the geometric law of their mean, which is solved at once.
    own_law = geometric or pmf.size <= _SHORT
    tries = 60 if geometric or not own_law else max(6, _SLOTS // pmf.size)
    middle = min(max(start.blocks[-1] if start.blocks else 0.5, 1e-6), 0.999)
    part = min(max(start.masses[-1] if start.masses else delta, 1e-300), 0.999)
    size = (len(prior), 1)
    looks = [
        climb(
            _COARSE,
            np.minimum(middle * np.array(lower[: len(prior)]), 0.999).reshape(size),
            np.minimum(part * np.array(upper[: len(prior)]), 0.999).reshape(size),
            plain,
            own_law,
            tries // 2,
        )
        for lower, upper in _STARTS
    ]
    single = max(looks, key=_level)
    # With each rank cut in two, and then on a finer lattice.
    refined = climb(_COARSE, *_cut(single)[1:], max(single[0], plain), own_law, tries)
    best = max(single, refined, key=_level)
    if geometric:
        # Ranks in one part may gain more there than those in two.
        begins = [single] if best is single else [single, refined]
        fine = [climb(_FINE, *begin[1:], max(begin[0], plain), own_law, tries) for begin in begins]
        best = max([best, *fine], key=_level)
        if best[1].shape[1] == 1:  # where ranks in two parts were no better
            world = HistoryAttack(pair, (c, big_c), prior, reach, _FINE)
            for parts, moves in ((1, 120), (2, 60)):
                begin = best if parts == 1 else _cut(best)
                level = best[0] if math.isfinite(best[0]) else plain
                polished = _polished(world, gamma, begin, level, delta, moves)
                best = max(best, polished, key=_level)
    elif not own_law:
        best = climb(_COARSE, *best[1:], plain, True, 2)
    level, tops, events = best
    if not math.isfinite(level):
        return None
    return level, prior, rows(tops), rows(events)


def _climb(
    mass: FloatArray,
    outcome: Callable[[FloatArray, float], Outcome],
    tops: FloatArray,
    events: FloatArray,
    delta: float,
    level: float,
    moves: int,
) -> tuple[float, FloatArray, FloatArray]:
    """Returns what an ascent from one mechanism reaches: (epsilon, tops, events).

    Every output goes to the rank where it is worth most, given the others and the policy, or a
    part of all outputs does, if all of them at once make matters worse.

    Args:
        mass: O-mass of the outputs.
        outcome: Of shares and the epsilon that the policy is best at.
        tops: Shape (lambdas, m).
        events: Shape (lambdas, m).
        delta: Of the epsilon.
        level: The epsilon to begin with.
        moves: How many mechanisms may be tried.
    """
    shares = shares_of(mass, tops, events)
    result = outcome(shares, level)
    part = 1.0
    for _ in range(moves):
        height = result.on - math.exp(level) * result.off
        best = result.gradient.argmax(axis=2)[:, :, None]
        target = np.zeros_like(shares)
        np.put_along_axis(target, best, 1.0, axis=2)
        proposal = (1.0 - part) * shares + part * target
        new = outcome(proposal, level)
        if new.on - math.exp(level) * new.off <= height + 1e-6 * abs(height):
            part *= 0.5
            if part < 1e-3:
                break
            continue
        shares, result, part = proposal, new, min(1.0, 2.0 * part)
        reached = shown_epsilon(result.on, result.off, delta)
        if reached > level + 1e-7:
            level = reached
            result = outcome(shares, level)
    # Said again by masses alone, as it is reported.
    masses = np.einsum("ijr,j->ir", shares, mass)
    tops, events = masses[:, :0:-2], masses[:, -2::-2]
    shares = shares_of(mass, tops, events)
    for _ in range(2):
        result = outcome(shares, level)
        level = shown_epsilon(result.on, result.off, delta)
        if not math.isfinite(level):
            break
    return level, tops, events


def _cut(attack: _Climbed) -> _Climbed:
    """Returns the same with each rank cut in two."""
    tops, events = (np.concatenate([masses, masses], axis=1) / 2.0 for masses in attack[1:])
    return attack[0], tops, events


def _level(attack: _Climbed) -> float:
    return attack[0]


def _polished(
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
    best, step, evaluations = outcome(level), _FIRST, 0
    while step > _LAST and evaluations < moves:
        is_better = False
        for masses, seed in zip((tops, events), _SEEDS, strict=True):
            for at in np.ndindex(masses.shape):
                old = float(masses[at])
                ways = [min(old * math.exp(way * step), 0.999) for way in (1.0, -1.0)]
                for new in ways if old > 1e-12 else [seed * step]:
                    masses[at] = new
                    neighbour = outcome(level)
                    evaluations += 1
                    if height(neighbour) > height(best) + 1e-6 * delta:
                        best, is_better = neighbour, True
                        break
                    masses[at] = old
                if shown(best) > level:
                    level = shown(best)
                    best = outcome(level)
        step = step if is_better else 0.5 * step
    return shown(best), tops, events
