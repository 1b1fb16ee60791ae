"""Mechanisms on a secret Poisson sample, against exact laws over all samples.

A data set has up to two other records. For each sample of these the mechanism has laws with and
without the record that are a garbling of one pair; the law on the sample is their mixture.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable

import numpy as np
import pytest
from dp_accounting import dp_event

import optuna_dp as odp
from optuna_dp.accounting.dominating_pairs import DominatingPair
from optuna_dp.accounting.kinds.approximate import randomized_response
from optuna_dp.accounting.run_profile import pair_of
from optuna_dp.errors import UnsupportedEventError
from optuna_dp.selection.event import PrivateSelectionDpEvent

EPSILONS = np.array([0.0, 0.01, 0.05, 0.2, 0.5, 1.0, 1.7, 3.0])
TOLERANCE = 1e-12
Law = np.ndarray
Bound = Callable[[DominatingPair, float], DominatingPair]


def pair_of_laws(on: Law, off: Law) -> DominatingPair:
    both = (on > 0) & (off > 0)
    losses, group = np.unique(np.round(np.log(on[both] / off[both]), 12), return_inverse=True)
    mass, prime = (np.bincount(group, law[both], minlength=losses.size) for law in (on, off))
    exact = np.log(mass / prime) if losses.size else losses
    return DominatingPair(exact, mass, float(on[off == 0].sum()), float(off[on == 0].sum()))


def laws(rng: np.random.Generator) -> tuple[Law, Law]:
    n = int(rng.integers(2, 5))
    on = rng.dirichlet(np.full(n, 0.8)) + 1e-6
    off = on * np.exp(rng.normal(size=n) * rng.choice([0.1, 0.7, 2.0]))
    if rng.random() < 0.2:
        on[0] = 0.0
    if rng.random() < 0.2:
        off[-1] = 0.0
    return on / on.sum(), off / off.sum()


def on_a_sample(rng: np.random.Generator, on: Law, off: Law, rate: float) -> tuple[Law, Law]:
    """The laws of the output with and without the record, all samples mixed."""
    others = int(rng.integers(0, 3))
    mixed = np.zeros((2, on.size))
    for members in itertools.product([False, True], repeat=others):
        weight = float(np.prod([rate if m else 1.0 - rate for m in members]))
        same = rng.random() < 0.4
        kernel = np.eye(on.size) if same else rng.dirichlet(np.full(on.size, 0.3), size=on.size)
        with_it, without = on @ kernel, off @ kernel
        mixed[0] += weight * (rate * with_it + (1.0 - rate) * without)
        mixed[1] += weight * without
    return mixed[0], mixed[1]


def violations(bound: Bound, count: int, seed: int) -> int:
    rng = np.random.default_rng(seed)
    factors, bad = np.exp(EPSILONS)[:, None], 0
    for _ in range(count):
        on, off = laws(rng)
        rate = float(rng.choice([0.02, 0.2, 0.5, 0.9]))
        pair = bound(pair_of_laws(on, off), rate)
        found = on_a_sample(rng, on, off, rate)
        for one, (p, q) in ((pair, found), (pair.reversed(), found[::-1])):
            reached = np.maximum(p - factors * q, 0.0).sum(axis=1)
            bad += bool(np.any(reached > one.delta(EPSILONS) + TOLERANCE))
    return bad


@pytest.mark.slow
def test_no_mechanism_on_a_sample_beats_the_bound() -> None:
    assert violations(DominatingPair.sampled, 600, seed=1) == 0


def exchanged(pair: DominatingPair, rate: float) -> DominatingPair:
    """Removing charged as adding."""
    return pair.reversed().sampled(rate)


def one_direction(pair: DominatingPair, rate: float) -> DominatingPair:
    """Both directions charged as adding a record, the cheaper one of a symmetric pair."""
    return pair.sampled(rate).reversed()


def squared(pair: DominatingPair, rate: float) -> DominatingPair:
    """As if the record had to be drawn twice."""
    return pair.sampled(rate * rate)


@pytest.mark.parametrize("wrong", [exchanged, one_direction, squared])
def test_a_wrong_bound_is_caught(wrong: Bound) -> None:
    assert violations(wrong, 60, seed=2) > 0


def test_it_is_attained_and_follows_the_known_formula() -> None:
    """delta(log(1 + q (e^eps - 1))) = q delta(eps) for removing: arXiv 1807.01647, Theorem 8."""
    pair, rate = randomized_response(0.9, 1e-3), 0.3
    eps = np.linspace(0.0, 2.0, 21)
    found = pair.sampled(rate).delta(np.log1p(rate * np.expm1(eps)))
    assert found == pytest.approx(rate * pair.delta(eps), abs=1e-15)
    assert pair.sampled(1.0) is pair


@pytest.mark.parametrize("noise", [0.8, 3.0])
def test_beside_dp_accountings_sampled_gaussian(noise: float) -> None:
    ours = pair_of(odp.gaussian(noise)).sampled(0.1)
    theirs = pair_of(dp_event.PoissonSampledDpEvent(0.1, odp.gaussian(noise)))
    for delta in (1e-3, 1e-6):
        for a, b in ((ours, theirs), (ours.reversed(), theirs.reversed())):
            assert a.epsilon(delta) == pytest.approx(b.epsilon(delta), rel=2e-3)


@pytest.mark.slow
def test_a_selection_on_a_tenth_of_the_records_and_one_training_on_all() -> None:
    run = odp.gaussian(4.0)
    search = PrivateSelectionDpEvent(run, odp.Geometric(5))
    on_sample = dp_event.PoissonSampledDpEvent(0.1, search)
    alone, whole = odp.Guarantee(on_sample), odp.Guarantee(odp.compose(on_sample, run))
    assert alone.epsilon(1e-5) < 0.3 * odp.Guarantee(search).epsilon(1e-5)
    assert odp.Guarantee(run).epsilon(1e-5) < whole.epsilon(1e-5)
    assert whole.epsilon(1e-5) < 1.1 * odp.Guarantee(run).epsilon(1e-5)
    again = odp.Guarantee.from_json(whole.to_json())
    assert again.epsilon(1e-5) == whole.epsilon(1e-5)


def test_an_attack_stands_beside_the_bound() -> None:
    event = dp_event.PoissonSampledDpEvent(0.2, odp.pure_dp(0.5))
    attack, bound = odp.Guarantee(event).bounds(1e-5)
    assert 0.99 * bound < attack <= bound


def test_what_is_not_proved_is_refused() -> None:
    search = PrivateSelectionDpEvent(odp.gaussian(4.0), odp.Geometric(5))
    event = dp_event.PoissonSampledDpEvent(0.1, search)
    for relation in ("replace_one", "null_client"):
        with pytest.raises(UnsupportedEventError, match="add_or_remove_one"):
            odp.Guarantee(event, relation)
    unknown = dp_event.PoissonSampledDpEvent(0.1, dp_event.UnsupportedDpEvent())
    with pytest.raises(UnsupportedEventError):
        odp.Guarantee(unknown)


def test_what_is_never_sampled_or_shows_everything() -> None:
    shown = dp_event.NonPrivateDpEvent()
    assert odp.Guarantee(dp_event.PoissonSampledDpEvent(0.0, shown)).epsilon(1e-5) == 0.0
    assert odp.Guarantee(dp_event.PoissonSampledDpEvent(0.1, shown)).epsilon(1e-5) == np.inf
    twice = dp_event.SelfComposedDpEvent(dp_event.PoissonSampledDpEvent(0.1, odp.pure_dp(1.0)), 2)
    single = odp.Guarantee(dp_event.PoissonSampledDpEvent(0.1, odp.pure_dp(1.0)))
    assert single.epsilon(1e-5) < odp.Guarantee(twice).epsilon(1e-5)
    assert odp.Guarantee(twice).epsilon(1e-5) <= 2 * np.log1p(0.1 * np.expm1(1.0)) + 1e-9
