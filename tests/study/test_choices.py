"""The setting that is released is the one that the run was trained with, on every storage."""

from __future__ import annotations

import enum
from collections.abc import Callable
from pathlib import Path
from typing import Any

import optuna
import pytest
from optuna.distributions import CategoricalDistribution
from optuna.storages import BaseStorage, InMemoryStorage, JournalStorage, RDBStorage
from optuna.storages.journal import JournalFileBackend
from refusals import refuses
from support import ask, tell

import optuna_dp as odp

# Optuna warns of choices that a database gives back in another form.
pytestmark = pytest.mark.filterwarnings("ignore:Choices for a categorical:UserWarning")
RUN = odp.gaussian(noise_multiplier=4.0)


class Name(str, enum.Enum):
    """As scripts name what they choose among."""

    SMALL = "small"
    LARGE = "large"


SAMPLERS: dict[str, Callable[..., Any]] = {
    "RandTune": lambda space: odp.RandTuneSampler(space, trials=odp.Poisson(mean=6), run=RUN),
    "DPHyPO": lambda space: odp.DPHyPOSampler(space, trials=odp.Poisson(mean=6), run=RUN),
    "Budget": lambda space: odp.BudgetSampler(
        odp.plan_budget(epsilon=3.0, records=1000, batch_size=100, epochs=2, pilots=(3, 1)),
        search_space=space,
    ),
    "NoisyMax": lambda space: odp.NoisyMaxSampler(
        space, candidates=4, n_partitions=5000, epsilon=1.0
    ),
    "ProposeTest": lambda space: odp.ProposeTestSampler(
        space, candidates=4, n_partitions=5000, epsilon=1.0
    ),
}
STORAGES: dict[str, Callable[[Path], BaseStorage]] = {
    "memory": lambda folder: InMemoryStorage(),
    "sqlite": lambda folder: RDBStorage(f"sqlite:///{folder}/study.db"),
    "journal": lambda folder: JournalStorage(JournalFileBackend(f"{folder}/study.log")),
}
of_each_sampler = pytest.mark.parametrize("sampler", SAMPLERS.values(), ids=SAMPLERS)
of_each_storage = pytest.mark.parametrize("storage", STORAGES.values(), ids=STORAGES)


def run_study(
    sampler: Any, storage: BaseStorage, suggest: Callable[[optuna.Trial], object]
) -> tuple[optuna.Study, dict[int, object]]:
    """Runs a study; returns it with what each run was trained with."""
    used: dict[int, object] = {}

    def objective(trial: optuna.Trial) -> Any:
        used[trial.number] = suggest(trial)
        ask(trial)
        return tell(trial, trial.number / 100.0 + 0.0123)

    study = optuna.create_study(direction="maximize", sampler=sampler, storage=storage)
    study.optimize(objective)
    return study, used


ALIKE = {
    "numbers": [1, 1.0],
    "truth values": [False, 0],
    "zeros": [0.0, -0.0],
    "in tuples": [(1, 2), (1.0, 2)],
    "a tuple and a list": [(1, 2), [1, 2]],
    "in mappings": [{"a": 1}, {"a": True}],
    "members that are text": list(Name),
}


@of_each_storage
@of_each_sampler
@pytest.mark.parametrize("is_known", [False, True], ids=["asked", "search_space"])
@pytest.mark.parametrize("choices", [[1, 1.0], [(1, 2), [1, 2]]], ids=["Python", "JSON"])
def test_choices_that_would_be_taken_for_each_other_are_refused(
    sampler: Any, storage: Any, is_known: bool, choices: list[Any], tmp_path: Path
) -> None:
    with refuses("choices of 'k'"):
        space = {"k": CategoricalDistribution(choices)} if is_known else None
        run_study(
            sampler(space),
            storage(tmp_path),
            lambda trial: trial.suggest_categorical("k", choices),
        )


@pytest.mark.parametrize("choices", ALIKE.values(), ids=ALIKE)
def test_nothing_was_trained_when_choices_are_refused(choices: list[Any]) -> None:
    used = []
    study = optuna.create_study(sampler=SAMPLERS["Budget"](None))
    with refuses("choices of 'k'"):
        study.optimize(lambda trial: used.append(trial.suggest_categorical("k", choices)))
    assert used == []


@pytest.mark.parametrize("is_known", [False, True], ids=["asked", "search_space"])
@of_each_storage
@of_each_sampler
def test_every_run_gets_the_choice_that_the_objective_names(
    sampler: Any, storage: Any, is_known: bool, tmp_path: Path
) -> None:
    choices = [(1, 2), (3,)]
    space = {"k": CategoricalDistribution(choices)} if is_known else None
    study, used = run_study(
        sampler(space), storage(tmp_path), lambda trial: trial.suggest_categorical("k", choices)
    )
    assert used
    for number, choice in used.items():
        assert choice in choices
        assert tuple(study.trials[number].params["k"]) == choice


@of_each_storage
@of_each_sampler
def test_a_whole_number_that_no_storage_can_keep_is_not_trained_with(
    sampler: Any, storage: Any, tmp_path: Path
) -> None:
    low = 2**53
    study, used = run_study(
        sampler(None), storage(tmp_path), lambda trial: trial.suggest_int("seed", low, low + 2**20)
    )
    assert {number: study.trials[number].params["seed"] for number in used} == used


def test_a_choice_may_stand_there_twice() -> None:
    study, used = run_study(
        SAMPLERS["Budget"](None),
        InMemoryStorage(),
        lambda trial: trial.suggest_categorical("k", ["a", "a", "b"]),
    )
    assert {number: study.trials[number].params["k"] for number in used} == used


@of_each_storage
def test_an_enqueued_whole_number_is_the_same_choice_as_the_float(
    storage: Any, tmp_path: Path
) -> None:
    """It is the first guess: repeated on the second rung and taken for the last run."""
    plan = odp.plan_budget(
        epsilon=3.0, run=lambda s, n: odp.gaussian(s), steps=1, pilots=(3, 2), score=None
    )
    used: dict[int, float] = {}

    def objective(trial: optuna.Trial) -> float:
        odp.start_run(trial)
        used[trial.number] = trial.suggest_float("x", -1.0, 1.0)
        return used[trial.number]

    study = optuna.create_study(
        direction="maximize", sampler=odp.BudgetSampler(plan), storage=storage(tmp_path)
    )
    study.enqueue_trial({"x": 1})
    study.optimize(objective)
    assert list(used.values()).count(1.0) == 3
    assert odp.release(study, vouched="a test").params == {"x": 1.0}
