"""Short lists: each candidate is one pilot, and the last run takes the best score."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import optuna
import pytest
from budget_support import budget
from dp_accounting import dp_event
from dp_accounting.pld import PLDAccountant
from optuna.distributions import FloatDistribution
from refusals import refuses
from support import asking, logged, objective, study_of

import optuna_dp as odp
from optuna_dp.errors import PlanError

SMALL: dict[str, Any] = {"epsilon": 3.0, "records": 500, "batch_size": 50, "epochs": 20}
X = [{"x": 0.9}, {"x": 0.3}, {"x": -0.5}]


def short(count: int = 3) -> odp.BudgetPlan:
    """A plan of Gaussian runs for a list."""
    return replace(budget(count), candidates=count)


def studied(candidates: Any = X, count: int = 3, **given: Any) -> optuna.Study:
    study = study_of(odp.BudgetSampler(short(count), candidates=candidates, **given))
    study.optimize(asking(objective))
    return study


@pytest.fixture(scope="module")
def plan() -> odp.BudgetPlan:
    return odp.plan_budget(**SMALL, candidates=5)


def test_a_plan_for_a_list_has_one_rung_of_two_fifths_of_the_length(plan: odp.BudgetPlan) -> None:
    assert plan.candidates == 5
    assert plan.rung_sizes == (5,)
    assert (plan.pilot.steps, plan.final.steps) == (80, 200)
    alone = odp.plan_budget(**SMALL, pilots=0)
    assert plan.final.noise_multiplier == pytest.approx(1.08 * alone.final.noise_multiplier, 1e-3)
    assert odp.BudgetPlan.from_json(plan.to_json()) == plan
    assert "5 candidates" in repr(plan)


@pytest.mark.slow
def test_dp_accounting_by_itself_says_what_the_plan_says(plan: odp.BudgetPlan) -> None:
    """The five candidates and the last run, written out by hand without anything of ours."""
    accountant = PLDAccountant()
    for run, count in ((plan.pilot, 5), (plan.final, 1)):
        step = dp_event.PoissonSampledDpEvent(
            50 / 500, dp_event.GaussianDpEvent(run.noise_multiplier)
        )
        accountant.compose(dp_event.SelfComposedDpEvent(step, run.steps), count)
        assert run.score_noise_multiplier is not None
        accountant.compose(dp_event.GaussianDpEvent(run.score_noise_multiplier), count)
    spent = plan.guarantee.epsilon(1e-5)
    assert spent == pytest.approx(accountant.get_epsilon(1e-5), rel=2e-3)
    assert 2.97 <= spent <= 3.0


def test_a_fifth_of_a_candidates_squared_budget_is_its_score(plan: odp.BudgetPlan) -> None:
    assert plan.pilot.score_noise_multiplier is not None
    score = plan.pilot.score_noise_multiplier**-2
    noise = plan.pilot.noise_multiplier
    training = (50 / 500) ** 2 * 80 * np.expm1(noise**-2)  # the central limit
    assert score / (score + training) == pytest.approx(0.2, abs=0.03)


@pytest.mark.slow
def test_other_trainings_have_short_lists_too() -> None:
    plan = odp.plan_budget(
        epsilon=3.0, run=lambda noise, steps: odp.gaussian(noise / steps**0.5), steps=100,
        candidates=2,
    )  # fmt: skip
    assert (plan.rung_sizes, plan.pilot.steps, plan.final.steps) == ((2,), 40, 100)


@pytest.mark.parametrize(
    "given",
    [
        {"candidates": 1},
        {"candidates": 2.5},
        {"candidates": 3, "pilots": (4, 2)},
        {"candidates": 3, "pilots": 0},
    ],
)
def test_what_is_no_plan_for_a_list(given: dict[str, Any]) -> None:
    with refuses("candidates"):
        odp.plan_budget(**SMALL, **given)


def test_a_record_with_another_number_of_candidates_is_refused(plan: odp.BudgetPlan) -> None:
    damaged = plan.to_json() | {"candidates": 4}
    with refuses("data"):
        odp.BudgetPlan.from_json(damaged)


def test_every_candidate_is_tried_once_and_the_best_is_trained() -> None:
    study = studied()
    assert [trial.params for trial in study.trials] == [*X, {"x": 0.3}]
    release = odp.release(study)
    assert release.params == {"x": 0.3}
    assert [pilot["params"] for pilot in release.pilots] == X
    statement = release.statement()
    assert "a list that was given before the first run" in statement
    assert "those of the pilot with the best score" in statement


def test_enqueued_guesses_are_a_list_as_well() -> None:
    """No margin: the first one is not preferred, however small the difference."""
    study = study_of(odp.BudgetSampler(short()))
    for point in ({"x": 0.31}, {"x": 0.305}, {"x": -0.5}):
        study.enqueue_trial(point)
    with logged() as lines:
        study.optimize(asking(objective))
    assert odp.release(study).params == {"x": 0.305}
    assert not any("short list" in line for line in lines)


def test_workers_run_candidates_side_by_side() -> None:
    study = study_of(odp.BudgetSampler(short(), candidates=X))
    asked = [study.ask() for _ in X]
    assert [trial.suggest_float("x", -1.0, 1.0) for trial in asked] == [0.9, 0.3, -0.5]


def test_what_a_candidate_does_not_name_is_drawn() -> None:
    def two(trial: optuna.Trial) -> float:
        return objective(trial) - trial.suggest_float("y", 0.0, 1.0)

    study = study_of(odp.BudgetSampler(short(), candidates=X))
    study.optimize(asking(two))
    assert [trial.params["x"] for trial in study.trials[:3]] == [0.9, 0.3, -0.5]
    assert len({trial.params["y"] for trial in study.trials[:3]}) == 3
    assert study.trials[3].params in [trial.params for trial in study.trials[:3]]


def test_a_list_of_another_length_is_refused_with_what_to_change() -> None:
    for points in (X[:2], [*X, {"x": 0.0}]):
        with refuses("candidates") as caught:
            odp.BudgetSampler(short(), candidates=points)
        assert f"candidates={len(points)}" in caught.value.fix


def test_fewer_enqueued_guesses_than_the_plan_has_are_told() -> None:
    study = study_of(odp.BudgetSampler(short()))
    study.enqueue_trial(X[0])
    with logged() as lines:
        study.optimize(asking(objective))
    assert sum("enqueued" in line for line in lines) == 1
    assert len(odp.release(study).pilots) == 3


def test_more_enqueued_guesses_than_the_plan_has_are_dropped() -> None:
    study = study_of(odp.BudgetSampler(short()))
    for point in [*X, {"x": 0.31}]:
        study.enqueue_trial(point)
    with logged() as lines:
        study.optimize(asking(objective))
    assert sum("dropped" in line for line in lines) == 1
    assert odp.release(study).params == {"x": 0.3}


def test_an_enqueued_trial_takes_the_place_of_a_candidate() -> None:
    study = study_of(odp.BudgetSampler(short(), candidates=X))
    study.enqueue_trial({"x": 0.29})
    with logged() as lines:
        study.optimize(asking(objective))
    assert [trial.params["x"] for trial in study.trials[:3]] == [0.29, 0.3, -0.5]
    assert sum("candidates[0]" in line for line in lines) == 1


@pytest.mark.parametrize(
    ("given", "argument"),
    [
        ({"candidates": [{"x": 1}, {"x": 2}, {"x": 1}]}, "candidates[2]"),
        ({"candidates": [{"x": 1}, {"x": 2}, {"x": np.ones(2)}]}, "candidates[2]"),
        ({"candidates": [{"x": 1}, {"x": 2}, 3]}, "candidates[2]"),
        ({"candidates": [{"x": 1}, {"x": 2}, {"x": 1.0}]}, "candidates[2]"),
        ({"candidates": {"x": 1}}, "candidates"),
        ({"candidates": X, "choose": "evidence"}, "choose"),
        ({"candidates": X, "proposer": optuna.samplers.RandomSampler()}, "proposer"),
        ({"candidates": X, "pilot_batch_size": 2}, "pilot_batch_size"),
        (
            {"candidates": X, "search_space": {"x": FloatDistribution(-1.0, 0.5)}},
            "candidates[0]['x']",
        ),
        ({"candidates": X, "search_space": {"y": FloatDistribution(-1.0, 1.0)}}, "candidates[0]"),
    ],
)
def test_what_is_no_list(given: dict[str, Any], argument: str) -> None:
    with refuses(argument):
        odp.BudgetSampler(short(), **given)


def test_a_list_needs_a_plan_for_one() -> None:
    with refuses("candidates"):
        odp.BudgetSampler(budget(3), candidates=X)


def test_a_value_outside_the_range_of_the_objective_is_named() -> None:
    with refuses("candidates[1]['x']"):
        studied([{"x": 0.1}, {"x": 7.0}, {"x": 0.2}])


def test_a_worker_with_another_list_begins_no_run() -> None:
    study = study_of(odp.BudgetSampler(short(), candidates=X))
    study.optimize(asking(objective), n_trials=1)
    study.sampler = odp.BudgetSampler(short(), candidates=X[::-1])
    with pytest.raises(PlanError):
        study.optimize(asking(objective), n_trials=1)


def test_a_function_may_choose_from_a_list() -> None:
    study = studied(choose=lambda pilots: pilots[-1][0])
    assert odp.release(study).params in X
    assert odp.release(study).params != {"x": 0.3}
