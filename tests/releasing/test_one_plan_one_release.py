"""A plan is read as it was written, and is good for one release."""

from __future__ import annotations

from typing import Any

import optuna
import pytest
from samplers.budget.budget_support import budget
from support import RUN, exactly, objective, study_of

import optuna_dp as odp
from optuna_dp.errors import ReleaseRefusedError
from optuna_dp.study.entries import PLAN, SLOT

X = {"x": optuna.distributions.FloatDistribution(0.0, 1.0)}


def noisy_max() -> odp.NoisyMaxSampler:
    return odp.NoisyMaxSampler(X, candidates=4, n_partitions=900, epsilon=1.0)


def copy_of(study: optuna.Study, sampler: Any) -> optuna.Study:
    name = f"copy {len(study._storage.get_all_studies())}"
    optuna.copy_study(
        from_study_name=study.study_name,
        from_storage=study._storage,
        to_storage=study._storage,
        to_study_name=name,
    )
    return optuna.load_study(study_name=name, storage=study._storage, sampler=sampler)


@pytest.mark.promise("a copy of the study in the same storage")
@pytest.mark.promise("all-searches")
def test_copies_are_not_fresh_private_choices() -> None:
    """Thirty copies were thirty choices in version 0.1.0, each claiming the whole epsilon."""
    sampler = noisy_max()
    study = study_of(sampler)
    trials = [study.ask() for _ in range(4)]
    for trial in trials:  # No worker makes the choice: it is left to the release.
        study.tell(trial, trial.suggest_float("x", 0, 1))
    copies = [copy_of(study, sampler) for _ in range(3)]
    found = odp.release(copies[1])
    before = len(study.trials)
    for other in (study, copies[0], copies[2]):
        with pytest.raises(ReleaseRefusedError, match="'copy 2'"):
            odp.release(other)
    assert len(study.trials) == before, "a choice was made before it was refused"
    # The way out.
    assert odp.release(copies[1]).params == found.params


def test_a_half_finished_copy_that_is_continued_is_no_second_search() -> None:
    sampler = odp.RandTuneSampler(trials=exactly(5), run=RUN)
    study = study_of(sampler)
    study.optimize(objective, n_trials=2)
    copy = copy_of(study, sampler)
    for one in (study, copy):
        one.optimize(objective)
    odp.release(study, vouched="a test")
    with pytest.raises(ReleaseRefusedError, match=study.study_name):
        odp.release(copy)
    odp.release(study, vouched="a test")


@pytest.mark.promise("all-searches")
@pytest.mark.parametrize("kind", ["budget", "rand_tune"])
def test_of_copies_that_went_on_in_several_ways_only_the_first_is_released(kind: str) -> None:
    """Three copies each made a last run, and the best was released."""
    sampler: Any = odp.BudgetSampler(budget(3))
    if kind == "rand_tune":
        sampler = odp.RandTuneSampler(trials=exactly(5), run=RUN)
    study = study_of(sampler)
    study.optimize(objective, n_trials=3)
    copies = [copy_of(study, sampler) for _ in range(3)]
    for one in copies[:2]:
        one.optimize(objective)
    # A copy of which nothing else is known is a study that was moved.
    alone = optuna.storages.InMemoryStorage()
    optuna.copy_study(
        from_study_name=copies[0].study_name, from_storage=study._storage, to_storage=alone
    )
    moved = optuna.load_study(study_name=copies[0].study_name, storage=alone, sampler=sampler)
    odp.release(moved, vouched="a test")
    with pytest.raises(ReleaseRefusedError, match="'copy 1'"):
        odp.release(copies[1])
    # The original has gone on in no other way so far; once it has, it is the one.
    study.optimize(objective)
    for one in copies[:2]:
        with pytest.raises(ReleaseRefusedError, match=study.study_name):
            odp.release(one)
    odp.release(study, vouched="a test")


def test_a_copy_of_a_released_study_gives_the_same_release() -> None:
    sampler = odp.RandTuneSampler(trials=exactly(3), run=RUN)
    study = study_of(sampler)
    study.optimize(objective)
    found = odp.release(study, vouched="a test")
    copy = copy_of(study, sampler)
    assert odp.release(copy, vouched="a test").params == found.params


def stored(study: optuna.Study) -> list[optuna.trial.FrozenTrial]:
    """The very trials that a storage in memory keeps."""
    storage = study._storage
    assert isinstance(storage, optuna.storages.InMemoryStorage)
    return storage._studies[study._study_id].trials


@pytest.mark.parametrize("slots", [2, 3, 9])
def test_a_number_of_runs_that_was_damaged_is_noticed(slots: int) -> None:
    study = study_of(odp.RandTuneSampler(trials=exactly(5), run=RUN))
    study.optimize(objective)
    record = stored(study)[0].system_attrs[PLAN.key]
    stored(study)[0].system_attrs[PLAN.key] = {**record, "slots": slots}
    study.optimize(objective)  # A worker that reads the damaged entry makes nothing sound.
    with pytest.raises(ReleaseRefusedError, match="corrupted") as caught:
        odp.release(study)
    assert caught.value.trial_number == 0
    stored(study)[0].system_attrs[PLAN.key] = record
    if slots < 9:
        assert odp.release(study, vouched="a test").value == study.best_value


def test_a_slot_that_does_not_say_its_plan_is_refused() -> None:
    study = study_of(odp.RandTuneSampler(trials=exactly(5), run=RUN))
    study.optimize(objective)
    for trial in stored(study):
        record = dict(trial.system_attrs[SLOT.key])
        del record["plan"]
        trial.system_attrs[SLOT.key] = record
    with pytest.raises(ReleaseRefusedError, match="'plan'") as caught:
        odp.release(study)
    assert caught.value.trial_number == 0
