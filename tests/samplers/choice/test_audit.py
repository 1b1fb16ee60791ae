"""Empirical audits: the mechanisms as they run, on neighbouring utilities.

With seeded noise an event is selected on one half of the outputs and its probabilities are bounded
on the other half (Clopper-Pearson), which makes the result a lower bound on epsilon at 99 %
confidence. With OpenDP's own noise, which has no seed, the event is fixed beforehand: all outputs
count, and how often the audit errs follows from the mechanism's exact law
(:func:`false_failures`). Every audit is also run against half the noise, which it must catch.
"""

from __future__ import annotations

import math
from collections import Counter

import numpy as np
import pytest
from scipy import stats

import optuna_dp.mechanisms.sparse_vector as mechanism
from optuna_dp.mechanisms import DoublingPlan, Utilities, noisy_max
from optuna_dp.mechanisms.doubling import LoopState
from optuna_dp.mechanisms.sparse_vector import DiscreteLaplace, above_threshold
from optuna_dp.mechanisms.utility_values import RESOLUTION

from .laws import SeededLaplace, above_threshold_law
from .test_noisy_max import exponential_max_law

N_PARTITIONS = 10
# Neighbours on which one iteration comes close to its epsilon: the last candidate moves one way
# and all others the other way. In units of the sensitivity, relative to the threshold.
OFFSETS = {"D": np.array([-1.0, -1, -1, -1, 0]), "D'": np.array([0.0, 0, 0, 0, -1])}


def certified(counts, sizes, slack):
    """What remains of log(p/q) when p is bounded from below and q from above, each with slack."""
    (first, second), (n, m) = (np.asarray(c) for c in counts), sizes
    low = np.where(first > 0, stats.beta.ppf(slack, np.maximum(first, 1), n - first + 1), 0.0)
    high = stats.beta.ppf(1 - slack, second + 1, m - second)
    return np.log(np.maximum(low, high * 1e-9) / high)


def lower_bound(one, other, confidence=0.99):
    """A lower bound on epsilon from outputs of two neighbouring worlds."""
    best = 0.0
    for first, second in ((one, other), (other, one)):
        half = len(first) // 2
        seen = Counter(first[:half]), Counter(second[:half])
        kept = Counter(first[half:]), Counter(second[half:])
        # The event with the best certified ratio on the first half, among all sets of outputs
        # that hold the most incriminating ones by their estimated likelihood ratio.
        order = sorted(seen[0], key=lambda o: -(seen[0][o] + 1) / (seen[1][o] + 1))
        events = [set(order[: i + 1]) for i in range(len(order))]

        def of_event(event, worlds):
            counts = [sum(world[o] for o in event) for world in worlds]
            return float(certified(counts, [w.total() for w in worlds], (1 - confidence) / 4))

        chosen = max(events, key=lambda e: of_event(e, seen))
        best = max(best, of_event(chosen, kept))
    return best


def lower_bound_of_event(event, one, other, confidence=0.99):
    """The same for an output that was picked before any was seen."""
    counts = one.count(event), other.count(event)
    return float(certified(counts, (len(one), len(other)), (1 - confidence) / 2))


def false_failures(p, q, runs, fails, confidence=0.99):
    """The exact probability that ``fails(lower_bound_of_event(...))`` of ``runs`` outputs each.

    Args:
        p: Probability of the event in the first world.
        q: In the second.
        runs: Number of outputs of each.
        fails: Of an array of lower bounds, which of them make the test fail.
        confidence: That of the lower bound.
    """
    laws = stats.binom(runs, p), stats.binom(runs, q)
    first, second = (np.arange(int(law.ppf(1e-13)), int(law.isf(1e-13)) + 1) for law in laws)
    bounds = certified((first[:, None], second), (runs, runs), (1 - confidence) / 2)
    weights = np.outer(laws[0].pmf(first), laws[1].pmf(second))
    return float(weights[fails(bounds)].sum()) + 4e-13


@pytest.fixture
def noise(monkeypatch):
    """Replaces the noise of the mechanisms: seeded and scaled, or OpenDP's own, scaled."""

    def replace(factor, seed):
        made = {}

        def fake(sensitivity, epsilon):
            key = sensitivity, epsilon
            if key not in made:
                scale = factor * sensitivity / epsilon
                own = DiscreteLaplace(scale) if seed is None else None
                made[key] = own or SeededLaplace(scale, seed + len(made))
            return made[key]

        monkeypatch.setattr(mechanism, "laplace_for", fake)

    return replace


def outputs(world, plan, runs):
    """The sequence of answers of each loop; every iteration meets the worst utilities."""
    unit = N_PARTITIONS * RESOLUTION
    offsets = np.rint(OFFSETS[world] * RESOLUTION).astype(np.int64)
    found = []
    for _ in range(runs):
        state, answers = LoopState(plan), []
        while not state.finished:
            # A batch chosen by an adversary who knows the public state, as batches may be.
            totals = round(state.threshold * unit) + offsets
            utilities = Utilities(totals, N_PARTITIONS, RESOLUTION)
            answers.append(above_threshold(utilities, state.threshold, plan.epsilon))
            state = state.after(answers[-1])
        found.append(tuple(answers))
    return found


def audit(plan, runs):
    return lower_bound(*(outputs(world, plan, runs) for world in ("D", "D'")))


ONE = DoublingPlan(1.0, granularity=0.5, lower_bound=0.5)
LOOP = DoublingPlan(1.0, granularity=0.5)


def test_the_plans_audited_are_those_meant():
    assert ONE.iteration_bound == 1
    assert LOOP.iteration_bound == 3


@pytest.mark.slow
def test_one_iteration_stays_under_its_epsilon_and_half_the_noise_is_caught(noise):
    noise(1.0, seed=0)
    measured = audit(ONE, 16_000)
    assert 0.4 < measured < 1.0
    noise(0.5, seed=0)
    assert audit(ONE, 16_000) > 1.0


@pytest.mark.slow
def test_a_loop_stays_under_its_epsilon(noise):
    noise(1.0, seed=1)
    assert 0.2 < audit(LOOP, 8_000) < 3.0


# On OpenDP's own noise. The event: the last candidate is chosen, with a log ratio of 0.77.

LAST = (len(OFFSETS["D"]) - 1,)
RUNS, RUNS_ON_HALF_THE_NOISE = 28_000, 20_000


def outside(bound):
    return (bound <= 0.4) | (bound >= 1.0)


def missed(bound):
    return bound <= 1.0


def test_how_often_the_audits_of_opendps_noise_err():
    """The false-failure probabilities that the two tests below state, from the exact law."""

    def of_last(factor):
        unit = 512  # The law hardly depends on the resolution.
        scales = 2 * unit * factor, 4 * unit * factor
        return [
            above_threshold_law(OFFSETS[w].astype(int) * unit, 0, *scales, reach=48 * unit)[LAST]
            for w in OFFSETS
        ]

    assert np.log(np.divide(*of_last(1.0))) == pytest.approx(0.772, abs=1e-3)
    assert false_failures(*of_last(1.0), RUNS, outside) < 1e-7
    assert false_failures(*of_last(0.5), RUNS_ON_HALF_THE_NOISE, missed) < 1e-8


def audit_last(runs):
    return lower_bound_of_event(LAST, *(outputs(world, ONE, runs) for world in ("D", "D'")))


@pytest.mark.slow
def test_the_mechanism_on_opendps_noise():
    """Fails falsely with probability 4e-8."""
    assert 0.4 < audit_last(RUNS) < 1.0


@pytest.mark.slow
def test_half_of_opendps_noise_is_caught(noise):
    """Fails falsely with probability 4e-9."""
    noise(0.5, seed=None)
    assert audit_last(RUNS_ON_HALF_THE_NOISE) > 1.0


@pytest.mark.slow
def test_the_whole_loop_and_half_its_noise(noise):
    """The event: the last candidate twice, with a log ratio of 1.54, or 2.91 on half the noise."""
    plan = DoublingPlan(1.0, granularity=0.5, max_iterations=2)

    def audit_twice():
        return lower_bound_of_event(LAST * 2, *(outputs(w, plan, 60_000) for w in OFFSETS))

    noise(1.0, seed=2)
    assert 0.4 < audit_twice() < 2.0
    noise(0.5, seed=2)
    assert audit_twice() > 2.0


@pytest.mark.slow
def test_noisy_max_stays_under_its_epsilon_and_half_the_noise_is_caught():
    """Fails falsely with probability 4e-11: the noise is OpenDP's, the event is fixed."""
    totals = np.array([1, 1, 1]), np.array([0, 2, 2])
    confidence = 1 - 1e-6
    # Half the noise is twice the epsilon.
    for epsilon, wrong, runs in ((1.0, outside, 4_000), (2.0, missed, 3_000)):
        chances = [exponential_max_law(t, 2 / epsilon)[0] for t in totals]
        assert math.log(chances[0] / chances[1]) == pytest.approx(epsilon, abs=1e-6)
        assert false_failures(*chances, runs, wrong, confidence) < 1e-10
        found = [
            [noisy_max(Utilities(t * RESOLUTION, N_PARTITIONS, RESOLUTION), epsilon)
             for _ in range(runs)]
            for t in totals
        ]  # fmt: skip
        assert not wrong(lower_bound_of_event(0, *found, confidence))
