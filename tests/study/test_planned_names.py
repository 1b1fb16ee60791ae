"""A hyperparameter that is named like what the plan fixes is warned of, and not refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import optuna
import pytest
from optuna.distributions import IntDistribution
from support import RUN, ask, logged, tell

import optuna_dp as odp

PLAN = odp.plan_budget(epsilon=3.0, records=1000, batch_size=100, epochs=2, pilots=2)
RUN_PLAN = odp.RunPlan(records=1000, batch_size=100, steps=20, noise_multiplier=2.0, score=None)
SAMPLERS: dict[str, Callable[..., Any]] = {
    "Budget": lambda space: odp.BudgetSampler(PLAN, search_space=space),
    "RandTune": lambda space: odp.RandTuneSampler(space, trials=odp.Poisson(mean=9), run=RUN_PLAN),
    "DPHyPO": lambda space: odp.DPHyPOSampler(space, trials=odp.Poisson(mean=9), run=RUN_PLAN),
}


def warnings_of(sampler: Any, *names: str) -> list[str]:
    """What the log warns of while two runs ask for hyperparameters of these names."""

    def objective(trial: optuna.Trial) -> Any:
        for name in names:
            trial.suggest_int(name, 1, 500)
        ask(trial)
        return tell(trial, 0.123 + trial.number / 77.0)

    study = optuna.create_study(sampler=sampler)
    with logged() as lines:
        study.optimize(objective, n_trials=2)
    return [line for line in lines if line.startswith("WARNING") and "fixes it" in line]


@pytest.mark.promise("cost-of-a-run")
@pytest.mark.parametrize("sampler", SAMPLERS.values(), ids=SAMPLERS)
@pytest.mark.parametrize("is_known", [False, True], ids=["asked", "search_space"])
@pytest.mark.parametrize("name", ["batch_size", "epochs", "noise_multiplier"])
def test_a_name_of_the_plan_is_warned_of_once(sampler: Any, is_known: bool, name: str) -> None:
    space = {name: IntDistribution(1, 500)} if is_known else None
    (warning,) = warnings_of(sampler(space), name)
    assert repr(name) in warning


def test_other_names_and_other_plans_are_not_warned_of() -> None:
    free = ("width", "clipping_norm", "physical_batch_size", "learning_rate", "noise_of_input")
    assert warnings_of(SAMPLERS["Budget"](None), *free) == []
    stated = odp.RandTuneSampler(trials=odp.Poisson(mean=9), run=RUN)
    assert warnings_of(stated, "batch_size") == []
