"""The estimate that leads the planner's search: how near it is to the accounting."""

from __future__ import annotations

import pytest
from dp_accounting import dp_event

import optuna_dp as odp
from optuna_dp.planning.calibration import profile_epsilon
from optuna_dp.planning.saddle_point import Steps, estimated_epsilon

CASES = [
    (0.05, [(16, 210, 9.6), (4, 210, 4.8), (1, 210, 1.44)], 30.0),
    (0.01, [(1, 100, 0.5)], None),
    (1.0, [(1, 10, 5.0)], None),
    (0.3, [(3, 20, 2.0)], None),
    (0.001, [(16, 1000, 3.0), (1, 10_000, 0.8)], 20.0),
    (6.4e-5, [(16, 10_000, 1.5), (1, 200_000, 0.5)], 20.0),  # Rare large losses.
    (6.4e-5, [(1, 15_625, 0.49308)], 44.0),  # Too coarse a sum is off by a per cent here.
]


@pytest.mark.slow
@pytest.mark.parametrize("relation", ["add_or_remove_one", "replace_one"])
@pytest.mark.parametrize(("rate", "runs", "score"), CASES)
def test_it_is_within_half_a_per_cent_of_the_accounting(
    rate: float, runs: list[tuple[int, int, float]], score: float | None, relation: str
) -> None:
    events = [
        dp_event.SelfComposedDpEvent(
            odp.dp_sgd(noise_multiplier=noise, sample_rate=rate, steps=steps), count
        )
        for count, steps, noise in runs
    ]
    parts = [Steps(rate, noise, count * steps) for count, steps, noise in runs]
    if score is not None:
        events.append(odp.gaussian(score))
        parts.append(Steps(1.0, score, 1))
    exact = profile_epsilon(odp.Guarantee(dp_event.ComposedDpEvent(events), relation), 1e-5)
    for near in (0.3 * exact, 2.0 * exact):
        estimate = estimated_epsilon(parts, 1e-5, near=near, replace_one=relation == "replace_one")
        assert estimate == pytest.approx(exact, rel=5e-3)


def test_what_protects_nothing_is_far_out() -> None:
    assert estimated_epsilon([Steps(1e-4, 0.15, 3_000_000)], 1e-5, near=8.0) > 100.0
