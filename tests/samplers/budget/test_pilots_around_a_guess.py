"""A budget's pilots around a good guess: the first at the guess, the others from the prior."""

from __future__ import annotations

import math

import optuna
import pytest
from optuna.distributions import FloatDistribution
from refusals import refuses
from samplers.budget.budget_support import budget
from scipy import stats
from support import asking

import optuna_dp as odp

SPACE = {
    "noise": FloatDistribution(0.001, 100.0, log=True),
    "other": FloatDistribution(0.0, 1.0),
}
PRIOR = odp.around({"noise": 0.3})


@asking
def objective(trial: optuna.Trial) -> float:
    noise = trial.suggest_float("noise", 0.001, 100.0, log=True)
    return -abs(math.log(noise / 0.5)) + trial.suggest_float("other", 0.0, 1.0)


def studied(plan: odp.BudgetPlan) -> optuna.Study:
    sampler = odp.BudgetSampler(plan, search_space=SPACE, proposer=PRIOR)
    study = optuna.create_study(direction="maximize", sampler=sampler)
    study.optimize(objective, callbacks=[odp.PrivacyCallback()])
    return study


def test_the_guess_is_the_first_pilot_and_the_statement_names_the_law() -> None:
    study = studied(budget(4, 2))
    assert study.trials[0].params["noise"] == 0.3
    assert len({trial.params["noise"] for trial in study.trials[:4]}) == 4
    best = max(study.trials[4:6], key=lambda trial: trial.value)
    assert study.trials[6].params == best.params
    assert "proposed by Around" in odp.release(study).statement()


@pytest.mark.slow
def test_the_other_pilots_follow_the_prior() -> None:
    study = studied(budget(120))
    drawn = [math.log(trial.params["noise"] / 0.3) for trial in study.trials[1:120]]
    assert stats.kstest(drawn, "norm").pvalue > 1e-6
    uniform = [math.log(trial.params["noise"] / 0.001) / math.log(1e5) for trial in study.trials]
    assert stats.kstest(uniform[1:120], "uniform").pvalue < 1e-6


def test_pilots_side_by_side_share_the_one_guess() -> None:
    sampler = odp.BudgetSampler(
        budget(4, 2), search_space=SPACE, proposer=PRIOR, pilot_batch_size=4
    )
    study = optuna.create_study(direction="maximize", sampler=sampler)
    asked = [study.ask(SPACE).params["noise"] for _ in range(4)]
    assert [noise == 0.3 for noise in asked] == [True, False, False, False]


def test_parameters_that_are_found_on_the_way_follow_it_too() -> None:
    sampler = odp.BudgetSampler(budget(4, 2), proposer=PRIOR)
    study = optuna.create_study(direction="maximize", sampler=sampler)
    study.optimize(objective, callbacks=[odp.PrivacyCallback()])
    assert study.trials[0].params["noise"] == 0.3
    assert all(0.001 < trial.params["noise"] < 30.0 for trial in study.trials[:4])


def test_a_range_without_the_guess_is_refused() -> None:
    sampler = odp.BudgetSampler(budget(4, 2), proposer=PRIOR)
    study = optuna.create_study(direction="maximize", sampler=sampler)
    with refuses("centers['noise']"):
        study.optimize(lambda trial: trial.suggest_float("noise", 1.0, 2.0, log=True))
