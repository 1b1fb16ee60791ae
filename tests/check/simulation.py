"""Whole searches by the hundred thousand: the real laws of T, densities and winner, small outputs.

A run is a draw of a hyperparameter from the prior times a density ratio, and a draw of one of
finitely many outputs. Outputs are ordered by their score; the winner is the best, ties broken by
an independent uniform per run, as :func:`optuna_dp.samplers.selection.winner.choose` does. The
random numbers are numpy's: nothing here may face real data.

The faults in :class:`Faults` are for auditing the audit: each is a way in which the guarantee has
been lost in practice.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from optuna_dp.core.arrays import FloatArray, IntArray
from optuna_dp.selection.laws.base import TrialCount

# (state of each search, shape (n,)) -> density ratio of each hyperparameter, shape (n, L).
Densities = Callable[[IntArray], FloatArray]
# (state, hyperparameter, output) -> next state, all of shape (n,).
Remember = Callable[[IntArray, IntArray, IntArray], IntArray]

NOTHING = -1


@dataclass(frozen=True, eq=False)
class Runs:
    """One run's law on one data set.

    Attributes:
        prior: Mass of each hyperparameter, shape (L,).
        outputs: Probability of each output given the hyperparameter, shape (L, O).
        scores: Score of each output, shape (O,); NaN: the run failed, the lowest outcome.
        durations: Of each hyperparameter, shape (L,); matters to faulty searches only.
    """

    prior: FloatArray
    outputs: FloatArray
    scores: FloatArray
    durations: FloatArray | None = None


@dataclass(frozen=True)
class Faults:
    """Ways to lose the guarantee.

    Attributes:
        count_told: The number of runs is part of the output.
        failures_repeated: A failed run is repeated for free.
        first_wins: Among equal scores the first to complete wins.
    """

    count_told: bool = False
    failures_repeated: bool = False
    first_wins: bool = False


def simulate(
    runs: Runs,
    trials: TrialCount,
    searches: int,
    rng: np.random.Generator,
    *,
    densities: Densities | None = None,
    remember: Remember | None = None,
    initial_state: int = 0,
    faults: Faults | None = None,
) -> IntArray:
    """Returns what each search releases, coded as one number; :data:`NOTHING` for no winner.

    Args:
        densities: The adaptive policy's density relative to the prior, by state; None: 1.
        remember: How a policy's state follows from its runs; None: it stays.
    """
    wrong = faults or Faults()
    count = draw_counts(trials, searches, rng)
    failed = np.isnan(runs.scores)
    score_of = np.where(failed, -np.inf, runs.scores)
    best = np.full(searches, -np.inf)
    tie = np.full(searches, -1.0)
    winner = np.full(searches, NOTHING, dtype=np.int64)
    state = np.full(searches, initial_state, dtype=np.int64)
    cumulative = np.cumsum(runs.outputs, axis=1)
    plain = np.cumsum(runs.prior)
    width = runs.outputs.shape[1]
    live = np.flatnonzero(count > 0)
    made = 0
    while live.size:
        if densities is None:
            which = np.searchsorted(plain, rng.random(live.size), side="right")
            which = np.minimum(which, plain.size - 1)
        else:
            which = _pick(np.cumsum(densities(state[live]) * runs.prior, axis=1), rng)
        output = _pick(cumulative[which], rng)
        while wrong.failures_repeated and failed[output].any():
            again = np.flatnonzero(failed[output])
            output[again] = _pick(cumulative[which[again]], rng)
        if wrong.first_wins and runs.durations is not None:
            uniform = -runs.durations[which] + 1e-9 * rng.random(live.size)
        else:
            uniform = rng.random(live.size)
        value = score_of[output]
        wins = ~failed[output] & (
            (value > best[live])
            | ((value == best[live]) & ((uniform > tie[live]) | (winner[live] == NOTHING)))
        )
        at = live[wins]
        best[at], tie[at] = value[wins], uniform[wins]
        winner[at] = which[wins] * width + output[wins]
        if remember is not None:
            state[live] = remember(state[live], which, output)
        made += 1
        live = live[count[live] > made]
    if wrong.count_told:
        cells = runs.outputs.size + 1
        winner = winner + 1 + cells * count
    return winner


def columns(found: IntArray, runs: Runs, faults: Faults | None = None) -> FloatArray:
    """Returns what :func:`simulate` coded as numbers side by side, as somebody would read it.

    Returns:
        Shape (n, 3): hyperparameter, output, and the number of runs if it was revealed, else 0. A
        search without a winner has -1 twice.
    """
    winner, count = found, np.zeros_like(found)
    if faults is not None and faults.count_told:
        count, winner = np.divmod(found, runs.outputs.size + 1)
        winner = winner - 1
    which, output = np.divmod(winner, runs.outputs.shape[1])
    return np.stack([which, np.where(winner < 0, -1, output), count], axis=1).astype(np.float64)


def draw_counts(trials: TrialCount, size: int, rng: np.random.Generator) -> IntArray:
    """Draws T for many searches by inversion of its exact distribution function.

    The same law as :meth:`optuna_dp.TrialCount.sample` up to the rounding of a double, which a
    simulation cannot see.
    """
    last = trials.quantile(1.0 - 1e-12)
    table = np.cumsum(trials.pmf(np.arange(last + 1)))
    return np.asarray(np.searchsorted(table, rng.random(size), side="right"), dtype=np.int64)


def _pick(cumulative: FloatArray, rng: np.random.Generator) -> IntArray:
    """One index per row of cumulative probabilities."""
    u = rng.random(len(cumulative))[:, None] * cumulative[:, -1:]
    index = np.minimum((cumulative <= u).sum(axis=1), cumulative.shape[1] - 1)
    return np.asarray(index, dtype=np.int64)
