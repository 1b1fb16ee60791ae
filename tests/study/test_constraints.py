"""Constraints are refused, with a way that does what they should."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import optuna
import pytest
from refusals import refuses
from started import claimed, started
from support import ask, tell

import optuna_dp as odp
from optuna_dp.errors import ReleaseRefusedError
from optuna_dp.study.entries import SCORES, TRAININGS

optuna_5 = pytest.mark.skipif(
    not hasattr(optuna.Trial, "set_constraint"), reason="Optuna has set_constraint from 5.0 on"
)
RUN = odp.gaussian(noise_multiplier=4.0)
SAMPLERS: dict[str, Callable[[], Any]] = {
    "RandTune": lambda: odp.RandTuneSampler(trials=odp.Poisson(mean=20), run=RUN),
    "DPHyPO": lambda: odp.DPHyPOSampler(trials=odp.Poisson(mean=20), run=RUN),
    "Budget": lambda: odp.BudgetSampler(
        odp.plan_budget(epsilon=3.0, records=1000, batch_size=100, epochs=2, pilots=8)
    ),
    "NoisyMax": lambda: odp.NoisyMaxSampler(candidates=8, n_partitions=5000, epsilon=1.0),
}
of_each_sampler = pytest.mark.parametrize("sampler", SAMPLERS.values(), ids=SAMPLERS)
LARGEST = 0.5


def study_with(
    sampler: Any, when_too_large: Callable[[optuna.Trial, float], None]
) -> tuple[optuna.Study, Callable[[optuna.Trial], Any]]:
    """A study in which the larger is the better, and what is above LARGEST is not allowed."""

    def objective(trial: optuna.Trial) -> Any:
        x = trial.suggest_float("x", 0.0, 1.0)
        ask(trial)
        when_too_large(trial, x)
        return tell(trial, x)

    return optuna.create_study(direction="maximize", sampler=sampler), objective


@optuna_5
@of_each_sampler
def test_the_first_run_with_a_constraint_ends_the_study(sampler: Any) -> None:
    study, objective = study_with(
        sampler(), lambda trial, x: trial.set_constraint("size", x - LARGEST)
    )
    with refuses("trial.set_constraint"):
        study.optimize(objective)
    assert len(study.trials) == 1


@optuna_5
def test_a_study_with_a_constraint_is_not_released() -> None:
    plan = odp.plan_budget(epsilon=3.0, records=1000, batch_size=100, epochs=2, pilots=0)
    study, objective = study_with(
        odp.BudgetSampler(plan), lambda trial, x: trial.set_constraint("size", x - LARGEST)
    )
    with refuses("trial.set_constraint"):
        study.optimize(objective)
    with pytest.raises(ReleaseRefusedError):
        odp.release(study, vouched="The run is simulated.")


@optuna_5
def test_a_constraint_that_is_set_before_is_refused_before_anything_is_trained() -> None:
    torch = pytest.importorskip("torch")
    run = started(20)
    assert run.trial is not None
    run.trial.set_constraint("size", -1.0)
    records = torch.randn(20, 3), torch.zeros(20, dtype=torch.long)
    with refuses("trial.set_constraint"):
        odp.train(run, odp.SoftmaxRegression(3, 2), records, score="accuracy")
    with refuses("trial.set_constraint"):
        run.score([True] * 20)
    assert claimed(run, TRAININGS) == claimed(run, SCORES) == []


@pytest.mark.filterwarnings("ignore::FutureWarning")
@pytest.mark.parametrize(
    "kind", [optuna.samplers.TPESampler, optuna.samplers.NSGAIISampler], ids=lambda k: k.__name__
)
def test_a_proposer_with_constraints_is_refused(kind: Any) -> None:
    plan = odp.plan_budget(epsilon=3.0, records=1000, batch_size=100, epochs=2, pilots=4)
    with refuses("proposer"):
        odp.BudgetSampler(plan, proposer=kind(constraints_func=lambda trial: (trial.params["x"],)))
    odp.BudgetSampler(plan, proposer=kind())


@pytest.mark.parametrize("name", ["RandTune", "DPHyPO", "Budget"])
def test_what_the_refusal_advises_releases_no_setting_that_is_not_allowed(name: str) -> None:
    def end(trial: optuna.Trial, x: float) -> None:
        if x > LARGEST:
            raise optuna.TrialPruned

    study, objective = study_with(SAMPLERS[name](), end)
    study.optimize(objective)
    assert any(trial.state == optuna.trial.TrialState.PRUNED for trial in study.trials)
    released = odp.release(study, vouched="The runs are simulated.")
    assert released.params["x"] <= LARGEST
