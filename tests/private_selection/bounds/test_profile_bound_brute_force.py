"""The profile bound against exact selection laws: every order, every event, the best policies.

Two adversaries are computed exactly. Without adaptivity the law of the winner is a difference of
generating functions. With it, the policy sees the data, the history, the event to be told apart
and even T: its best choice is a dynamic program over the best output so far, in which each run's
density is a vertex of {c <= f <= C, mean one}. Both compare with the bound

* as a whole, delta_A(eps) <= bound(eps), and
* output by output, A(y) - e^eps A'(y) <= P0(y) Phi(e^(eps - L(y))),

and the same comparison must catch every sabotaged variant of the bound.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import pytest
from private_selection.bounds.discrete_runs import envelope, pair_of_laws, random_laws

from optuna_dp import Binomial, Geometric, Logarithmic, NegativeBinomial, Poisson, TrialCount
from optuna_dp.accounting.dominating_pairs import DominatingPair
from optuna_dp.arrays import FloatArray
from optuna_dp.private_selection.bounds import profile_bound
from optuna_dp.private_selection.bounds.profile_bound import DataProfile

EPSILONS = np.array([-1.5, -0.3, 0.0, 0.1, 0.4, 0.8, 1.3, 2.0, 3.0, 5.0])
TOLERANCE = 1e-11
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
Bound = Callable[[DominatingPair, TrialCount, tuple[float, float]], DataProfile]


# --- instances -----------------------------------------------------------------------------


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


def violations(profile: DataProfile, selections: Iterator[Selection]) -> tuple[int, int]:
    """How often the bound on delta, and the bound on single outputs, are too low."""
    factor = np.exp(EPSILONS)
    bound = profile.delta(EPSILONS)
    whole = single = 0
    for s in selections:
        gain = s.events[0][:, None] - factor * s.events[1][:, None]
        reached = np.maximum(gain.max(axis=0), 0.0) + s.none * np.maximum(0.0, 1.0 - factor)
        whole += int(np.sum(reached > bound + TOLERANCE))
        for y in range(s.on.size):
            mine = gain[s.single == y]
            if mine.size and s.on[y] > 0.0:
                limit = s.on[y] * profile.phi(factor * s.off[y] / s.on[y])
                single += int(np.sum(mine.max(axis=0) > limit + TOLERANCE))
    return whole, single


# --- without adaptivity: all orders, ties included -----------------------------------------


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


def check_fixed(make: Bound, count: int, seed: int) -> tuple[int, int]:
    rng = np.random.default_rng(seed)
    whole = single = 0
    for i in range(count):
        on, off = random_laws(rng, int(rng.integers(2, 5)))
        trials = LAWS[i % len(LAWS)]
        profile = make(pair_of_laws(on, off), trials, (1.0, 1.0))
        a, b = violations(profile, fixed_selections(on, off, trials, rng))
        whole, single = whole + a, single + b
    return whole, single


def test_no_order_of_outputs_beats_the_bound() -> None:
    assert check_fixed(DataProfile, 120, seed=1) == (0, 0)


@pytest.mark.slow
def test_no_order_of_outputs_beats_the_bound_on_many_mechanisms() -> None:
    assert check_fixed(DataProfile, 360, seed=5) == (0, 0)


# --- policies that see the data ------------------------------------------------------------


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


def check_adaptive(make: Bound, count: int, seed: int) -> tuple[int, int]:
    rng = np.random.default_rng(seed)
    whole = single = 0
    for i in range(count):
        prior, rank = any_settings(rng) if i % 2 else sharp_settings(rng)
        settings, size = rank.shape
        runs = np.zeros((settings, rank.size))
        runs_prime = runs.copy()
        pairs = []
        for h in range(settings):
            on, off = random_laws(rng, size)
            if i % 2 == 0 and (h > 0 or i % 4 == 0):
                # Runs that tell next to nothing: all that is left is what the policy does.
                off = on if h else 0.98 * on + 0.02 * off
            runs[h, rank[h]], runs_prime[h, rank[h]] = on, off
            pairs.append(pair_of_laws(on, off))
        bounds = [(1.0, 1.0), (0.9, 1.1), (0.75, 2.0), (0.3, 1.5), (0.05, 6.0)][i % 5]
        trials = LAWS[i % len(LAWS)]
        profile = make(envelope(pairs), trials, bounds)
        selection = adaptive_selection(runs, runs_prime, prior, trials, bounds, rng)
        a, b = violations(profile, iter([selection]))
        whole, single = whole + a, single + b
    return whole, single


def test_no_policy_beats_the_bound() -> None:
    assert check_adaptive(DataProfile, 100, seed=2) == (0, 0)


@pytest.mark.slow
def test_no_policy_beats_the_bound_on_many_instances() -> None:
    assert check_adaptive(DataProfile, 360, seed=3) == (0, 0)


# --- sabotage ------------------------------------------------------------------------------


def _sabotaged_lines(edit: Callable) -> type:
    class Sabotaged(profile_bound.Lines):
        def at(self, p: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            reached, missed = self.trade_off(p)
            lo = np.maximum(self.c * p, 1.0 - self.big_c * (1.0 - p))
            hi = np.minimum(self.big_c * reached, 1.0 - self.c * missed)
            gain, cost = edit(self, p, reached, lo, hi)
            return gain, cost

    return Sabotaged


LINES = {
    "phi' arguments swapped": lambda s, p, g, lo, hi: (
        s.big_c * s.slope(1 - hi),
        s.c * s.slope(1 - lo),
    ),
    "G replaced by p": lambda s, p, g, lo, hi: (
        s.big_c * s.slope(1 - lo),
        s.c * s.slope(1 - np.minimum(s.big_c * p, 1 - s.c * (1 - p))),
    ),
    "factor C missing": lambda s, p, g, lo, hi: (s.slope(1 - lo), s.c * s.slope(1 - hi)),
    "factor c missing": lambda s, p, g, lo, hi: (s.big_c * s.slope(1 - lo), s.slope(1 - hi)),
    "p instead of lo": lambda s, p, g, lo, hi: (
        s.big_c * s.slope(1 - p),
        s.c * s.slope(1 - hi),
    ),
    "lo instead of hi": lambda s, p, g, lo, hi: (
        s.big_c * s.slope(1 - lo),
        s.c * s.slope(1 - np.maximum(s.c * g, 1 - s.big_c * (1 - g))),
    ),
    "G instead of hi": lambda s, p, g, lo, hi: (
        s.big_c * s.slope(1 - lo),
        s.c * s.slope(1 - g),
    ),
}
SEEN_WITHOUT_ADAPTIVITY = {"phi' arguments swapped", "G replaced by p"}


COARSE: Bound = functools.partial(DataProfile, step=0.02)  # fast, and as sound


def caught(make: Bound, fixed: bool) -> bool:
    check = check_fixed if fixed else check_adaptive
    return check(make, 40, seed=4) != (0, 0)


def test_the_comparison_accepts_the_bound_itself() -> None:
    assert not caught(COARSE, fixed=True)
    assert not caught(COARSE, fixed=False)


@pytest.mark.parametrize("name", LINES)
def test_wrong_lines_are_caught(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(profile_bound, "Lines", _sabotaged_lines(LINES[name]))
    assert caught(COARSE, fixed=False)
    if name in SEEN_WITHOUT_ADAPTIVITY:
        assert caught(COARSE, fixed=True)


def test_unedited_lines_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    """The harness for sabotage is not what is caught."""

    def faithful(s, p, g, lo, hi):  # type: ignore[no-untyped-def]
        return s.big_c * s.slope(1 - lo), s.c * s.slope(1 - hi)

    monkeypatch.setattr(profile_bound, "Lines", _sabotaged_lines(faithful))
    assert not caught(COARSE, fixed=False)


class WithoutInfiniteMass(DominatingPair):
    """Forgets the outputs that only D has when the profile is read."""

    def mixture(self, eps: FloatArray, kinks: FloatArray, weights: FloatArray) -> FloatArray:
        there = super().mixture(eps, kinks, weights)
        return np.maximum(there - self.infinite_mass * weights.sum(), 0.0)


def test_a_missing_infinite_mass_is_caught() -> None:
    def forgetful(
        pair: DominatingPair, trials: TrialCount, bounds: tuple[float, float]
    ) -> DataProfile:
        broken = WithoutInfiniteMass(pair.losses, pair.mass, pair.infinite_mass, pair.null_mass)
        return COARSE(broken, trials, bounds)

    for check in (check_fixed, check_adaptive):
        assert check(forgetful, 60, seed=4)[0] > 0


def test_the_wrong_direction_is_caught() -> None:
    def backwards(
        pair: DominatingPair, trials: TrialCount, bounds: tuple[float, float]
    ) -> DataProfile:
        return COARSE(pair.reversed(), trials, bounds)

    assert caught(backwards, fixed=True)
    assert caught(backwards, fixed=False)
