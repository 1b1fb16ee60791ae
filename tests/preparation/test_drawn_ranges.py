"""Ranges that nobody knows: planned before a record is read, drawn once, stated."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import optuna
import pytest
from dp_accounting import dp_event
from dp_accounting.pld import pld_privacy_accountant
from refusals import refuses

import optuna_dp as odp

N = 400
SCHEMA = odp.Schema(
    age=(20, 80),
    income=odp.Number(0, 1e8, scale="private"),
    died=["no", "yes"],
    target="died",
)
RNG = np.random.default_rng(0)
ROWS: dict[str, Any] = {
    "age": RNG.normal(50, 10, N),
    "income": RNG.normal(50_000, 10_000, N),
    "died": RNG.choice(["no", "yes"], N),
}


def plan(**arguments: Any) -> odp.BudgetPlan:
    defaults = {"epsilon": 8.0, "records": N, "batch_size": 40, "epochs": 1, "pilots": 2}
    return odp.plan_budget(**{**defaults, "schema": SCHEMA, **arguments})


def study_of(some_plan: odp.BudgetPlan) -> optuna.Study:
    return optuna.create_study(direction="maximize", sampler=odp.BudgetSampler(some_plan))


def objective(trial: optuna.Trial) -> float:
    run = odp.start_run(trial)
    table = odp.draw_ranges(run, SCHEMA, ROWS).encode(ROWS)
    trained = odp.train(run, odp.SoftmaxRegression(table.width, 2), table)
    assert trained.score is not None
    return trained.score


def test_a_plan_with_open_ranges_charges_for_the_query_and_keeps_its_epsilon() -> None:
    charged = plan()
    assert charged.ranges is not None
    accountant = pld_privacy_accountant.PLDAccountant()
    for noise in charged.ranges.noise_multipliers:
        accountant.compose(dp_event.GaussianDpEvent(noise))
    for runs in (*charged.paid_pilots, charged.paid_last):
        accountant.compose(runs.event(charged.sample_rate, charged.score), runs.count)
    assert charged.guarantee.epsilon(1e-5) == pytest.approx(accountant.get_epsilon(1e-5), rel=2e-3)
    assert 7.92 <= charged.guarantee.epsilon(1e-5) <= 8.0
    without = plan(schema=None)
    assert without.ranges is None
    assert charged.final.noise_multiplier > without.final.noise_multiplier
    assert plan(schema=odp.Schema(age=(20, 80))) == without
    assert odp.BudgetPlan.from_json(charged.to_json()) == charged


def test_a_plan_for_too_few_records_asks_for_ranges_and_names_the_columns() -> None:
    with refuses("schema") as caught:
        plan(epsilon=0.1)
    assert "'income'" in str(caught.value)


def test_a_replaced_record_moves_twice_as_much_so_the_noise_is_twice_as_large() -> None:
    added = plan().ranges
    replaced = plan(neighboring_relation="replace_one").ranges
    assert added is not None
    assert replaced is not None
    assert replaced.strength == pytest.approx(added.strength / 2, rel=1e-3)


@pytest.mark.promise("public-numbers")
def test_all_trials_have_the_ranges_that_the_first_one_drew_and_the_statement_says_so() -> None:
    study = study_of(plan())
    drawn = []

    def remembering(trial: optuna.Trial) -> float:
        drawn.append(odp.draw_ranges(odp.start_run(trial), SCHEMA, ROWS).drawn_ranges)
        return objective(trial)

    study.optimize(remembering)
    assert drawn == [drawn[0]] * 3
    release = odp.release(study)
    page = release.statement()
    low, high = drawn[0]["income"]
    assert f"a number from {low:.6g} to {high:.6g}, drawn with noise" in page
    assert "Ranges drawn with noise" in page
    assert odp.verify(release.to_json()).ok


@pytest.mark.promise("public-numbers")
def test_of_many_workers_one_draws() -> None:
    study = study_of(plan(pilots=6))
    runs = [odp.start_run(study.ask()) for _ in range(6)]
    ranges: list[Any] = []

    def draw(run: odp.Run) -> None:
        ranges.append(odp.draw_ranges(run, SCHEMA, ROWS).drawn_ranges)

    threads = [threading.Thread(target=draw, args=(run,)) for run in [*reversed(runs), *runs]]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(ranges) == 12
    assert all(some == ranges[0] for some in ranges)


def test_a_trial_draws_after_one_that_failed_before_it_drew() -> None:
    study = study_of(plan())
    study.tell(study.ask(), state=optuna.trial.TrialState.FAIL)
    assert odp.draw_ranges(odp.start_run(study.ask()), SCHEMA, ROWS).open_columns == {}


@pytest.mark.promise("public-numbers")
def test_records_with_ranges_of_another_study_are_refused() -> None:
    first, second = study_of(plan()), study_of(plan())
    table = odp.draw_ranges(odp.start_run(first.ask()), SCHEMA, ROWS).encode(ROWS)
    run = odp.start_run(second.ask())
    with pytest.raises(odp.errors.PlanError, match="draw_ranges"):
        odp.train(run, odp.SoftmaxRegression(table.width, 2), table)


@pytest.mark.promise("public-numbers")
def test_what_a_plan_does_not_pay_for_is_not_drawn() -> None:
    run = odp.start_run(study_of(plan(schema=None)).ask())
    with pytest.raises(odp.errors.PlanError, match="plan_budget"):
        odp.draw_ranges(run, SCHEMA, ROWS)
    with refuses("schema") as caught:
        SCHEMA.encode(ROWS)
    assert "odp.draw_ranges(" in caught.value.fix
    other = odp.Schema(a=odp.Number(0, 9, scale="private"), b=odp.Number(0, 9, scale="private"))
    with refuses("schema"):
        odp.draw_ranges(odp.start_run(study_of(plan()).ask()), other, {"a": [1.0], "b": [1.0]})


def test_no_value_of_a_record_raises_an_error_where_ranges_are_drawn() -> None:
    odd = ["text", None, float("nan"), float("inf"), -float("inf"), 10**400, b"1"]
    rows = {**ROWS, "income": np.array([*odd, *[5.0] * (N - len(odd))], dtype=object)}
    drawn = odp.draw_ranges(odp.start_run(study_of(plan()).ask()), SCHEMA, rows)
    ((low, high),) = drawn.drawn_ranges.values()
    assert 0 <= low < high <= 1e8
