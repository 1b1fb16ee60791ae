"""What the command says that pilots are worth."""

import math
from typing import Any

import numpy as np
import optuna
import pytest
from support import logged, recorded, simulated

import optuna_dp as odp
from optuna_dp.planning.guidance import noise_of_twice, pilot_worth

PUBLIC: dict[str, Any] = {"epsilon": 3.0, "records": 1355, "batch_size": 64, "epochs": 10}


@pytest.mark.slow
@pytest.mark.parametrize("increase", [1.05, 1.15])
def test_twice_the_pilots_at_that_noise_are_as_good_as_these(increase: float) -> None:
    plan = odp.plan_budget(**PUBLIC, pilots=(8, 2), noise_increase=increase)
    twice = odp.plan_budget(
        **PUBLIC, pilots=(16, 4), noise_increase=increase * noise_of_twice(plan)
    )
    assert twice.pilot.noise_multiplier == pytest.approx(plan.pilot.noise_multiplier, rel=0.1)


def test_half_of_the_budget_cannot_pay_for_twice_the_pilots() -> None:
    assert math.isinf(noise_of_twice(odp.plan_budget(**PUBLIC, pilots=4, noise_increase=1.5)))


def test_a_pilot_is_worth_a_training_of_its_own_epsilon() -> None:
    plan = odp.plan_budget(**PUBLIC, pilots=(12, 3))
    first, second = pilot_worth(plan)
    assert (first.pilots, second.pilots) == plan.rung_sizes
    alone = odp.Guarantee(plan.pilot.event).epsilon(1e-5)
    assert first.epsilon == pytest.approx(alone, rel=0.01)
    assert first.epsilon < second.epsilon < 3.0


@pytest.mark.slow
def test_the_spread_is_that_of_private_accuracy() -> None:
    plan = odp.plan_budget(**PUBLIC)
    noise = plan.pilot.score_noise_multiplier
    assert noise is not None
    scores = [
        odp.scoring.private_accuracy([True] * 900, size=1355, noise_multiplier=noise)
        for _ in range(1000)
    ]
    # The standard deviation of a thousand is off by more than 15 % with probability 1e-10.
    assert pilot_worth(plan)[0].spread == pytest.approx(np.std(scores), rel=0.15)
    assert pilot_worth(odp.plan_budget(**PUBLIC, score=None))[0].spread is None


MANY: dict[str, Any] = {
    "epsilon": 3.0, "delta": 1e-6, "records": 20_000, "batch_size": 512, "epochs": 10
}  # fmt: skip


@pytest.mark.slow
def test_the_default_is_short_pilots_for_less_than_three_trainings() -> None:
    for epochs in (1, 3, 10, 60):
        plan = odp.plan_budget(**{**MANY, "epochs": epochs})
        assert plan == odp.plan_budget(**{**MANY, "epochs": epochs}, pilots="auto")
        assert plan.rung_sizes == (12, 3)
        assert {rung.steps for rung in plan.rungs} == {
            min(plan.final.steps, max(20, round(0.16 * plan.final.steps)))
        }
    assert 15 * plan.pilot.steps < 2.5 * plan.final.steps
    given = odp.plan_budget(**PUBLIC, pilots=(12, 3))
    assert given.pilot.steps == given.final.steps
    assert odp.plan_budget(**PUBLIC, pilot_epochs=10) == given


FAINT: dict[str, Any] = {**MANY, "epsilon": 0.3}
BLIND: dict[str, Any] = {"epsilon": 0.3, "records": 134, "batch_size": 40, "epochs": 40}


def test_where_training_noise_hides_what_is_good_a_short_list_is_planned() -> None:
    """Also for scores without noise: it is the training that a pilot's score cannot see past."""
    for given in (FAINT, FAINT | {"score": None}):
        with logged() as lines:
            plan = odp.plan_budget(**given)
        assert plan == odp.plan_budget(**given, candidates=6)
        assert [line for line in lines if "short list of 6 candidates" in line] == lines
    with logged() as lines:
        assert odp.plan_budget(**{**FAINT, "epsilon": 1.0}).rung_sizes == (12, 3)
    assert lines == []


@pytest.mark.slow
def test_pilots_that_would_only_see_noise_are_left_out() -> None:
    for given in (BLIND, BLIND | {"score": None}):
        with logged() as lines:
            plan = odp.plan_budget(**given)
        assert plan == odp.plan_budget(**given, pilots=0)
        assert len(lines) == 1
        assert "one run and no pilots" in lines[0]


@pytest.mark.parametrize(
    "asked",
    [{"pilots": (12, 3)}, {"noise_increase": 1.15}, {"pilot_epochs": 6}],
    ids=str,
)
def test_pilots_that_were_asked_for_stay(asked: dict[str, Any]) -> None:
    for given in (FAINT, BLIND):
        with logged() as lines:
            plan = odp.plan_budget(**given, **asked)
        assert plan.rung_sizes == (12, 3)
        assert lines == []
        assert "hides which settings are good" in repr(plan)


def test_the_default_plan_takes_a_list_or_a_first_guess() -> None:
    plan = odp.plan_budget(**FAINT)
    odp.BudgetSampler(plan, candidates=[{"x": x / 10} for x in range(6)])
    odp.BudgetSampler(plan, choose="evidence")


def test_a_study_without_pilots_runs_the_first_guess() -> None:
    study = optuna.create_study(sampler=odp.BudgetSampler(odp.plan_budget(**BLIND)))
    study.enqueue_trial({"x": 0.25})
    seen = []

    def objective(trial: optuna.Trial) -> float:
        run = odp.start_run(trial)
        run.spent(recorded(simulated(run)))
        seen.append(trial.suggest_float("x", 0, 1))
        return run.score(np.ones(134, dtype=bool))

    study.optimize(objective)
    assert seen == [0.25]
    assert odp.release(study).params == {"x": 0.25}
