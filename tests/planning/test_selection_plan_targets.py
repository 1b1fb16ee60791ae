"""Tables whose noise is solved for a target epsilon."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest

import optuna_dp as odp

DELTA = 1e-5


# -- with a target -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "density_bounds", [[], pytest.param([(0.8, 1.25)], marks=pytest.mark.slow)]
)
def test_solving_for_the_noise(density_bounds: list[tuple[float, float]]) -> None:
    plan = odp.selection_plan(
        odp.gaussian,
        target_epsilon=1.5,
        laws=["geometric"],
        means=[3, 10],
        density_bounds=density_bounds,
    )
    assert (plan.target_epsilon, plan.one_run) == (1.5, None)
    assert len(plan.rows) == 2 + 2 * len(density_bounds)
    for row in plan.rows:
        assert row.noise_multiplier is not None
        assert row.trials is not None
        assert row.density_bounds is not None
        guarantee = odp.selection_guarantee(
            odp.gaussian(row.noise_multiplier), row.trials, density_bounds=row.density_bounds
        )
        assert 0.98 * 1.5 <= guarantee.epsilon(DELTA) == row.epsilon <= 1.5
    by_mean = {r.mean: r.noise_multiplier for r in plan.rows if not r.adaptive}
    assert by_mean[3.0] < by_mean[10.0]


@pytest.mark.slow
@pytest.mark.parametrize("jump", [3.35, 3.55])
def test_a_cost_that_jumps_is_evaluated_where_it_is_promised(jump: float) -> None:
    def run(noise: float) -> Any:
        return odp.gaussian(noise if noise > jump else 0.5 * noise)

    plan = odp.selection_plan(
        run, target_epsilon=1.5, laws=["geometric"], means=[3], density_bounds=[]
    )
    (row,) = plan.rows
    assert row.noise_multiplier is not None
    assert row.noise_multiplier > jump
    found = odp.selection_guarantee(run(row.noise_multiplier), odp.Geometric(3)).epsilon(DELTA)
    assert found == row.epsilon <= 1.5


@pytest.mark.slow
def test_a_row_out_of_reach_says_what_is_in_reach() -> None:
    fixed = odp.gaussian(4.0)
    plan = odp.selection_plan(
        lambda noise: odp.compose(odp.gaussian(noise), fixed),
        target_epsilon=0.5,
        laws=["geometric"],
        means=[3],
        density_bounds=[],
    )
    (row,) = plan.rows
    assert row.epsilon == math.inf
    assert row.attack is row.rdp is row.naive is row.price is row.noise_multiplier is None
    assert "at least" in row.note
    json.dumps(plan.to_json(), allow_nan=False)
