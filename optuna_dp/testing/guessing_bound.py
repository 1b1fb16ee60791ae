"""Bounds how often members of a private training can be guessed right.

Each of m canaries is in the training by a fair coin of its own. Somebody who sees the result makes
``guesses`` guesses of the form "canary j was in" or "was out". If a training is f-DP, then for
every set of counts {i, ..., guesses}, with p_i the probability of exactly i right guesses,

    sum_{k >= i} (k / m) p_k  <=  F( sum_{k >= i-1} ((guesses - k) / m) p_k ),    F = 1 - f.

Proof (Mahloujifar, Melis & Chaudhuri 2024, arXiv 2410.22235, whose Theorem 3.2 this is): turn the
coin of canary j. "Guess j is right, and at least i are right" becomes "guess j is wrong, and at
least i - 1 are right" in a training on a neighbouring data set. So the probability of the one is
at most F of the other; average over j and over the coins, and use that F is concave. The claim of
(epsilon, delta)-DP is the special case of Steinke, Nasr & Jagielski 2023 (arXiv 2305.08846).

F is kept as the least of finitely many lines, so that what is computed can only be too large: an
honest training is never accused for want of a finer grid.

===========  ============================================================
code         notation
===========  ============================================================
``right``    R_i = sum_{k >= i} (k / m) p_k
``wrong``    H_i = sum_{k >= i} ((guesses - k) / m) p_k
``Lines``    F(x) = min over lines of intercept + slope x
===========  ============================================================
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from optuna_dp.arrays import FloatArray

_GRID = np.concatenate([np.linspace(0, 3, 61), np.linspace(3.1, 12, 60), [15.0, 20.0, 30.0]])
_ROUNDING = 1e-12


class Lines(NamedTuple):
    """F, the largest P(A) that goes with a given P'(A) on a neighbour, as the least of lines."""

    intercept: FloatArray
    slope: FloatArray

    def inverse(self, value: float) -> float:
        """Returns the least x with F(x) >= ``value``."""
        return max(0.0, float(np.max((value - self.intercept) / self.slope)))


def lines_of(delta_of: Callable[[float], float]) -> Lines:
    """Returns F of everything whose delta at epsilon is at most ``delta_of(epsilon)``.

    Args:
        delta_of: Of an epsilon of at least 0, for both directions of neighbours.
    """
    delta = np.array([delta_of(float(epsilon)) for epsilon in _GRID])
    known = delta < 1.0
    return _both_ways(_GRID[known], delta[known])


def lines_at(epsilon: float, delta: float) -> Lines:
    """Returns F of (epsilon, delta)-DP alone."""
    return _both_ways(np.array([epsilon]), np.array([delta]))


def _both_ways(epsilon: FloatArray, delta: FloatArray) -> Lines:
    # P(A) <= delta + e^epsilon P'(A), and the same of the complements with the worlds exchanged.
    # The last line, which is above 1, is for claims that say nothing.
    return Lines(
        np.concatenate([delta, 1.0 - np.exp(-epsilon) * (1.0 - delta), [1.0]]),
        np.concatenate([np.exp(epsilon), np.exp(-epsilon), [1.0]]),
    )


def possible(chance: float, right: int, guesses: int, canaries: int, lines: Lines) -> bool:
    """Returns whether ``right`` or more right guesses can have at least this chance.

    Builds the law of the number of right guesses that needs the least total mass, from the top
    down; if even that is more than one, no law is left. Compared with a linear program in
    ``tests/testing/test_guessing_bound.py``.

    Args:
        chance: In (0, 1].
        right: A number of right guesses, at most ``guesses``.
        guesses: How many guesses are made, at most ``canaries``.
        canaries: m.
        lines: F of the claim.
    """
    whole = guesses / canaries
    hit, miss = right * chance / canaries, (guesses - right) * chance / canaries
    for count in range(right - 1, -1, -1):
        needed = lines.inverse(hit)
        if needed > miss:
            hit += count / (guesses - count) * (needed - miss)
            miss = needed
        if hit + miss > whole * (1.0 + _ROUNDING):
            return False
    return True


def p_value(right: int, guesses: int, canaries: int, lines: Lines) -> float:
    """Returns the largest chance of at least ``right`` right guesses, from above."""
    if possible(1.0, right, guesses, canaries, lines):
        return 1.0
    low, high = -60.0, 0.0  # logarithms
    while high - low > 1e-4:
        middle = (low + high) / 2
        can = possible(math.exp(middle), right, guesses, canaries, lines)
        low, high = (middle, high) if can else (low, middle)
    return math.exp(high)


def refuted_epsilon(
    right: int, guesses: int, canaries: int, *, delta: float, error: float
) -> float:
    """Returns the largest epsilon for which (epsilon, delta)-DP is refuted; 0 if none is.

    As in :func:`possible`; ``error`` is the largest chance of refuting what is true.
    """

    def refuted(epsilon: float) -> bool:
        return not possible(error, right, guesses, canaries, lines_at(epsilon, delta))

    if not refuted(0.0):
        return 0.0
    low, high = 0.0, 1.0
    while high < 64.0 and refuted(high):
        low, high = high, 2.0 * high
    while high - low > 1e-4:
        middle = (low + high) / 2
        low, high = (middle, high) if refuted(middle) else (low, middle)
    return low
