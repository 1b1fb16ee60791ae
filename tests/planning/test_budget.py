"""plan_budget: what it promises of the target, of noise, of its record, and what it refuses."""

from __future__ import annotations

import copy
import math
from typing import Any

import numpy as np
import pytest
from dp_accounting import dp_event
from dp_accounting.pld import PLDAccountant
from refusals import refuses
from scipy.stats import norm
from slow_cases import slow_if

import optuna_dp as odp
from optuna_dp.accounting.event_json import event_to_json
from optuna_dp.errors import InvalidArgumentError, OptunaDPError

DIGITS: dict[str, Any] = {"records": 1348, "batch_size": 64, "epochs": 10}
LADDERS = [(16, 4), (12, 3), (24, 6, 2), (8,), (1,), (3, 3)]


def random_targets(seed: int, count: int) -> list[dict[str, Any]]:
    rng = np.random.default_rng(seed)
    found = []
    for _ in range(count):
        records = int(10 ** rng.uniform(2.5, 6))
        epochs = int(rng.integers(1, 30))
        found.append(
            {
                "epsilon": float(10 ** rng.uniform(-1, 1)),
                "delta": float(10 ** rng.uniform(-8, -4)),
                "records": records,
                "batch_size": int(max(1, records * 10 ** rng.uniform(-2.5, -0.5))),
                "epochs": epochs,
                "pilots": LADDERS[int(rng.integers(len(LADDERS)))],
                "pilot_epochs": epochs * float(rng.choice([1.0, 0.25])),
                "noise_increase": float(rng.uniform(1.03, 1.4)),
                "score": [None, "training", "disjoint"][int(rng.integers(3))],
                "spare_runs": int(rng.integers(2)),
            }
        )
    return found


def targets_by_size(seed: int) -> list[dict[str, Any]]:
    """Small batches of large data, where a step's loss is rare and large, and common sizes."""
    rng = np.random.default_rng(seed)
    found = []
    for records in (1348, 20_000, 327_346, 1_000_000):
        for batch_size in (64, 256, 1024):
            for epochs in (1, 5, 20):
                found.append(
                    {
                        "epsilon": float(10 ** rng.uniform(-1, 1)),
                        "delta": 1e-5 if records < 100_000 else 1e-7,
                        "records": records,
                        "batch_size": batch_size,
                        "epochs": epochs,
                        "pilots": LADDERS[int(rng.integers(len(LADDERS)))],
                        "score": [None, "training"][int(rng.integers(2))],
                        "spare_runs": int(rng.integers(2)),
                    }
                )
    return found


def check_within(target: dict[str, Any]) -> None:
    plan = odp.plan_budget(**target)
    spent = plan.guarantee.epsilon(target["delta"])
    assert 0.99 * target["epsilon"] <= spent <= target["epsilon"], target


@pytest.mark.parametrize(
    "target",
    slow_if(lambda target: target["epsilon"] > 1.0, random_targets(20261122, 4)),
    ids=lambda t: f"{t['epsilon']:.2f}",
)
def test_the_whole_costs_99_to_100_per_cent_of_the_target(target: dict[str, Any]) -> None:
    check_within(target)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:delta=:UserWarning")  # of large data sets
@pytest.mark.parametrize("target", random_targets(7, 24), ids=lambda t: f"{t['epsilon']:.2f}")
def test_more_targets(target: dict[str, Any]) -> None:
    check_within(target)


@pytest.mark.slow
@pytest.mark.parametrize(
    "target", targets_by_size(8), ids=lambda t: "{records}-{batch_size}-{epochs}".format(**t)
)
def test_sizes_up_to_a_million_records(target: dict[str, Any]) -> None:
    check_within(target)


@pytest.mark.slow
def test_dp_accounting_by_itself_agrees() -> None:
    """The same composition written out by hand, without anything of ours."""
    plan = odp.plan_budget(epsilon=3.0, **DIGITS)
    accountant = PLDAccountant()
    for run, count in [*zip(plan.rungs, plan.rung_sizes, strict=True), (plan.final, 1)]:
        assert run.sample_rate is not None
        assert run.score_noise_multiplier is not None
        step = dp_event.PoissonSampledDpEvent(
            run.sample_rate, dp_event.GaussianDpEvent(run.noise_multiplier)
        )
        accountant.compose(dp_event.SelfComposedDpEvent(step, run.steps), count)
        accountant.compose(dp_event.GaussianDpEvent(run.score_noise_multiplier), count)
    assert plan.guarantee.epsilon(1e-5) == pytest.approx(accountant.get_epsilon(1e-5), rel=2e-3)


def test_the_last_run_has_the_noise_of_an_untuned_one_times_the_increase() -> None:
    plan = odp.plan_budget(epsilon=1.0, noise_increase=1.2, score=None, **DIGITS)
    untuned = odp.dp_sgd(
        noise_multiplier=plan.final.noise_multiplier / 1.2,
        sample_rate=64 / 1348,
        steps=plan.final.steps,
    )
    alone = odp.selection_guarantee(untuned, odp.Binomial(1, 1.0)).epsilon(1e-5)
    assert 0.99 <= alone <= 1.0


def test_each_rung_has_half_the_noise_of_the_one_below() -> None:
    plan = odp.plan_budget(epsilon=1.0, pilots=(24, 6, 2), **DIGITS)
    noises = [rung.noise_multiplier for rung in plan.rungs]
    assert noises[0] == pytest.approx(2 * noises[1], rel=1e-3)
    assert noises[1] == pytest.approx(2 * noises[2], rel=1e-3)
    assert plan.pilots == 32
    assert [plan.run_at(i).rung for i in (0, 23, 24, 29, 30, 31, 32)] == [0, 0, 1, 1, 2, 2, 3]
    assert not plan.run_at(32).is_pilot
    with refuses("slot"):
        plan.run_at(33)


def test_pilots_and_last_run_have_rates_of_equal_noise() -> None:
    plan = odp.plan_budget(epsilon=3.0, pilots=8, pilot_epochs=2.5, **DIGITS)
    final, pilot = plan.final, plan.pilot
    assert pilot.steps == 53
    products = [
        run.learning_rate("sgd") * run.noise_multiplier * math.sqrt(run.steps)
        for run in (pilot, final)
    ]
    assert products[0] == pytest.approx(products[1])
    assert pilot.batch_size == final.batch_size == 64
    adam = [run.learning_rate("adam") * math.sqrt(run.steps) for run in (pilot, final)]
    assert adam[0] == pytest.approx(adam[1])


def test_a_plan_of_a_function_knows_no_batch_and_refuses_a_rate() -> None:
    plan = odp.plan_budget(
        epsilon=3.0, run=lambda noise, steps: odp.gaussian(noise), steps=10, pilots=2
    )
    with refuses("batch_size") as caught:
        plan.final.learning_rate()
    assert "optuna_dp.learning_rate(" in caught.value.fix


def test_every_run_that_may_start_is_in_the_event() -> None:
    plan = odp.plan_budget(epsilon=3.0, pilots=(4, 2), spare_runs=2, **DIGITS)
    counts = [(part.event, part.count) for part in plan.event.events]
    assert counts == [
        (plan.rungs[0].event, 4),
        (plan.rungs[1].event, 2),
        (plan.final.event, 3),
    ]
    assert plan.runs == 9


@pytest.mark.slow
def test_disjoint_validation_records_cost_the_worse_of_the_two() -> None:
    together = odp.plan_budget(epsilon=1.0, score="training", pilots=4, **DIGITS)
    apart = odp.plan_budget(epsilon=1.0, score="disjoint", pilots=4, **DIGITS)
    assert apart.pilot.score_noise_multiplier is not None
    assert together.pilot.score_noise_multiplier is not None
    assert apart.pilot.score_noise_multiplier < together.pilot.score_noise_multiplier
    assert apart.final.noise_multiplier < together.final.noise_multiplier


@pytest.mark.slow
def test_an_exchange_across_disjoint_records_is_not_covered_by_the_worse_of_the_two() -> None:
    """A record leaves the training, another joins the score: more than either exchange alone."""
    rate, noise, score_noise, epsilon = 0.05, 0.5, 2.5, 3.0
    x, y = np.linspace(-5.0, 6.0, 2001), np.linspace(-20.0, 21.0, 1001)
    absent = norm.pdf(x, 0.0, noise)
    present = (1.0 - rate) * absent + rate * norm.pdf(x, 1.0, noise)
    before = np.outer(present, norm.pdf(y, 0.0, score_noise))
    after = np.outer(absent, norm.pdf(y, 1.0, score_noise))
    cell = (x[1] - x[0]) * (y[1] - y[0])
    across = cell * np.maximum(before - np.exp(epsilon) * after, 0.0).sum()
    worse = odp.worst_case(
        odp.dp_sgd(noise_multiplier=noise, sample_rate=rate, steps=1),
        odp.scoring.score_event(score_noise),
    )
    guarantee = odp.Guarantee(worse, neighboring_relation="replace_one")
    assert across > 1.1 * guarantee.delta(epsilon)
    with refuses("score"):
        odp.plan_budget(
            epsilon=3.0, score="disjoint", neighboring_relation="replace_one", **DIGITS
        )


def test_any_event_may_be_planned() -> None:
    plan = odp.plan_budget(
        epsilon=2.0, run=lambda noise, steps: odp.gaussian(noise / steps**0.5), steps=4, pilots=4
    )
    assert plan.final.sample_rate is None
    assert 1.98 <= plan.guarantee.epsilon(1e-5) <= 2.0
    assert odp.BudgetPlan.from_json(plan.to_json()) == plan


def test_the_record_is_read_back_and_nothing_else_is() -> None:
    plan = odp.plan_budget(epsilon=3.0, spare_runs=1, **DIGITS)
    record = plan.to_json()
    assert odp.BudgetPlan.from_json(record) == plan
    for change in (
        lambda r: r.pop("delta"),
        lambda r: r.update(version=True),
        lambda r: r.update(extra=1),
        lambda r: r["rungs"][0].update(count=0),
        lambda r: r["rungs"][0].update(noise_multiplier=-1.0),
        lambda r: r["final"].update(steps=0),
        lambda r: r["final"].update(training=event_to_json(odp.gaussian(1.0))),
        lambda r: r.update(sample_rate=None, batch_size=None),
        lambda r: r.update(score="validation"),
        lambda r: r.update(neighboring_relation="neighbours"),
        lambda r: r.update(rungs=None),
    ):
        damaged = copy.deepcopy(record)
        change(damaged)
        with pytest.raises(OptunaDPError):
            odp.BudgetPlan.from_json(damaged)


@pytest.mark.parametrize(
    ("given", "argument"),
    [
        ({"epsilon": 1e-9}, "epsilon"),
        ({"epsilon": -1.0}, "epsilon"),
        ({"epsilon": math.nan}, "epsilon"),
        ({"delta": 1.0}, "delta"),
        ({"batch_size": 2000}, "batch_size"),
        ({"records": 0}, "records"),
        ({"records": 10.5}, "records"),
        ({"epochs": 0.0}, "epochs"),
        ({"epochs": 1e-4}, "epochs"),
        ({"epochs": None}, "epochs"),
        ({"pilots": (0,)}, "pilots"),
        ({"pilots": (4, 0)}, "pilots"),
        ({"pilots": -1}, "pilots"),
        ({"pilots": (4, 16)}, "pilots"),
        ({"pilots": 20_000}, "pilots"),
        ({"pilots": 5000, "noise_increase": 1.01}, "pilots"),
        ({"pilot_epochs": 20}, "pilot_epochs"),
        ({"noise_increase": 1.0}, "noise_increase"),
        ({"noise_increase": 0.5}, "noise_increase"),
        ({"score": "validation"}, "score"),
        ({"spare_runs": -1}, "spare_runs"),
        ({"run": lambda noise, steps: odp.gaussian(noise)}, "records"),
        ({"neighboring_relation": "neighbours"}, "neighboring_relation"),
    ],
    ids=lambda value: value if isinstance(value, str) else "-".join(value),
)
def test_bad_input_gets_one_clear_line(given: dict[str, Any], argument: str) -> None:
    with refuses(argument) as caught:
        odp.plan_budget(**{"epsilon": 3.0, **DIGITS, **given})
    message = str(caught.value)
    assert "\n" not in message
    assert len(message) < 400


@pytest.mark.parametrize(("epsilon", "work"), [(1.0, None), (3.0, 4), (8.0, 4)])
def test_without_a_batch_size_it_takes_the_favored_one(epsilon: float, work: float | None) -> None:
    given: dict[str, Any] = {"records": 1348, "epochs": 10}
    favored = odp.batch_choices(epsilon=epsilon, work=work or 1, **given).favored
    plan = odp.plan_budget(epsilon=epsilon, work=work, pilots=2, **given)
    assert plan.final.batch_size == favored.batch_size
    assert plan.final.steps == favored.steps
    assert plan.final.sample_rate == favored.batch_size / 1348
    assert 0.99 * epsilon <= plan.guarantee.epsilon(1e-5) <= epsilon


def test_work_is_refused_beside_a_batch_size() -> None:
    for given in (DIGITS, {"run": lambda noise, steps: odp.gaussian(noise), "steps": 3}):
        with pytest.raises(InvalidArgumentError) as refused:
            odp.plan_budget(epsilon=3.0, work=2.0, **given)
        assert refused.value.argument == "work"
