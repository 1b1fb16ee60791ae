"""Which of the two history bounds is made, and that the smaller one counts."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import optuna_dp as odp
from optuna_dp.accounting.run_profile import pair_of
from optuna_dp.errors import InvalidArgumentError
from optuna_dp.private_selection.bounds import history_only
from optuna_dp.private_selection.bounds.history_bound import HistoryProfile
from optuna_dp.private_selection.bounds.history_only import (
    HistoryOnlyBound,
    affordable_cells,
    history_only_bound,
)
from optuna_dp.private_selection.bounds.pointwise_refined import RefinedProfile
from optuna_dp.private_selection.bounds.profile_bound import DataProfile

EPSILONS = np.linspace(-1.0, 6.0, 40)
SKEWED = odp.dp_sgd(noise_multiplier=1.0, sample_rate=0.1, steps=5)


def test_the_smaller_of_both_bounds_counts_in_each_direction() -> None:
    pair, law, bounds = pair_of(SKEWED), odp.Geometric(6), (0.6, 3.0)
    gains = []
    for side, found in zip(
        (pair, pair.reversed()), history_only_bound(pair, law, bounds).directions(), strict=True
    ):
        old = HistoryProfile(side, law, bounds)
        assert np.all(found.delta(EPSILONS) <= old.delta(EPSILONS))
        # Never below selection without adaptivity, which is one of the policies.
        assert np.all(found.delta(EPSILONS) >= DataProfile(side, law).delta(EPSILONS) * 0.999)
        gains.append(old.epsilon(1e-5) / found.epsilon(1e-5))
    assert max(gains) > 1.005


def test_the_larger_direction_counts_whatever_was_asked_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The second search is put off until an epsilon hangs on it; no answer may depend on when."""
    monkeypatch.setattr(history_only, "affordable_cells", lambda *_: 120)
    monkeypatch.setattr(history_only, "refined_cells", lambda *_: 110)
    pair, law, bounds = pair_of(SKEWED), odp.Geometric(6), (0.6, 3.0)
    epsilons = np.linspace(0.0, 12.0, 30)
    one = HistoryOnlyBound(pair, law, bounds)
    first = [one.epsilon(1e-5)]
    separately = np.concatenate([one.delta(eps[None]) for eps in epsilons[::-1]])[::-1]
    other = HistoryOnlyBound(pair, law, bounds)
    together = other.delta(epsilons)
    assert separately == pytest.approx(together, rel=1e-9)
    assert first == [other.epsilon(1e-5)]
    assert float(other.delta(first[0])) <= 1e-5
    larger = np.maximum.reduce([side.delta(epsilons) for side in other.directions()])
    assert np.all(together <= larger * (1.0 + 1e-9))
    assert first[0] == max(side.epsilon(1e-5) for side in other.directions())


def test_more_start_up_runs_than_there_can_be_are_selection_without_adaptivity() -> None:
    pair, law = pair_of(SKEWED), odp.Geometric(3).capped(4)
    plain = max(DataProfile(side, law).epsilon(1e-5) for side in (pair, pair.reversed()))
    for runs in (4, 10**9):
        found = history_only_bound(pair, law, (0.7, 2.0), runs)
        assert found.epsilon(1e-5) == pytest.approx(plain, rel=0.02)


@pytest.mark.parametrize("law", [odp.Poisson(1e6), odp.Geometric(1e6).capped(10**6)], ids=repr)
def test_long_laws_have_no_search(law: odp.TrialCount) -> None:
    pair = pair_of(odp.gaussian(4.0))
    assert affordable_cells(pair, law) < 100
    both = history_only_bound(pair, law, (0.75, 2.0), 3)
    assert both.gave_up
    assert all(side.gave_up for side in both.directions())
    assert float(both.delta(50.0)) == 1.0


def reference(noise: float) -> Any:
    """DP-SGD on 60,000 records."""
    return odp.dp_sgd(noise_multiplier=noise, sample_rate=256 / 60000, steps=2344)


@pytest.mark.slow
def test_reference() -> None:
    """2.087 without the pointwise bound."""
    for startup, most in ((0, 1.96), (1, 1.94), (8, 1.80)):
        found = odp.selection_guarantee(
            reference(1.0), odp.Geometric(10), density_bounds=(0.75, 2.0), startup_runs=startup
        )
        assert found.epsilon(1e-5) <= most


@pytest.mark.slow
def test_start_up_runs_never_cost_more_than_none() -> None:
    """2.590 by the older bound alone; 24,000 cells without slopes give 2.538."""
    costs = [
        history_only_bound(pair_of(reference(1.0)), odp.Geometric(100), (0.9, 1.25), runs).epsilon(
            1e-5
        )
        for runs in (0, 1, 8, 40)
    ]
    assert costs[0] <= 2.49
    assert max(costs) == costs[0]


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
    assert lower < upper <= 1.10 * lower


def test_a_search_goes_on_while_its_cells_say_nothing() -> None:
    """Wide cells may be above every delta that is aimed at: no sign that little is to gain."""
    pair = pair_of(reference(1.0))
    found = RefinedProfile(pair, odp.Geometric(100), (0.75, 2.0), startup_runs=8, cells=120)
    assert found.epsilon(1e-5) < 4.0


@pytest.mark.parametrize("law", [odp.Binomial(1, 0.5), odp.Geometric(10).capped(1)], ids=repr)
@pytest.mark.parametrize("startup", [0, 2])
def test_one_run_at_most(law: odp.TrialCount, startup: int) -> None:
    """The recursion has one step then, and the search nothing to look for."""
    pair = pair_of(odp.gaussian(4.0))
    found = history_only_bound(pair, law, (0.75, 2.0), startup)
    plain = DataProfile(pair, law).epsilon(1e-5)
    assert plain * 0.999 <= found.epsilon(1e-5) < 1.3 * plain


# -- the event ------------------------------------------------------------------------------------


def test_start_up_runs_are_part_of_the_event() -> None:
    run, law = odp.gaussian(4.0), odp.Geometric(2)
    found = odp.selection_guarantee(run, law, density_bounds=(0.5, 2.0), startup_runs=2)
    record = found.to_json()["event"]
    assert record["type"] == "PrivateSelectionDpEvent"
    assert record["startup_runs"] == 2
    assert odp.Guarantee.from_json(found.to_json()) == found
    without = odp.selection_guarantee(run, law, density_bounds=(0.5, 2.0), startup_runs=0)
    assert without == odp.selection_guarantee(run, law, density_bounds=(0.5, 2.0))
    assert odp.Guarantee.from_json(without.to_json()) == without != found


@pytest.mark.parametrize(("startup", "policy"), [(1, "data"), (-1, "history"), (1.5, "history")])
def test_start_up_runs_that_are_not_allowed(startup: float, policy: str) -> None:
    with pytest.raises(InvalidArgumentError, match="startup_runs"):
        odp.selection_guarantee(
            odp.gaussian(4.0),
            odp.Geometric(2),
            density_bounds=(0.5, 2.0),
            policy=policy,
            startup_runs=startup,  # type: ignore[arg-type]
        )
