"""The planner: every figure is what it says, and solved rows keep within their target."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest
from refusals import refuses

import optuna_dp as odp
from optuna_dp.errors import UnsupportedEventError
from optuna_dp.planning import selection_plan
from optuna_dp.planning.selection_plan import PlanRow, SelectionPlan, law_of

DELTA = 1e-5
RUN = odp.gaussian(4.0)


@pytest.fixture(scope="module")
def plan() -> SelectionPlan:
    return odp.selection_plan(
        RUN, laws=["geometric", "poisson"], means=[10], density_bounds=[(0.8, 1.25)]
    )


def row_of(plan: SelectionPlan, law: str, mean: float, adaptive: bool = False) -> PlanRow:
    (row,) = [r for r in plan.rows if (r.law, r.mean, r.adaptive) == (law, float(mean), adaptive)]
    return row


def test_rows(plan: SelectionPlan) -> None:
    assert [(r.law, r.mean, r.density_bounds) for r in plan.rows] == [
        ("geometric", 10.0, (1.0, 1.0)),
        ("poisson", 10.0, (1.0, 1.0)),
        ("geometric", 10.0, (0.8, 1.25)),
    ]
    assert plan.run == RUN
    assert plan.one_run == odp.Guarantee(RUN).epsilon(DELTA)
    assert plan.target_epsilon is None


@pytest.mark.slow
def test_epsilon_is_the_guarantee(plan: SelectionPlan) -> None:
    for row in plan.rows:
        assert row.trials is not None
        assert row.density_bounds is not None
        guarantee = odp.selection_guarantee(RUN, row.trials, density_bounds=row.density_bounds)
        assert row.epsilon == guarantee.epsilon(DELTA)
        assert row.attack is not None
        assert 0.0 < row.attack <= row.epsilon


def test_naive_is_the_composition_of_that_many_runs(plan: SelectionPlan) -> None:
    row = row_of(plan, "geometric", 10)
    whole = odp.Guarantee(odp.gaussian(4.0 / math.sqrt(10.0))).epsilon(DELTA)
    assert row.naive == pytest.approx(whole, rel=2e-3)
    assert row.naive is not None
    assert row.naive > row.epsilon


@pytest.mark.slow
def test_rdp_is_as_dp_accountings_own(plan: SelectionPlan) -> None:
    from dp_accounting import dp_event
    from dp_accounting.rdp import RdpAccountant

    for law, shape in (("geometric", 1.0), ("poisson", math.inf)):
        event = dp_event.RepeatAndSelectDpEvent(RUN, mean=10.0, shape=shape)
        theirs = RdpAccountant().compose(event).get_epsilon(DELTA)
        # For Poisson laws ours is a little tighter: docs/explanation/rdp-of-selection.md.
        assert row_of(plan, law, 10).rdp == pytest.approx(theirs, rel=1e-6 if shape == 1 else 1e-4)
    printed = row_of(plan, "geometric", 10, adaptive=True).rdp
    assert printed is not None
    assert printed > row_of(plan, "geometric", 10, adaptive=True).epsilon


def test_chances(plan: SelectionPlan) -> None:
    row = row_of(plan, "geometric", 10)
    assert row.few == pytest.approx(1.0 - 0.9**3)
    # At least one of geometric(1/10) draws in the best 5 %: f / (f + gamma (1 - f)).
    worst, best = row.hit
    assert worst == best == pytest.approx(0.05 / (0.05 + 0.1 * 0.95))
    worst, best = row_of(plan, "geometric", 10, adaptive=True).hit
    assert worst == pytest.approx(0.04 / (0.04 + 0.1 * 0.96))
    assert best == pytest.approx(0.0625 / (0.0625 + 0.1 * 0.9375))


def test_no_policy_hits_more_often_than_the_planner_says() -> None:
    """The policy that always puts density C on the best part, simulated."""
    rng = np.random.default_rng(0)
    plan = odp.selection_plan(RUN, laws=[], means=[10], density_bounds=[(0.75, 2.0)])
    (row,) = plan.rows
    runs = rng.geometric(0.1, 20_000)
    hits = 1.0 - (1.0 - 2.0 * 0.05) ** runs
    error = float(hits.std() / math.sqrt(hits.size))
    assert row.hit[1] == pytest.approx(float(hits.mean()), abs=4.0 * error)


@pytest.mark.slow
def test_the_price_of_learning(plan: SelectionPlan) -> None:
    plain = row_of(plan, "geometric", 10)
    row = row_of(plan, "geometric", 10, adaptive=True)
    assert row.price == row.epsilon - plain.epsilon > 0.0
    assert plain.price is None


@pytest.mark.slow
def test_json_holds_every_figure(plan: SelectionPlan) -> None:
    record = json.loads(json.dumps(plan.to_json(), allow_nan=False))
    event = {**odp.Guarantee(RUN).to_json(), "event": record["run"]}
    assert odp.Guarantee.from_json(event).epsilon(DELTA) == record["one_run"] == plan.one_run
    assert len(record["rows"]) == len(plan.rows)
    for row, written in zip(plan.rows, record["rows"], strict=True):
        assert odp.TrialCount.from_json(written["trials"]) == row.trials
        assert tuple(written["density_bounds"]) == row.density_bounds
        assert {"epsilon", "attack", "price", "hit", "note"} <= set(written)
        assert tuple(written["hit"]) == row.hit
        for name in set(written) - {"trials", "density_bounds", "hit"}:
            assert written[name] == getattr(row, name)
    for written, short in zip(record["rows"], plan.to_json(attack=False)["rows"], strict=True):
        assert set(written) - set(short) == {"attack"}


def test_nothing_finite_is_written_as_a_word() -> None:
    plan = odp.selection_plan(
        odp.approximate_dp(0.1, 1e-3), laws=["geometric"], means=[10], density_bounds=[]
    )
    assert plan.rows[0].epsilon == math.inf
    text = json.dumps(plan.to_json(), allow_nan=False)
    assert json.loads(text)["rows"][0]["epsilon"] == "inf"


@pytest.mark.slow
def test_relation_and_delta_are_passed_on() -> None:
    plan = odp.selection_plan(
        RUN,
        laws=["geometric"],
        means=[3],
        density_bounds=[(0.8, 1.25)],
        neighboring_relation="replace_one",
        delta=1e-6,
    )
    plain, adaptive = plan.rows
    expected = odp.selection_guarantee(
        RUN, odp.Geometric(3), density_bounds=(0.8, 1.25), neighboring_relation="replace_one"
    )
    assert adaptive.epsilon == expected.epsilon(1e-6)
    assert plain.hit[0] == plain.trials.hit_probability(0.05)


# -- bad input -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "argument"),
    [
        ({"delta": 0.0}, "delta"),
        ({"neighboring_relation": "twins"}, "neighboring_relation"),
        ({"laws": ["uniform"]}, "law"),
        ({"laws": ["negative-binomial:x"]}, "law"),
        ({"laws": ["negative-binomial:-1"]}, "shape"),
        ({"laws": ["binomial:5"]}, "mean"),
        ({"laws": [3]}, "law"),
        ({"means": [0.5]}, "mean"),
        ({"means": [-1.0]}, "means"),
        ({"means": [math.nan]}, "means"),
        ({"density_bounds": [(2.0, 1.0)]}, "density_bounds"),
        ({"density_bounds": [1.0]}, "density_bounds"),
        ({"run": "sgd"}, "run"),
        ({"run": odp.gaussian}, "run"),
        ({"target_epsilon": 1.0}, "run"),
        ({"run": lambda noise: noise, "target_epsilon": 1.0}, "run"),
        ({"run": odp.gaussian, "target_epsilon": -1.0}, "target_epsilon"),
        ({"means": []}, "means"),
        ({"laws": [], "density_bounds": []}, "laws"),
    ],
)
def test_bad_input_is_refused_before_any_work(change: dict[str, Any], argument: str) -> None:
    with refuses(argument):
        odp.selection_plan(**{"run": RUN, **change})


def test_unsupported_runs_are_refused() -> None:
    from dp_accounting import dp_event

    with pytest.raises(UnsupportedEventError):
        odp.selection_plan(dp_event.UnsupportedDpEvent())


def test_law_of() -> None:
    assert law_of("geometric", 5) == odp.Geometric(5)
    assert law_of("logarithmic", 5) == odp.Logarithmic(5)
    assert law_of("poisson", 5) == odp.Poisson(5)
    assert law_of("binomial:20", 5) == odp.Binomial(20, 5)
    assert law_of("negative-binomial:-0.5", 5) == odp.NegativeBinomial(shape=-0.5, mean=5)


# -- when rows are computed ----------------------------------------------------------------------


@pytest.mark.slow
def test_rows_are_solved_when_they_are_read() -> None:
    asked: list[float] = []

    def run(noise: float) -> Any:
        asked.append(noise)
        return odp.gaussian(noise)

    plan = odp.selection_plan(run, target_epsilon=1.5, laws=["geometric"], means=[3, 10])
    checked = len(asked)
    # What was given is known without any work.
    assert [(row.law, row.mean, row.density_bounds) for row in plan.rows] == [
        ("geometric", 3.0, (1.0, 1.0)),
        ("geometric", 3.0, (0.75, 2.0)),
        ("geometric", 10.0, (1.0, 1.0)),
    ]
    assert "geometric" in repr(plan.rows)
    assert checked == len(asked) == 1
    assert plan.rows[0].noise_multiplier in asked
    so_far = len(asked)
    assert plan.rows[0].epsilon <= 1.5
    assert plan.rows[0].few is not None
    # Read again, a figure is not computed again.
    assert plan.rows[0].noise_multiplier is not None
    assert len(asked) <= so_far + 1


@pytest.mark.slow
def test_no_figure_depends_on_the_order_in_which_rows_are_read() -> None:
    def plan() -> SelectionPlan:
        return odp.selection_plan(
            lambda noise: odp.gaussian(noise),
            target_epsilon=2.0,
            laws=["geometric", "poisson", "logarithmic"],
            means=[3, 30],
            density_bounds=[],
        )

    forward, backward = plan(), plan()
    found = [row.to_json() for row in reversed(backward.rows)]
    assert [row.to_json() for row in forward.rows] == found[::-1]


def test_by_default_density_bounds_stand_at_the_smallest_mean() -> None:
    found = [
        (row.mean, row.density_bounds) for row in odp.selection_plan(RUN).rows if row.adaptive
    ]
    assert found == [(10.0, (0.75, 2.0))]
    plan = odp.selection_plan(RUN, means=[30, 20], density_bounds=[(0.9, 1.25)])
    assert [row.mean for row in plan.rows if row.adaptive] == [30.0, 20.0]


# -- the reference table -------------------------------------------------------------------------


@pytest.mark.slow
def test_the_whole_table() -> None:
    run = odp.dp_sgd(noise_multiplier=1.0, sample_rate=0.0043, steps=2344)
    plan = odp.selection_plan(run)
    assert len(plan.rows) == len(selection_plan.MEANS) * len(selection_plan.LAWS) + 1
    (row,) = [row for row in plan.rows if row.adaptive]
    assert row.price == pytest.approx(0.34, abs=0.02)
    for one in plan.rows:
        assert one.attack is not None
        assert one.attack <= one.epsilon
        guarantee = odp.selection_guarantee(run, one.trials, density_bounds=one.density_bounds)
        assert one.epsilon == guarantee.epsilon(DELTA)
