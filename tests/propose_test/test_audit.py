"""Empirical audits: the mechanisms as they run, on neighbouring utilities.

An event is selected on one half of the outputs and its probabilities are bounded on the other
half (Clopper-Pearson), which makes the result a lower bound on epsilon at 99 % confidence. Every
audit is also run against half the noise, which it must catch.
"""

from __future__ import annotations

import math
from collections import Counter

import numpy as np
import pytest
from scipy import stats

import optuna_dp.propose_test.noise as noise_module
from optuna_dp.propose_test import (
    RESOLUTION,
    DoublingPlan,
    Utilities,
    above_threshold,
    noisy_max,
)
from optuna_dp.propose_test.noise import DiscreteLaplace

from .laws import SeededLaplace

N_PARTITIONS = 10
# Neighbours on which one iteration comes close to its epsilon: the last candidate moves one way
# and all others the other way. In units of the sensitivity, relative to the threshold.
OFFSETS = {"D": np.array([-1.0, -1, -1, -1, 0]), "D'": np.array([0.0, 0, 0, 0, -1])}


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

        def certified(event, a, b):
            counts = sum(a[o] for o in event), sum(b[o] for o in event)
            slack = (1 - confidence) / 4
            sizes = a.total(), b.total()
            low = stats.beta.ppf(slack, counts[0], sizes[0] - counts[0] + 1) if counts[0] else 0.0
            high = stats.beta.ppf(1 - slack, counts[1] + 1, sizes[1] - counts[1])
            return math.log(low / high) if low > 0 else 0.0

        chosen = max(events, key=lambda e: certified(e, *seen))
        best = max(best, certified(chosen, *kept))
    return best


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

        monkeypatch.setattr(noise_module, "_laplace_for", fake)

    return replace


def outputs(world, plan, runs):
    """The sequence of answers of each loop; every iteration meets the worst utilities."""
    unit = N_PARTITIONS * RESOLUTION
    offsets = np.rint(OFFSETS[world] * RESOLUTION).astype(np.int64)
    found = []
    for _ in range(runs):
        state, answers = plan.start(), []
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


def test_one_iteration_stays_under_its_epsilon_and_half_the_noise_is_caught(noise):
    noise(1.0, seed=0)
    measured = audit(ONE, 16_000)
    assert 0.4 < measured < 1.0
    noise(0.5, seed=0)
    assert audit(ONE, 16_000) > 1.0


def test_a_loop_stays_under_its_epsilon(noise):
    noise(1.0, seed=1)
    assert 0.2 < audit(LOOP, 8_000) < 3.0


@pytest.mark.slow
def test_the_mechanism_on_opendps_noise_and_half_of_it():
    measured = audit(ONE, 14_000)
    assert 0.4 < measured < 1.0


@pytest.mark.slow
def test_half_of_opendps_noise_is_caught(noise):
    noise(0.5, seed=None)
    assert audit(ONE, 14_000) > 1.0


@pytest.mark.slow
def test_the_whole_loop_and_half_its_noise(noise):
    plan = DoublingPlan(1.0, granularity=0.5, max_iterations=2)
    noise(1.0, seed=2)
    assert 0.8 < audit(plan, 60_000) < 2.0
    noise(0.5, seed=2)
    assert audit(plan, 60_000) > 2.0


def test_noisy_max_stays_under_its_epsilon_and_half_the_noise_is_caught():
    worlds = [Utilities(np.array(t) * RESOLUTION, N_PARTITIONS, RESOLUTION)
              for t in ([0, 3, 3], [1, 2, 2])]  # fmt: skip
    for epsilon, caught in ((1.0, False), (2.0, True)):  # half the noise is twice the epsilon
        found = [[noisy_max(u, epsilon) for _ in range(6_000)] for u in worlds]
        measured = lower_bound(*found)
        assert measured > 1.0 if caught else 0.4 < measured < 1.0
