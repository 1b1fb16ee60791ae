"""The attack is a true lower bound: attainable pairs, exact laws, nothing above any bound."""

from __future__ import annotations

import functools
import itertools
import math

import numpy as np
import pytest
from dp_accounting import dp_event
from refusals import refuses
from slow_cases import slow_if

import optuna_dp as odp
from optuna_dp import Binomial, Geometric, Logarithmic, Poisson, TrialCount
from optuna_dp.accounting import events
from optuna_dp.accounting.dominating_pairs import DominatingPair
from optuna_dp.accounting.kinds.approximate import randomized_response
from optuna_dp.accounting.run_profile import pair_of
from optuna_dp.attacks.attainable import attainable_pairs
from optuna_dp.attacks.data_attack import trade_off_vertices
from optuna_dp.attacks.selection_attack import AttackSearch, strongest_attack
from optuna_dp.errors import UnsupportedEventError
from optuna_dp.selection.bounds.profile_bound import DataProfile

LAWS: list[TrialCount] = [
    Geometric(10.0),
    Logarithmic(5.0),
    Poisson(0.5),
    Poisson(8.0),
    Binomial(4, 3.0),
    Geometric(30.0).capped(20),
]
EPSILONS = np.array([-0.5, 0.0, 0.3, 1.0, 2.0, 4.0])
EVENTS = {
    "gaussian": events.gaussian(2.0),
    "laplace": events.laplace(1.3),
    "sgd": events.dp_sgd(noise_multiplier=1.0, sample_rate=0.01, steps=200),
    "many steps": events.dp_sgd(noise_multiplier=2.0, sample_rate=0.001, steps=100_000),
    "few steps": events.dp_sgd(noise_multiplier=0.8, sample_rate=0.3, steps=3),
    "laplace often": dp_event.SelfComposedDpEvent(events.laplace(5.0), 12),
    "mixed": events.compose(
        events.dp_sgd(noise_multiplier=1.0, sample_rate=0.02, steps=100),
        events.laplace(4.0),
        odp.approximate_dp(0.2, 1e-6),
    ),
    "approximate": odp.approximate_dp(0.7, 1e-4),
    "zcdp": events.zcdp(0.1),
}
QUICK = ("approximate", "zcdp")


@functools.cache
def attainable_of(name: str, relation: str = "add_or_remove_one") -> DominatingPair:
    (pair,) = attainable_pairs(EVENTS[name], relation)
    return pair


def attack_delta(pair, trials, epsilons):
    search = AttackSearch(pair, trials)
    return np.array([search.delta(float(epsilon)) for epsilon in epsilons])


@pytest.mark.parametrize(
    ("name", "relation"),
    slow_if(
        lambda name, _: name not in QUICK,
        [(name, "add_or_remove_one") for name in EVENTS]
        # dp-accounting has no profile for Laplace noise under replace-one.
        + [(name, "replace_one") for name in ("gaussian", "few steps", "approximate", "zcdp")],
    ),
)
def test_attainable_pairs_lie_just_below_dominating_ones(name: str, relation: str) -> None:
    attainable = attainable_of(name, relation)
    dominating = pair_of(EVENTS[name], relation)
    eps = np.linspace(0.0, 6.0, 61)
    for low, high in (
        (attainable, dominating),
        (attainable.reversed(), dominating.reversed()),
    ):
        assert np.all(low.delta(eps) <= high.delta(eps) + 1e-12)
        if name != "zcdp":  # its profile covers every mechanism of that rho, not only one
            assert low.epsilon(1e-4) == pytest.approx(high.epsilon(1e-4), rel=0.02, abs=1e-3)


@pytest.mark.parametrize("name", slow_if(lambda name: name not in QUICK, EVENTS))
def test_attacks_stay_below_the_bound(name: str) -> None:
    attainable = attainable_of(name)
    dominating = pair_of(EVENTS[name])
    for trials in LAWS:
        for low, high in (
            (attainable, dominating),
            (attainable.reversed(), dominating.reversed()),
        ):
            attack = attack_delta(low, trials, EPSILONS)
            assert np.all(attack <= DataProfile(high, trials).delta(EPSILONS) + 1e-12)


def test_a_gaussian_pair_is_exact() -> None:
    """The closed form of the Gaussian profile, from below and within rounding and bins."""
    from scipy.special import ndtr

    (pair,) = attainable_pairs(events.gaussian(1.5))
    eps = np.linspace(-1.0, 4.0, 51)
    mu = 1.0 / 1.5
    exact = ndtr(mu / 2 - eps / mu) - np.exp(eps) * ndtr(-mu / 2 - eps / mu)
    assert np.all(pair.delta(eps) <= exact + 1e-14)
    assert pair.delta(eps) == pytest.approx(exact, rel=1e-4, abs=1e-12)


def test_an_attack_is_an_event_of_an_exact_law() -> None:
    """Rebuild the attack's outputs one by one: the winner's laws give at least its delta."""
    on, off = np.array([0.2, 0.3, 0.4, 0.1]), np.array([0.45, 0.3, 0.24, 0.01])
    losses = np.log(on / off)
    pair = DominatingPair(losses, on)
    for trials in LAWS:
        best = np.zeros(EPSILONS.size)
        for order in itertools.permutations(range(4)):
            laws = []
            for law in (on[list(order)], off[list(order)]):
                edges = np.clip(np.concatenate([[0.0], np.cumsum(law)]), 0.0, 1.0)
                laws.append(np.diff(trials.pgf(edges)))
            gaps = laws[0][:, None] - np.exp(EPSILONS) * laws[1][:, None]
            best = np.maximum(best, np.maximum(gaps, 0.0).sum(axis=0))
        best += trials.pmf(0) * np.maximum(0.0, -np.expm1(EPSILONS))
        found = attack_delta(pair, trials, EPSILONS)
        # Outputs may be split at random, so no order of whole outputs is far ahead.
        assert np.all(found >= 0.97 * best - 1e-9)
        assert np.all(found <= DataProfile(pair, trials).delta(EPSILONS) + 1e-12)


def boundaries(
    pair: DominatingPair, masses: tuple[float, ...], blocks: tuple[float, ...]
) -> tuple[np.ndarray, np.ndarray]:
    """Start and end of every group of an attack, as masses ranked above: on D and on D'."""
    a, q = np.array(masses), np.array(blocks)
    g = np.interp(q, *trade_off_vertices(pair))
    b = np.where(
        a <= pair.infinite_mass,
        0.0,
        1.0 - np.interp(np.minimum(1.0, 1.0 - a), *trade_off_vertices(pair)),
    )
    return (
        np.column_stack([q + np.append(0.0, a[:-1]), q + a]),
        np.column_stack([g + np.append(0.0, b[:-1]), g + b]),
    )


@pytest.mark.parametrize("trials", [Geometric(10.0), Poisson(8.0)])
def test_the_fields_reproduce_the_attack(trials: TrialCount) -> None:
    for name, delta in (("gaussian", 1e-5), ("approximate", 0.01)):
        pair = attainable_of(name)
        attack = strongest_attack(pair, trials, delta)
        one_way = pair if attack.direction == "forward" else pair.reversed()
        on, off = boundaries(one_way, attack.masses, attack.blocks)
        # A ranking: groups in order, the block only growing, nothing used twice.
        assert np.all(np.diff(attack.masses) > 0.0)
        assert np.all(np.diff(attack.blocks) >= 0.0)
        assert attack.masses[-1] + attack.blocks[-1] <= 1.0
        shares = [
            float(np.sum(trials.pgf(1 - x[:, 0]) - trials.pgf(1 - x[:, 1]))) for x in (on, off)
        ]
        assert shares[0] - math.exp(attack.epsilon) * shares[1] == pytest.approx(delta, rel=1e-3)


def test_the_event_of_the_attack_by_simulation() -> None:
    """Run the selection itself: the described event has the claimed probabilities."""
    rng = np.random.default_rng(3)
    pair = randomized_response(1.0, 0.002)
    attack = strongest_attack(pair, Geometric(6.0), 0.05)
    one_way = pair if attack.direction == "forward" else pair.reversed()
    runs = rng.geometric(1.0 / 6.0, size=400_000)

    def share(limits: np.ndarray) -> float:
        # The best of T uniform positions in the ranking (0 is best) is 1 - V^(1/T).
        position = 1.0 - rng.random(runs.size) ** (1.0 / runs)
        group = np.searchsorted(limits[:, 0], position, side="right") - 1
        return float(np.mean((group >= 0) & (position < limits[np.maximum(group, 0), 1])))

    on, off = boundaries(one_way, attack.masses, attack.blocks)
    assert share(on) - math.exp(attack.epsilon) * share(off) == pytest.approx(0.05, abs=0.006)


def test_one_run_is_attacked_exactly() -> None:
    pair = randomized_response(0.8, 1e-3)
    eps = np.array([0.0, 0.3, 0.7, 0.9, 3.0])
    found = attack_delta(pair, Binomial(1, 1.0), eps)
    assert found == pytest.approx(pair.delta(eps), abs=2e-4)
    assert np.all(found <= pair.delta(eps) + 1e-12)


def test_no_cost_no_attack() -> None:
    nothing = strongest_attack(DominatingPair.identity(), Geometric(10.0), 1e-5)
    assert nothing.epsilon == 0.0
    assert nothing.masses == ()
    assert np.all(attack_delta(DominatingPair.identity(), Poisson(2.0), [0.0, 1.0]) == 0)
    (pair,) = attainable_pairs(dp_event.NoOpDpEvent())
    assert pair.epsilon(1e-12) == 0.0


def test_infinite_attacks_are_proved_not_assumed() -> None:
    assert strongest_attack(DominatingPair.infinite(), Geometric(3.0), 1e-3).epsilon == math.inf
    # Nearly disjoint Gaussians: a huge but finite loss is not infinity.
    (pair,) = attainable_pairs(events.gaussian(0.03))
    assert 200.0 < strongest_attack(pair, Geometric(3.0), 1e-3).epsilon < math.inf


def test_alternatives_and_refusals() -> None:
    worst = odp.worst_case(events.gaussian(4.0), events.laplace(2.0))
    assert len(attainable_pairs(worst)) == 2
    gaussians = odp.worst_case(events.gaussian(4.0), events.gaussian(2.0))
    assert len(attainable_pairs(events.compose(gaussians, gaussians))) == 4
    with pytest.raises(UnsupportedEventError) as caught:
        attainable_pairs(odp.rdp([2.0, 4.0], [0.1, 0.2]))
    assert caught.value.event == odp.rdp([2.0, 4.0], [0.1, 0.2])
    with refuses("neighboring_relation"):
        attainable_pairs(events.gaussian(1.0), "swap")
