from __future__ import annotations

import math
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest
from refusals import refuses

from optuna_dp.mechanisms import (
    DoublingPlan,
    NoiseWarning,
    NoisyMaxPlan,
    Utilities,
    plan_utilities,
)
from optuna_dp.mechanisms.sparse_vector import above_threshold, above_threshold_error

sys.path.insert(0, str(Path(__file__).parents[3] / "examples" / "propose_test"))

from simulated_loops import simulate_loops, simulate_noisy_max


def at_most(failures, runs, beta):
    """Failures consistent with a probability of at most beta, at five standard errors."""
    return failures <= runs * beta + 5 * math.sqrt(runs * beta)


@pytest.mark.slow
@pytest.mark.parametrize("s", [1, 100])
def test_the_above_threshold_error_holds_and_is_below_the_textbooks(s):
    k, e0, beta, runs = 40, 0.5, 0.2, 300
    error = above_threshold_error(s, e0, beta).at(k)
    assert error <= 8 * (math.log(s) + math.log(2 / beta)) / (k * e0) * 1.001 + 1e-5
    low = Utilities.from_scores(np.full((s, k), 0.0))
    # All exactly the error below the threshold: a hit is an error; and the other way round.
    false_hits = sum(above_threshold(low, error, e0) is not None for _ in range(runs))
    high = Utilities.from_scores(np.full((1, k), 1.0))
    single = above_threshold_error(1, e0, beta).at(k)
    misses = sum(above_threshold(high, 1.0 - single, e0) is None for _ in range(runs))
    assert at_most(false_hits, runs, beta)
    assert at_most(misses, runs, beta)
    assert false_hits + misses > 0 or s > 1, "the bound is of the right order"


def test_the_noisy_max_error_holds_and_is_of_the_right_order():
    s, k, epsilon, beta, runs = 50, 20, 1.0, 0.1, 20_000
    error = NoisyMaxPlan(epsilon).error(s, beta).at(k)
    assert error == pytest.approx(2 * math.log(s / beta) / (k * epsilon), rel=1e-4)
    rng = np.random.default_rng(0)
    for share in (1.0, 0.3):
        utilities = np.r_[error * share, np.zeros(s - 1)]
        failures = np.sum(simulate_noisy_max(utilities, epsilon, k, runs, rng) != 0)
        if share == 1.0:
            assert at_most(failures, runs, beta)
        else:
            assert failures > runs * beta


@pytest.mark.parametrize("s", [1, 10, 100])
def test_the_error_of_the_whole_loop_holds(s):
    plan, beta, runs = DoublingPlan(0.1, granularity=0.02), 0.1, 4000
    k = plan.error(s, beta).partitions(0.2)
    rng = np.random.default_rng(0)
    utilities = rng.uniform(0, 1, (runs, s))
    utilities[:, 0] = 0.9
    loops = simulate_loops(utilities, plan, k, runs, rng)
    chosen = np.where(loops.choice >= 0, utilities[np.arange(runs), loops.choice], 0.0)
    failures = np.sum(utilities.max(axis=1) - chosen > plan.error(s, beta).at(k))
    assert at_most(failures, runs, beta)


def test_the_partitions_named_are_enough_and_one_less_is_not():
    for bound in (DoublingPlan(0.1).error(100), NoisyMaxPlan(1.0).error(100)):
        k = bound.partitions(0.05)
        assert bound.at(k) <= 0.05 < bound.at(k - 1)
    assert NoisyMaxPlan(1e9).error(2).partitions(0.9) == 2


def test_the_papers_settings_draw_a_warning_that_names_the_remedy():
    report = plan_utilities(DoublingPlan(0.1), n_candidates=100, n_partitions=10)
    assert report.hidden
    assert report.error > 1
    assert report.noisy_max_error < report.error
    assert report.total_epsilon == pytest.approx(6.4796, abs=1e-3)
    with pytest.warns(NoiseWarning, match=rf"\b{report.partitions_needed}\b") as w:
        report.warn()
    assert w[0].filename == __file__
    assert "Report-noisy-max" in str(w[0].message)


def test_no_warning_when_the_noise_is_small_enough():
    plan = DoublingPlan(0.1)
    needed = plan_utilities(plan, n_candidates=100, n_partitions=10).partitions_needed
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        plan_utilities(plan, n_candidates=100, n_partitions=needed).warn()
        plan_utilities(NoisyMaxPlan(1.0), n_candidates=100, n_partitions=1000).warn()


def test_a_granularity_coarser_than_the_goal_is_said_to_be_the_trouble():
    report = plan_utilities(
        DoublingPlan(0.1, granularity=0.1), n_candidates=10, n_partitions=10**6, resolve=0.05
    )
    assert report.hidden
    assert report.partitions_needed is None
    assert "granularity" in report.message()


@pytest.mark.parametrize(
    "arguments",
    [
        {"n_candidates": 0},
        {"n_partitions": 1},
        {"beta": 0.0},
        {"beta": 1.0},
        {"resolve": 0.0},
        {"resolve": 1e-6},
        {"resolve": math.nan},
        {"delta": 1.0},
    ],
    ids=str,
)
def test_bad_input(arguments):
    with refuses(next(iter(arguments))):
        plan_utilities(DoublingPlan(0.1), **({"n_candidates": 10, "n_partitions": 10} | arguments))
