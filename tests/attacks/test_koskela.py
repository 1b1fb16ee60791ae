"""Koskela, Redberg & Wang's bound: never below the truth, never below the profile bound."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from refusals import refuses
from slow_cases import slow_if

from optuna_dp import Binomial, Geometric, Logarithmic, NegativeBinomial, Poisson, TrialCount
from optuna_dp.accounting import events
from optuna_dp.accounting.dominating_pairs import DominatingPair
from optuna_dp.accounting.kinds.approximate import randomized_response
from optuna_dp.accounting.run_profile import pair_of
from optuna_dp.attacks.comparisons import koskela_applies, koskela_delta
from optuna_dp.selection.bounds.profile_bound import DataProfile

LAWS: list[TrialCount] = [
    Geometric(10.0),
    Logarithmic(4.0),
    NegativeBinomial(shape=-0.5, mean=3.0),
    NegativeBinomial(shape=3.0, mean=20.0),
    Poisson(0.4),
    Poisson(10.0),
    Binomial(12, 4.0),
    Binomial(3, 3.0),
    Binomial(1, 0.5),
]
EPSILONS = np.array([-1.0, -0.2, 0.0, 0.3, 0.7, 1.5, 3.0, 6.0])


def random_pair(rng: np.random.Generator, atoms: int) -> DominatingPair:
    on = rng.dirichlet(np.ones(atoms))
    off = on * np.exp(rng.normal(size=atoms) * rng.choice([0.1, 0.5, 1.5]))
    if rng.random() < 0.3:
        off[0] = 0.0
    off /= off.sum()
    infinite = float(on[off == 0.0].sum())
    on, off = on[off > 0.0], off[off > 0.0]
    order = np.argsort(np.log(on / off))
    return DominatingPair(np.log(on / off)[order], on[order], infinite, 0.0)


@pytest.mark.parametrize("trials", slow_if(lambda law: law == Binomial(3, 3.0), LAWS))
def test_never_below_the_profile_bound(trials: TrialCount) -> None:
    rng = np.random.default_rng(5)
    pairs = [random_pair(rng, int(rng.integers(2, 7))) for _ in range(12)]
    pairs += [pair_of(events.gaussian(2.0)), randomized_response(0.3, 1e-4)]
    for pair in pairs:
        for p in (pair, pair.reversed()):
            theirs = koskela_delta(p, trials, EPSILONS)
            ours = DataProfile(p, trials).delta(EPSILONS)
            assert np.all((theirs >= 0.0) & (theirs <= 1.0))
            # The grid of the profile bound errs upward by its step squared.
            assert np.all(ours <= theirs * (1.0 + 1e-5) + 1e-5 * min(1.0, trials.mean))


@pytest.mark.parametrize("trials", LAWS)
def test_never_below_the_truth(trials: TrialCount) -> None:
    """Exact laws of the winner, over all orders of four outputs."""
    rng = np.random.default_rng(6)
    for _ in range(8):
        pair = random_pair(rng, 4)
        on = np.append(pair.mass, pair.infinite_mass)
        off = np.append(pair.mass_prime, 0.0)
        bound = koskela_delta(pair, trials, EPSILONS)
        for order in itertools.permutations(range(on.size)):
            laws = []
            for law in (on[list(order)], off[list(order)]):
                edges = np.clip(np.concatenate([[0.0], np.cumsum(law)]), 0.0, 1.0)
                laws.append(np.diff(trials.pgf(edges)))
            gaps = laws[0][:, None] - np.exp(EPSILONS) * laws[1][:, None]
            none = trials.pmf(0) * np.maximum(0.0, -np.expm1(EPSILONS))
            assert np.all(np.maximum(gaps, 0.0).sum(axis=0) + none <= bound + 1e-11)


def test_the_published_formula() -> None:
    """Symmetric pair, geometric law: m delta(eps - 2 log(e^a + (1 - gamma)/gamma delta(a)))."""
    pair, mean, eps = randomized_response(0.5), 10.0, 1.7
    best = min(
        mean
        * float(
            pair.delta(eps - 2.0 * math.log(math.exp(a) + (mean - 1.0) * float(pair.delta(a))))
        )
        for a in np.linspace(0.0, 2.0, 4001)
    )
    assert float(koskela_delta(pair, Geometric(mean), eps)) == pytest.approx(min(1.0, best), 1e-3)


def test_poisson_is_the_limit_of_the_binomial() -> None:
    pair = pair_of(events.gaussian(3.0))
    many = koskela_delta(pair, Binomial(10**6, 5.0), EPSILONS)
    assert many == pytest.approx(koskela_delta(pair, Poisson(5.0), EPSILONS), rel=1e-3)


def test_other_laws_are_refused_by_name() -> None:
    capped = Geometric(5.0).capped(3)
    assert koskela_applies(Geometric(5.0))
    assert not koskela_applies(capped)
    assert not koskela_applies(Geometric(5.0), (0.5, 2.0))
    with refuses("trials"):
        koskela_delta(DominatingPair.identity(), capped, 1.0)


def test_a_run_of_no_cost_costs_nothing_and_one_that_reveals_all_costs_all() -> None:
    for trials in LAWS:
        free = koskela_delta(DominatingPair.identity(), trials, [0.0, 1.0])
        if not (isinstance(trials, Binomial) and trials.mean == trials.n):
            assert np.all(free == 0.0)
        assert np.all(koskela_delta(DominatingPair.infinite(), trials, [0.0, 9.0]) > 0.3)
