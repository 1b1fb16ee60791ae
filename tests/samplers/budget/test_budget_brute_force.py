"""Runs in the open against every proposer there is (docs/explanation/budget.md, Theorem 1).

Runs are small discrete mechanisms: garblings of the strongest (epsilon, delta)-DP mechanism, one
for each hyperparameter, a failure among their outputs. A proposer is any function from what was
seen so far to the next hyperparameter; the worst of them is found exactly, by backward induction
over histories. What it attains is compared with what the package charges.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest
from dp_accounting import dp_event
from samplers.budget.proposers import Run, worst

import optuna_dp as odp
from optuna_dp.accounting.guarantee import Guarantee
from optuna_dp.core.arrays import FloatArray

FAILED = 0  # The output that says that a run failed.
EPSILONS = (0.0, 0.3, 0.8, 1.5)


def strongest(epsilon: float, delta: float) -> FloatArray:
    """The pair that dominates every (epsilon, delta)-DP mechanism, (2, 4)."""
    p, q = (1 - delta) * math.exp(epsilon), 1 - delta
    total = 1 + math.exp(epsilon)
    return np.array([[delta, p / total, q / total, 0.0], [0.0, q / total, p / total, delta]])


def random_run(
    rng: np.random.Generator, epsilon: float, delta: float, choices: int, outputs: int
) -> Run:
    """Mechanisms that are (epsilon, delta)-DP, some of them as strong as that allows."""
    pair = strongest(epsilon, delta)
    found = []
    for _ in range(choices):
        if rng.random() < 0.3 and outputs >= 4:
            channel = np.eye(4, outputs)[:, rng.permutation(outputs)]
        else:
            channel = rng.dirichlet(np.full(outputs, rng.choice([0.1, 1.0])), size=4)
        found.append(pair @ channel)
    return np.array(found)


def charged(parameters: Sequence[tuple[float, float]]) -> Guarantee:
    events = [odp.approximate_dp(e, d) if d else odp.pure_dp(e) for e, d in parameters]
    return Guarantee(dp_event.ComposedDpEvent(events))


def random_parameters(rng: np.random.Generator, runs: int) -> list[tuple[float, float]]:
    """Rungs: each run costs at least what the one before it did."""
    epsilons = np.sort(rng.uniform(0.05, 1.0, size=runs))
    deltas = rng.choice([0.0, 1e-3, 0.02], size=runs)
    return [(float(e), float(d)) for e, d in zip(epsilons, deltas, strict=True)]


def check_instances(seed: int, plans: int) -> int:
    rng, checked = np.random.default_rng(seed), 0
    for _ in range(plans):
        parameters = random_parameters(rng, int(rng.integers(1, 5)))
        guarantee = charged(parameters)
        deltas = {epsilon: guarantee.delta(epsilon) for epsilon in EPSILONS}
        for _ in range(3):
            outputs = 4 if len(parameters) < 4 else 3
            runs = [random_run(rng, e, d, 2, outputs) for e, d in parameters]
            for epsilon, delta in deltas.items():
                assert worst(runs, epsilon) <= delta * (1 + 1e-9) + 1e-12, (seed, parameters)
                checked += 1
    return checked


@pytest.mark.slow
def test_no_proposer_gets_more_than_is_charged() -> None:
    assert check_instances(20261122, 25) >= 300


@pytest.mark.slow
def test_no_proposer_gets_more_than_is_charged_at_length() -> None:
    assert check_instances(3, 250) >= 3000


def test_the_charge_is_attained() -> None:
    """Where every run is as strong as its event allows, nothing is charged in vain."""
    parameters = [(0.2, 0.0), (0.2, 0.01), (0.6, 0.0)]
    runs = [strongest(e, d)[np.newaxis] for e, d in parameters]
    guarantee = charged(parameters)
    for epsilon in EPSILONS:
        assert worst(runs, epsilon) == pytest.approx(guarantee.delta(epsilon), rel=2e-3, abs=1e-9)


def optional_runs(e: float, more: int, epsilon: float) -> tuple[float, float]:
    """One run in five of whose outputs 1 leads to ``more`` runs; the rest end there.

    Returns the divergence of everything seen, and the mean number of runs on D.
    """
    pair = strongest(e, 0.0)[:, 1:3]
    after = [  # The outputs of the further runs are told apart by how many of them were 1.
        [math.comb(more, k) * law[0] ** k * law[1] ** (more - k) for k in range(more + 1)]
        for law in pair
    ]
    on, off = 0.2 * pair[0, 0], 0.2 * pair[1, 0]
    seen = [(1.0 - on, 1.0 - off)]
    seen += [(on * p, off * q) for p, q in zip(*after, strict=True)]
    return sum(max(0.0, p - math.exp(epsilon) * q) for p, q in seen), 1.0 + more * on


def test_a_number_of_runs_that_depends_on_outputs_is_not_paid_for_by_its_mean() -> None:
    for e in (0.1, 0.2, 0.3):
        attained, mean = optional_runs(e, 20, 3.5 * e)
        assert mean < 3.5
        assert charged([(e, 0.0)] * math.ceil(mean)).delta(3.5 * e) < 0.02
        assert attained > charged([(e, 0.0)] * math.ceil(mean)).delta(3.5 * e) + 1e-3
        assert attained <= charged([(e, 0.0)] * 21).delta(3.5 * e)


def test_a_failed_run_that_is_repeated_for_nothing_is_caught() -> None:
    """Failing is an output: a run that is repeated until it succeeds shows how often it failed."""
    rng, caught = np.random.default_rng(5), 0
    for _ in range(40):
        e = float(rng.uniform(0.2, 1.0))
        run = random_run(rng, e, 0.0, 1, 3)[0]
        seen = [  # So many failures, then one of the other outputs.
            (run[0, FAILED] ** k * run[0, y], run[1, FAILED] ** k * run[1, y])
            for k in range(60)
            for y in (1, 2)
        ]
        once = charged([(e, 0.0)])
        caught += any(
            sum(max(0.0, p - math.exp(x) * q) for p, q in seen) > once.delta(x) + 1e-6
            for x in (0.3, 0.6, 1.0)
        )
    assert caught >= 5


def test_a_spare_run_that_is_not_charged_is_caught() -> None:
    """Without its charge, the repetition of a last run that failed is one run too many."""
    rng, caught = np.random.default_rng(6), 0
    for _ in range(40):
        e = float(rng.uniform(0.2, 1.0))
        last = random_run(rng, e, 0.0, 1, 3)[0]
        spare = strongest(e, 0.0)
        seen = [(last[0, y], last[1, y]) for y in (1, 2)]
        seen += [(last[0, FAILED] * p, last[1, FAILED] * q) for p, q in spare.T]
        without, with_it = charged([(e, 0.0)]), charged([(e, 0.0)] * 2)
        for epsilon in EPSILONS:
            attained = sum(max(0.0, p - math.exp(epsilon) * q) for p, q in seen)
            assert attained <= with_it.delta(epsilon) + 1e-9
            caught += attained > without.delta(epsilon) + 1e-6
    assert caught >= 5


def test_a_last_run_at_the_price_of_a_pilot_is_caught() -> None:
    parameters = [(0.1, 0.0), (0.1, 0.0), (0.8, 0.0)]
    runs = [strongest(e, d)[np.newaxis] for e, d in parameters]
    cheap = charged([(0.1, 0.0)] * 3)
    assert worst(runs, 0.3) > cheap.delta(0.3) + 0.05
