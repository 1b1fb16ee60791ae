"""Selections computed exactly: without adaptivity, and under the best policies that see the data.

Without adaptivity the law of the winner is a difference of generating functions. With it, the
policy sees the data, the history, the event to be told apart and even T: its best choice is a
dynamic program over the best output so far, in which each run's density is a vertex of
{c <= f <= C, mean one}. Shares no code with the bounds.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from optuna_dp import Binomial, Geometric, Logarithmic, NegativeBinomial, Poisson, TrialCount

LAWS: list[TrialCount] = [
    Geometric(2.0),
    Geometric(12.0),
    Logarithmic(3.0),
    NegativeBinomial(shape=-0.5, mean=2.5),
    NegativeBinomial(shape=2.0, mean=4.0),
    Poisson(0.3),
    Poisson(3.0),
    Binomial(4, 2.5),
    Binomial(3, 3.0),
    Binomial(1, 1.0),
    Geometric(8.0).capped(3),
    Poisson(2.0).capped(2),
]


@dataclass
class Selection:
    """The winner's exact probabilities, and what the bound may know.

    ``events``: (A(S), A'(S)) for events S, ``single[i]`` the output that event i consists of
    (-1 for larger events); ``on``, ``off``: one run under the prior.
    """

    events: tuple[np.ndarray, np.ndarray]
    single: np.ndarray
    on: np.ndarray
    off: np.ndarray
    none: float


def fixed_selections(
    on: np.ndarray, off: np.ndarray, trials: TrialCount, rng: np.random.Generator
) -> Iterator[Selection]:
    """The winner's laws for every order of the outputs; some orders have ties."""
    n = on.size
    members = np.array(list(itertools.product([False, True], repeat=n)))[1:]
    single = np.where(members.sum(axis=1) == 1, members.argmax(axis=1), -1)
    for order in itertools.permutations(range(n)):
        # Ties: neighbours in the order share a score; an independent uniform breaks them.
        joined = rng.random(n) < 0.15
        rank = np.empty(n, dtype=int)
        rank[list(order)] = np.cumsum(~joined)
        laws = []
        for law in (on, off):
            above = np.array([law[rank > r].sum() for r in rank])
            level = np.array([law[rank == r].sum() for r in rank])
            group = trials.pgf(np.clip(1 - above, 0, 1)) - trials.pgf(
                np.clip(1 - above - level, 0, 1)
            )
            laws.append(np.where(level > 0, group * law / np.maximum(level, 1e-300), 0.0))
        events = (members @ laws[0], members @ laws[1])
        yield Selection(events, single, on, off, float(trials.pmf(0)))


def density_vertices(prior: np.ndarray, c: float, big_c: float) -> np.ndarray:
    """All vertices of {c <= f <= C, sum prior f = 1}, as probabilities prior * f."""
    rows = []
    for order in itertools.permutations(range(prior.size)):
        f = np.full(prior.size, c)
        left = 1.0 - c
        for i in order:
            f[i] += min(big_c - c, left / prior[i])
            left -= prior[i] * (f[i] - c)
        rows.append(prior * f)
    return np.unique(np.array(rows), axis=0)


def best_policy(
    runs: np.ndarray, choices: np.ndarray, trials: TrialCount, inside: np.ndarray, best: Callable
) -> tuple[np.ndarray, float]:
    """The extreme of P[winner in S] over policies, for every event S, and the mass cut off.

    Args:
        runs: Law of a run's output given its hyperparameters, shape (hyperparameters, outputs),
            outputs in growing order.
        choices: Probabilities of the hyperparameters a policy may choose, shape (choices, ...).
        trials: The law of T, cut off where its tail is negligible.
        inside: Which outputs belong to which event, shape (events, outputs).
        best: ``np.max`` or ``np.min``.
    """
    outputs = runs.shape[1]
    # Value of ending with best-so-far b; the last column is "no run yet".
    value = np.column_stack([inside.astype(float), np.zeros(len(inside))])
    after = np.maximum(np.arange(outputs)[:, None], np.arange(outputs)[None, :])
    after = np.column_stack([after, np.arange(outputs)])
    total = np.zeros(len(inside))
    longest = min(80, trials.maximum or 80)
    covered = float(trials.pmf(0))
    for k in range(1, longest + 1):
        # (events, b) <- extreme over choices of sum over runs of the value of max(b, y).
        drawn = np.einsum("hy,syb->hsb", runs, value[:, after])
        value = best(np.einsum("ch,hsb->csb", choices, drawn), axis=0)
        weight = float(trials.pmf(k))
        total += weight * value[:, -1]
        covered += weight
    return total, max(0.0, 1.0 - covered)


def events_of(outputs: int, rng: np.random.Generator) -> np.ndarray:
    """All events of few outputs; of many, the single ones, those above a rank, and some more."""
    if outputs <= 6:
        return np.array(list(itertools.product([False, True], repeat=outputs)))[1:]
    ranks = np.arange(outputs)
    above = ranks[None, :] >= ranks[:, None]
    return np.concatenate(
        [np.eye(outputs, dtype=bool), above, ~above[1:], rng.random((12, outputs)) < 0.5]
    )


def adaptive_selection(
    runs: np.ndarray,
    runs_prime: np.ndarray,
    prior: np.ndarray,
    trials: TrialCount,
    bounds: tuple[float, float],
    rng: np.random.Generator,
) -> Selection:
    inside = events_of(runs.shape[1], rng)
    choices = density_vertices(prior, *bounds)
    most, _ = best_policy(runs, choices, trials, inside, np.max)
    least, rest = best_policy(runs_prime, choices, trials, inside, np.min)
    single = np.where(inside.sum(axis=1) == 1, inside.argmax(axis=1), -1)
    return Selection(
        (most, least + rest), single, prior @ runs, prior @ runs_prime, float(trials.pmf(0))
    )


def any_settings(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """A prior over 2 or 3 settings, and the ranks of their 2 or 3 outputs: no structure."""
    settings = int(rng.integers(2, 4))
    size = 2 if settings == 3 else int(rng.integers(2, 4))
    rank = rng.permutation(settings * size).reshape(settings, size)
    return rng.dirichlet(np.full(settings, 3.0)), rank


def sharp_settings(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Settings that let a policy use all of [c, C]: a rare one in the middle, others around it.

    The middle setting can always have the largest (smallest) density, while the mass above it is
    moved to the setting below, or back.
    """
    rare = rng.uniform(0.001, 0.05)
    prior = np.append(rare, (1.0 - rare) * rng.dirichlet(np.full(3, 2.0)))
    return prior, np.array([[3, 4], [2, 5], [0, 1], [6, 7]])
