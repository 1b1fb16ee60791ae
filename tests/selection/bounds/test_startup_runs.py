"""The pointwise bound of both directions, start-up runs and laws of every length."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from refusals import refuses

import optuna_dp as odp
from optuna_dp.accounting.run_profile import pair_of
from optuna_dp.selection.bounds.pointwise_bound import PointwiseProfile, pointwise_bound
from optuna_dp.selection.bounds.profile_bound import DataProfile

EPSILONS = np.linspace(-1.0, 6.0, 40)
SKEWED = odp.dp_sgd(noise_multiplier=1.0, sample_rate=0.1, steps=5)


@pytest.mark.slow
@pytest.mark.parametrize("turned", [False, True])
def test_the_larger_direction_counts(turned: bool) -> None:
    """The larger one is searched; the other one has its cells, where a few do not suffice."""
    pair, law, bounds = pair_of(SKEWED), odp.Geometric(6), (0.6, 3.0)
    sides = (pair, pair.reversed())
    both = pointwise_bound(sides[turned], law, bounds, cells=100)
    larger = PointwiseProfile(pair, law, bounds, cells=100)
    smaller = PointwiseProfile(sides[1], law, bounds, cells=100, cover=larger.cover)
    deltas = np.maximum(larger.delta(EPSILONS), smaller.delta(EPSILONS))
    assert both.delta(EPSILONS) == pytest.approx(deltas, rel=1e-6)
    assert both.epsilon(1e-5) == pytest.approx(larger.epsilon(1e-5), rel=1e-6)
    # Its own cells are hardly better.
    own = PointwiseProfile(sides[1], law, bounds, cells=100)
    assert smaller.epsilon(1e-5) <= 1.03 * own.epsilon(1e-5)
    for side in sides:
        # Never below selection without adaptivity, which is one of the policies.
        assert np.all(both.delta(EPSILONS) >= DataProfile(side, law).delta(EPSILONS) * 0.999)


@pytest.mark.slow
def test_more_start_up_runs_never_cost_more() -> None:
    """Once 1.475 at 16, 1.521 at 256 and 1.708 at 1000, where 1.429 is without adaptivity."""
    pair, law = pair_of(odp.gaussian(4.0)), odp.Geometric(10)
    costs = [
        PointwiseProfile(pair, law, (0.75, 2.0), startup_runs=runs, cells=60).epsilon(1e-5)
        for runs in (0, 1, 7, 8, 16, 64, 65, 256, 10**9)
    ]
    assert np.all(np.diff(costs) <= 1e-9)
    assert costs[-1] == pytest.approx(DataProfile(pair, law).epsilon(1e-5), rel=1e-6)


def test_more_start_up_runs_than_there_can_be_are_selection_without_adaptivity() -> None:
    pair, law = pair_of(SKEWED), odp.Geometric(3).capped(4)
    plain = max(DataProfile(side, law).epsilon(1e-5) for side in (pair, pair.reversed()))
    for runs in (4, 10**9):
        found = pointwise_bound(pair, law, (0.7, 2.0), runs, cells=100)
        assert found.epsilon(1e-5) == pytest.approx(plain, rel=1e-9)


@pytest.mark.parametrize("law", [odp.Poisson(1e6), odp.Geometric(1e6).capped(10**6)], ids=repr)
def test_laws_that_are_too_long_say_nothing(law: odp.TrialCount) -> None:
    pair = pair_of(odp.gaussian(4.0))
    both = pointwise_bound(pair, law, (0.75, 2.0), 3)
    assert all(float(side.delta(50.0)) == 1.0 for side in both.directions)
    assert float(both.delta(50.0)) == 1.0


def reference(noise: float) -> Any:
    """DP-SGD on 60,000 records."""
    return odp.dp_sgd(noise_multiplier=noise, sample_rate=256 / 60000, steps=2344)


@pytest.mark.slow
def test_reference() -> None:
    for startup, most in ((0, 1.99), (1, 1.97), (8, 1.82)):
        found = odp.selection_guarantee(
            reference(1.0), odp.Geometric(10), density_bounds=(0.75, 2.0), startup_runs=startup
        )
        assert found.epsilon(1e-5) <= most


@pytest.mark.slow
@pytest.mark.parametrize(
    ("noise", "bounds", "mean"),
    [
        (1.0, (0.75, 2.0), 10),
        (0.71, (0.75, 2.0), 10),
        (0.71, (0.75, 2.0), 30),
        (0.71, (0.9, 1.25), 100),
    ],
)
def test_attacks_come_within_a_tenth(
    noise: float, bounds: tuple[float, float], mean: float
) -> None:
    """The closest rows of the table in docs/explanation/pointwise-bound.md."""
    found = odp.selection_guarantee(reference(noise), odp.Geometric(mean), density_bounds=bounds)
    lower, upper = found.bounds(1e-5)
    assert lower < upper <= 1.11 * lower


@pytest.mark.parametrize(
    ("law", "startup"), [(odp.Binomial(1, 0.5), 0), (odp.Geometric(10).capped(1), 2)], ids=repr
)
def test_one_run_at_most(law: odp.TrialCount, startup: int) -> None:
    """The recursion has one step then, and the search nothing to look for."""
    pair = pair_of(odp.gaussian(4.0))
    found = pointwise_bound(pair, law, (0.75, 2.0), startup, cells=100)
    plain = DataProfile(pair, law).epsilon(1e-5)
    assert plain * 0.999 <= found.epsilon(1e-5) < 1.3 * plain


# -- the event ------------------------------------------------------------------------------------


def test_start_up_runs_are_an_event_of_their_own() -> None:
    """Records older than it mean what they meant; older versions refuse what they do not know."""
    run, law = odp.gaussian(4.0), odp.Geometric(2)
    found = odp.selection_guarantee(run, law, density_bounds=(0.5, 2.0), startup_runs=2)
    record = found.to_json()["event"]
    assert record["type"] == "PrivateSelectionDpEvent"
    assert record["startup_runs"] == 2
    assert odp.Guarantee.from_json(found.to_json()) == found
    without = odp.selection_guarantee(run, law, density_bounds=(0.5, 2.0), startup_runs=0)
    assert without == odp.selection_guarantee(run, law, density_bounds=(0.5, 2.0))


@pytest.mark.parametrize(("startup", "policy"), [(1, "data"), (-1, "history"), (1.5, "history")])
def test_start_up_runs_that_are_not_allowed(startup: float, policy: str) -> None:
    with refuses("startup_runs"):
        odp.selection_guarantee(
            odp.gaussian(4.0),
            odp.Geometric(2),
            density_bounds=(0.5, 2.0),
            policy=policy,
            startup_runs=startup,  # type: ignore[arg-type]
        )
