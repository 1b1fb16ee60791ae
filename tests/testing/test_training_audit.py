"""Audits of one training: DP-SGD by hand, mechanisms of known noise, and what is refused."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.stats import binom, norm

import optuna_dp as odp
from optuna_dp.errors import InvalidArgumentError
from optuna_dp.testing import GradientCanaries, audit_training
from optuna_dp.testing.gradient_canaries import (
    best_chance,
    log_wealth,
    noise_at_most,
    power,
)
from optuna_dp.testing.stated_training import trainings_in

NOISE, STEPS = 1.5, 120
TRAINING = odp.dp_sgd(noise_multiplier=NOISE, sample_rate=0.1, steps=STEPS)
# An honest training is accused less than once in 1e7 tests, and with half the noise always found.
SURE = 1 - 1e-7


def dp_sgd(canaries, *, noise=NOISE, clip=True, steps=STEPS, noisy_share=1.0):
    """A logistic regression by hand, whose faults are arguments."""
    rng = np.random.default_rng()
    x, y = rng.normal(size=(300, 80)), rng.integers(0, 2, 300)
    weights, norm_bound = np.zeros(80), 0.5
    for _ in range(steps):
        batch = rng.random(300) < 0.1
        p = 1 / (1 + np.exp(-x[batch] @ weights))
        each = (p - y[batch])[:, None] * x[batch]
        if clip:
            length = np.linalg.norm(each, axis=1, keepdims=True)
            each *= np.minimum(1, norm_bound / np.maximum(length, 1e-12))
        summed = canaries.insert(each.sum(axis=0), norm_bound)
        added = rng.normal(0, noise * norm_bound, 80)
        added[int(noisy_share * 80) :] = 0.0
        weights = weights - 0.1 * canaries.observe(summed + added) / 30
    return weights


@pytest.mark.slow
def test_an_honest_dp_sgd_is_not_refuted_and_half_the_noise_is_found() -> None:
    honest = audit_training(dp_sgd, TRAINING, access="gradients", confidence=SURE)
    assert honest.verdict == "not refuted", str(honest)
    assert honest.power > 0.99
    assert honest.epsilon < honest.claimed
    half = audit_training(
        lambda c: dp_sgd(c, noise=NOISE / 2), TRAINING, access="gradients", confidence=SURE
    )
    assert half.verdict == "violates"
    assert half.epsilon > half.claimed
    assert NOISE / 2 * 0.95 < half.noise_multiplier < NOISE
    assert "violates, by at least epsilon" in str(half)


def test_a_layer_without_noise_is_found() -> None:
    found = audit_training(
        lambda c: dp_sgd(c, noisy_share=0.5), TRAINING, access="gradients", confidence=SURE
    )
    assert found.verdict == "violates"


def test_few_steps_are_too_weak_to_tell() -> None:
    event = odp.dp_sgd(noise_multiplier=NOISE, sample_rate=0.1, steps=3)
    found = audit_training(lambda c: dp_sgd(c, steps=3), event, access="gradients")
    assert found.verdict == "too weak to tell"
    assert found.power < 0.5


def test_the_training_goes_on_as_if_no_canary_had_been_there() -> None:
    canaries, rng = GradientCanaries(40), np.random.default_rng(0)
    for _ in range(5):
        before, noise = rng.normal(size=(8, 9)), rng.normal(size=(8, 9))
        with_canaries = canaries.insert(before, 2.0)
        added = with_canaries - before
        assert set(np.unique(np.round(added, 9))) <= {0.0, 2.0}
        assert np.allclose(canaries.observe(with_canaries + noise), before + noise)
    assert canaries.counts == [40] * 5


def test_no_dependence_among_the_canaries_of_a_step_makes_the_wealth_grow() -> None:
    """All right or all wrong, at the largest chance that the claim leaves: exact mean 1."""
    p = best_chance(NOISE)
    assert p == pytest.approx(norm.cdf(0.5 / NOISE))
    up, down = (math.exp(float(log_wealth(np.array([v]), p))) for v in (1.0, 0.0))
    assert p * up + (1 - p) * down == pytest.approx(1.0)
    # And independent ones, over many trainings: above 20 less often than one time in 20.
    rng = np.random.default_rng(1)
    shares = rng.binomial(64, p, (20_000, 60)) / 64
    assert (log_wealth(shares, p) >= math.log(20)).mean() < 0.05
    together = (rng.random((2000, 60)) < p).astype(float)
    assert (log_wealth(together, p) >= math.log(20)).mean() <= 0.05
    # The test has teeth: a binomial test of all guesses would accuse the conspirators.
    right = 64 * together.sum(axis=1)
    assert (binom.sf(right - 1, 64 * 60, p) <= 0.05).mean() > 0.3


def test_the_noise_is_bounded_from_above_and_nearly_met() -> None:
    rng = np.random.default_rng(2)
    for noise in (0.5, 1.0, 4.0):
        shares = rng.binomial(64, best_chance(noise), (200, 400)) / 64
        bounds = np.array([noise_at_most(row, 0.05) for row in shares])
        assert (bounds < noise).mean() <= 0.05
        assert np.median(bounds) < 1.7 * noise
    assert noise_at_most(np.full(10, 0.5), 0.05) == math.inf


def test_power_is_the_share_that_is_found() -> None:
    assert power([64] * 100, 1.0, 0.5, 0.05) == 1.0
    assert power([64] * 100, 1.0, 1.0, 0.05) < 0.05
    assert power([64] * 2, 1.0, 0.5, 0.05) == 0.0


def test_the_training_in_an_event() -> None:
    whole = odp.compose(TRAINING, odp.scoring.score_event(8.0))
    assert trainings_in(whole) == [(NOISE, 0.1, STEPS)]
    audit_training(dp_sgd, whole, access="gradients")
    other = odp.dp_sgd(noise_multiplier=2.0, sample_rate=0.1, steps=3)
    for bad in (odp.worst_case(TRAINING, other), odp.gaussian(1.0)):
        with pytest.raises(InvalidArgumentError, match="one DP-SGD training"):
            audit_training(dp_sgd, bad, access="gradients")


@pytest.mark.parametrize(
    ("settings", "argument"),
    [
        ({"access": "loss"}, "access"),
        ({"canaries": 0}, "canaries"),
        ({"canaries": 10**9}, "canaries"),
        ({"delta": 0.0}, "delta"),
        ({"confidence": 1.0}, "confidence"),
        ({}, "train"),
    ],
    ids=["access", "canaries", "too many", "delta", "confidence", "no step"],
)
def test_bad_arguments_of_an_audit(settings, argument) -> None:
    with pytest.raises(InvalidArgumentError) as refused:
        audit_training(lambda canaries: None, TRAINING, **settings)
    assert refused.value.argument == argument


def test_insert_and_observe_take_turns() -> None:
    canaries = GradientCanaries()
    with pytest.raises(InvalidArgumentError, match="before observe"):
        canaries.observe(np.zeros(3))
    canaries.insert(np.zeros(3), 1.0)
    with pytest.raises(InvalidArgumentError, match="shape"):
        canaries.observe(np.zeros(4))
    with pytest.raises(InvalidArgumentError, match="after each insert"):
        canaries.insert(np.zeros(3), 1.0)
