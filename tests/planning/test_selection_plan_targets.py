"""Tables that are solved for a target epsilon: noise, mean and density bounds found for it."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest

import optuna_dp as odp
from optuna_dp.planning.selection_plan_rows import law_of

DELTA = 1e-5


RUN = odp.gaussian(4.0)


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
    assert (plan.solved_for, plan.run, plan.one_run) == ("noise_multiplier", None, None)
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
    """The search is led by a few points that all rows share, and there may be a jump between."""

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
def test_solving_for_the_mean() -> None:
    plan = odp.selection_plan(
        RUN, target_epsilon=1.5, laws=["geometric", "poisson"], density_bounds=[(0.8, 1.25)]
    )
    assert plan.solved_for == "mean"
    assert [(r.law, r.density_bounds) for r in plan.rows] == [
        ("geometric", (1.0, 1.0)),
        ("poisson", (1.0, 1.0)),
        ("geometric", (0.8, 1.25)),
    ]
    for row in plan.rows:
        assert row.mean is not None
        assert row.trials == law_of(row.law, row.mean)
        assert 0.98 * 1.5 <= row.epsilon <= 1.5


@pytest.mark.slow
def test_solving_for_density_bounds() -> None:
    plan = odp.selection_plan(RUN, target_epsilon=1.6, solve="density_bounds", means=[3, 300])
    near, far = plan.rows
    assert near.density_bounds is not None
    assert near.adaptive
    assert 0.98 * 1.6 <= near.epsilon <= 1.6
    # 300 runs cost more than that even without adaptivity.
    assert far.trials is None
    assert far.epsilon == math.inf
    assert far.attack is far.rdp is far.hit is far.price is far.density_bounds is None
    assert (near.note, far.mean) == ("", 300.0)
    plain = odp.selection_guarantee(RUN, odp.Geometric(300)).epsilon(DELTA)
    assert f"at least {plain:.3g}"[:-1] in far.note
    json.dumps(plan.to_json(), allow_nan=False)
