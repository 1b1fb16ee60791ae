"""Pilots on secret samples, then one run on everything, against exact laws over all samples.

Each pilot draws a sample of its own (docs/explanation/budget.md): the record that makes the
difference is in it or not, and so is another one, which changes what the mechanism does. Runs are
small discrete mechanisms; a proposer is any function from what was seen so far to the next
hyperparameter, and the worst of them is found exactly.
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

EPSILONS = (0.0, 0.2, 0.6, 1.2)


def strongest(epsilon: float) -> FloatArray:
    """The pair that dominates every pure epsilon-DP mechanism, (2, 2)."""
    p = 1.0 / (1.0 + math.exp(-epsilon))
    return np.array([[p, 1.0 - p], [1.0 - p, p]])


def random_run(rng: np.random.Generator, epsilon: float, rate: float | None, outputs: int) -> Run:
    """Laws of two hyperparameters; on a sample, mixed over who is in it."""
    pair, found = strongest(epsilon), []
    for _ in range(2):
        laws = np.zeros((2, outputs))
        others = (True, False) if rate is not None else (True,)
        for other in others:  # Another record, which is sampled too and may change everything.
            exact = rng.random() < 0.5
            channel = np.eye(2, outputs) if exact else rng.dirichlet(np.ones(outputs), size=2)
            with_it, without = pair @ channel
            weight = 1.0 if rate is None else (rate if other else 1.0 - rate)
            share = 1.0 if rate is None else rate
            laws += weight * np.array([share * with_it + (1.0 - share) * without, without])
        found.append(laws)
    return np.array(found)


def worst_either_way(runs: Sequence[Run], epsilon: float) -> float:
    """The larger of what the worst proposers attain in the two directions."""
    return max(worst(runs, epsilon), worst([run[:, ::-1] for run in runs], epsilon))


def charged(pilots: Sequence[float], rate: float, last: float) -> Guarantee:
    """Each pilot on a sample of its own, the last run on everything."""
    events = [dp_event.PoissonSampledDpEvent(rate, odp.pure_dp(e)) for e in pilots]
    return Guarantee(dp_event.ComposedDpEvent([*events, odp.pure_dp(last)]))


@pytest.mark.slow
def test_no_proposer_gets_more_than_is_charged() -> None:
    rng, checked = np.random.default_rng(20261122), 0
    while checked < 600:
        rate = float(rng.choice([0.05, 0.3, 0.8]))
        pilots = rng.uniform(0.1, 3.0, size=int(rng.integers(1, 4))).tolist()
        last = float(rng.uniform(0.1, 1.0))
        guarantee = charged(pilots, rate, last)
        deltas = {epsilon: guarantee.delta(epsilon) for epsilon in EPSILONS}
        for _ in range(15):
            runs = [random_run(rng, e, rate, 3) for e in pilots] + [random_run(rng, last, None, 2)]
            for epsilon, delta in deltas.items():
                assert worst_either_way(runs, epsilon) <= delta * (1.0 + 1e-9) + 1e-12, (
                    rate,
                    pilots,
                    last,
                )
                checked += 1


def on_one_sample(pilots: Sequence[float], rate: float, epsilon: float) -> float:
    """What pilots attain that share one sample, which the plan does not pay for."""
    with_it = without = np.ones(1)
    for e in pilots:
        pair = strongest(e)
        with_it, without = np.outer(with_it, pair[0]).ravel(), np.outer(without, pair[1]).ravel()
    mixed = rate * with_it + (1.0 - rate) * without
    factor = math.exp(epsilon)
    return float(
        max(
            np.maximum(mixed - factor * without, 0).sum(),
            np.maximum(without - factor * mixed, 0).sum(),
        )
    )


def alone(pilots: Sequence[float], rate: float, epsilon: float) -> float:
    runs = []
    for e in pilots:
        pair = strongest(e)
        runs.append(np.array([[rate * pair[0] + (1.0 - rate) * pair[1], pair[1]]]))
    return worst_either_way(runs, epsilon)


def test_one_sample_for_all_pilots_is_caught() -> None:
    """Charged as fresh samples, many pilots on the same sample cost more."""
    pilots, rate = [0.6] * 8, 0.1
    fresh = Guarantee(
        dp_event.ComposedDpEvent(
            [dp_event.PoissonSampledDpEvent(rate, odp.pure_dp(e)) for e in pilots]
        )
    )
    assert on_one_sample(pilots, rate, 0.5) > fresh.delta(0.5) + 1e-3
    assert alone(pilots, rate, 0.5) <= fresh.delta(0.5) + 1e-9


def test_fresh_samples_charged_as_one_are_caught() -> None:
    """Nor is one sample the dearer of the two: pilots that tell all get more chances."""
    pilots, rate = [8.0] * 3, 0.1
    both = dp_event.ComposedDpEvent([odp.pure_dp(e) for e in pilots])
    shared = Guarantee(dp_event.PoissonSampledDpEvent(rate, both))
    assert alone(pilots, rate, 0.5) > shared.delta(0.5) + 0.05


def test_a_last_run_charged_as_if_on_a_sample_is_caught() -> None:
    rate, last = 0.1, 1.0
    cheap = Guarantee(dp_event.PoissonSampledDpEvent(rate, odp.pure_dp(last)))
    assert worst_either_way([strongest(last)[np.newaxis]], 0.2) > cheap.delta(0.2) + 0.1


def test_a_sample_that_is_shown_is_caught() -> None:
    """Where the sample is seen besides the output, nothing is gained by it."""
    rate, pilot = 0.1, 1.0
    pair = strongest(pilot)
    zero = np.zeros(2)
    shown = np.array(
        [
            np.concatenate([rate * pair[0], (1.0 - rate) * pair[1]]),
            np.concatenate([zero, pair[1]]),
        ]
    )
    secret = Guarantee(dp_event.PoissonSampledDpEvent(rate, odp.pure_dp(pilot)))
    assert worst_either_way([shown[np.newaxis]], 0.3) > secret.delta(0.3) + 0.05
