"""Which records join a step, and the noise of a training, as distributions.

Bounds are for false failures below 1e-6 each: 5.2 standard deviations of a normal approximation.
What the tests would find with more than 99.99 %, 4 more deviations, is said beside each.
"""

from __future__ import annotations

import math
import os
import random
import ssl
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from started import NO_NOISE, claimed, started

import optuna_dp as odp
from optuna_dp.study.entries import TRAININGS
from optuna_dp.training.sampling import poisson_sample
from optuna_dp.training.schedules import Schedule

DEVIATIONS = 5.2


@pytest.mark.promise("noise")
@pytest.mark.parametrize("rate", [0.003, 0.2, 0.75])
def test_each_record_joins_with_the_sampling_rate(rate: float) -> None:
    """google-deepmind/jax_privacy#121: are the coins of two records of a batch independent?"""
    records, steps = 2_000, 500
    joined = np.zeros((steps, records), dtype=bool)
    for step in range(steps):
        joined[step, poisson_sample(records, rate)] = True
    # Finds a rate that is off by 9.2 deviations: of 0.2, by 0.0037.
    deviation = math.sqrt(rate * (1.0 - rate) / joined.size)
    assert abs(joined.mean() - rate) < DEVIATIONS * deviation
    # Sizes of batches are binomial: no fixed size, no pairs. The variance of their sample
    # variance, for an excess kurtosis below 0.2, is within 2.2 / (steps - 1) of its square.
    expected = records * rate * (1.0 - rate)
    sizes = joined.sum(axis=1)
    assert abs(sizes.var(ddof=1) / expected - 1.0) < DEVIATIONS * math.sqrt(2.2 / (steps - 1))
    # Independent of the step before, and of the neighbour.
    for first, second in ((joined[1:], joined[:-1]), (joined[:, 1:], joined[:, :-1])):
        products = (first - rate) * (second - rate)
        assert abs(products.mean()) < DEVIATIONS * rate * (1.0 - rate) / math.sqrt(products.size)


def test_the_ends_of_the_sampling_rate() -> None:
    assert len(poisson_sample(1_000, 0.0)) == 0
    assert poisson_sample(1_000, 1.0).tolist() == list(range(1_000))
    assert len(poisson_sample(0, 0.5)) == 0
    # The chance that a record is left out or joins is 1e-9 at most.
    assert len(poisson_sample(1_000, 1e-12)) == 0
    assert len(poisson_sample(1_000, 1.0 - 1e-12)) == 1_000


def test_a_threshold_that_a_draw_reaches_does_not_let_it_join(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rate = 0.375
    limit = int(rate * 2**64)
    keys = np.array([limit - 1, limit, limit + 1, 0, 2**64 - 1], dtype=np.uint64)
    monkeypatch.setattr(ssl, "RAND_bytes", lambda count: keys.tobytes()[:count])
    assert poisson_sample(5, rate).tolist() == [0, 3]


def test_draws_of_many_records_are_made_in_pieces() -> None:
    records = (1 << 20) + 50_000
    drawn = poisson_sample(records, 0.5)
    assert abs(len(drawn) - records / 2) < DEVIATIONS * math.sqrt(records) / 2
    late = int((drawn >= 1 << 20).sum())
    assert abs(late - 25_000) < DEVIATIONS * math.sqrt(50_000) / 2
    assert (np.diff(drawn) > 0).all()


def _softmax_after_training(**plan: Any) -> odp.SoftmaxRegression:
    """A training on records that have no gradient: what is left is noise."""
    model = odp.SoftmaxRegression(features=50, classes=40)
    records = np.zeros((100, 50)), np.zeros(100, dtype=int)
    arguments = {
        "optimizer": "sgd",
        "learning_rate": 0.5,
        "schedule": Schedule("constant"),
        "clipping_norm": 2.0,
    }
    odp.train(started(100, **plan), model, records, **{"score": None, **arguments})
    return model


@pytest.mark.promise("noise")
def test_a_training_has_the_noise_of_its_run() -> None:
    weights = _softmax_after_training(noise_multiplier=3.0, batch_size=10.0, steps=50).weights
    deviation = 0.5 * 3.0 * 2.0 / 10.0 * math.sqrt(50)
    # Finds a scale that is off by 14 %, or one step too few or too many of 4.
    assert abs(weights.var() / deviation**2 - 1.0) < DEVIATIONS * math.sqrt(2.0 / weights.size)


@pytest.mark.promise("all-steps")
@pytest.mark.parametrize("steps", [1, 4])
def test_a_training_takes_all_steps_and_no_more(steps: int) -> None:
    model = odp.SoftmaxRegression(features=1, classes=2)
    run = started(3, noise_multiplier=NO_NOISE, steps=steps, batch_size=3.0)
    # Every step moves the weights by the clipping norm: their gradient points one way.
    odp.train(
        run,
        model,
        (np.full((3, 1), 1e6), np.ones(3, dtype=int)),
        optimizer="sgd",
        learning_rate=1e-9,
        clipping_norm=1.0,
        schedule=Schedule("constant"),
        score=None,
    )
    moved = np.linalg.norm(model.weights)
    assert moved == pytest.approx(steps * 1e-9, rel=1e-4)
    (training,) = claimed(run, TRAININGS)
    assert training["steps"] == steps


@pytest.mark.promise("noise")
def test_no_seed_repeats_a_training() -> None:
    def trained() -> Any:
        np.random.seed(0)
        return _softmax_after_training(batch_size=50.0).weights

    assert not np.array_equal(trained(), trained())


@pytest.mark.promise("noise")
def test_no_seed_repeats_the_batches() -> None:
    """With hardly any noise, so that only the batches tell two trainings apart."""
    x = np.random.default_rng(0).normal(size=(100, 3))
    records = x, (x[:, 0] > 0).astype(int)

    def trained() -> Any:
        random.seed(0)
        np.random.seed(0)
        model = odp.SoftmaxRegression(features=3, classes=2)
        run = started(100, noise_multiplier=NO_NOISE, batch_size=50.0, steps=3)
        odp.train(run, model, records, optimizer="sgd", learning_rate=0.5, score=None)
        return model.weights

    assert not np.allclose(trained(), trained(), atol=1e-6)


FORKED = """
import os
from optuna_dp.training.exact_step import rounded_gaussians
from optuna_dp.training.sampling import poisson_sample

poisson_sample(100, 0.5)  # OpenSSL's generator has a state.
child = os.fork()
print(poisson_sample(100, 0.5).tolist(), rounded_gaussians(9, 1e9).tolist(), flush=True)
if child:
    os.waitpid(child, 0)
"""


@pytest.mark.promise("a process is forked")
@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
def test_a_fork_repeats_neither_draws_nor_noise() -> None:
    """In a process of its own, because tests draw from a stream of theirs."""
    done = subprocess.run(
        [sys.executable, "-c", FORKED], capture_output=True, text=True, check=True
    )
    parent, child = done.stdout.splitlines()
    assert parent != child
