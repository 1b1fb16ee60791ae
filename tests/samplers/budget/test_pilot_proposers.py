"""What a proposer of pilots sees: private outputs by slot, and nothing else."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from optuna.samplers import BaseSampler, GridSampler, QMCSampler, RandomSampler
from optuna.trial import TrialState, create_trial
from samplers.budget.budget_support import X, budget, rungs_of, sampler
from support import objective, study_of

from optuna_dp.study.entries import PROPOSER


class Spy(BaseSampler):
    """Proposes a fixed ladder and keeps all that it could read; copies share the notes."""

    def __init__(self, notes: list[Any]) -> None:
        self.notes = notes

    def __deepcopy__(self, memo: Any) -> Spy:
        return Spy(self.notes)

    def infer_relative_search_space(self, study: Any, trial: Any) -> dict[str, Any]:
        return {}

    def sample_relative(self, study: Any, trial: Any, space: Any) -> dict[str, Any]:
        return {}

    def sample_independent(self, study: Any, trial: Any, name: str, distribution: Any) -> Any:
        known = [t for t in study.get_trials() if t.state.is_finished()]
        self.notes.append((trial.number, known, study.user_attrs, study._storage))
        return 0.1 * len(known)


def noted(
    scores: Sequence[float | None], order: Sequence[int], noise: float = 0.0
) -> tuple[list[Any], float]:
    """What the spy can read at the fourth pilot, whatever happened around the scores."""
    notes: list[Any] = []
    study = study_of(sampler(budget(6), search_space=X, pilot_batch_size=3, proposer=Spy(notes)))
    block = [study.ask() for _ in scores]
    for trial in block:
        trial.suggest_float("x", -1.0, 1.0)
    for i in order:
        trial, value = block[i], scores[i]
        trial.set_user_attr("loss", noise)
        trial.report(noise, step=0)
        if value is None:
            study.tell(trial, state=TrialState.FAIL)
        else:
            study.tell(trial, value)
    study._storage.set_study_user_attr(study._study_id, "noise", noise)
    for frozen in study._storage.get_all_trials(study._study_id, deepcopy=False):
        assert frozen.datetime_complete is not None
        frozen.datetime_complete += datetime.timedelta(seconds=1e5 * noise)
    x = study.ask().suggest_float("x", -1.0, 1.0)
    number, known, attrs, storage = notes[-1]
    assert storage is not study._storage
    assert attrs == {}
    seen = [
        (
            *(t.number, t.params, t.values, t.state, t.user_attrs, t.system_attrs),
            *(t.intermediate_values, t.datetime_start, t.datetime_complete),
        )
        for t in known
    ]
    assert number == 3
    return seen, x


def test_the_proposer_sees_parameters_and_scores_by_slot_and_nothing_else() -> None:
    scores = [0.1, None, 0.9]
    reference, x = noted(scores, [0, 1, 2])
    assert [entry[2] for entry in reference] == [[0.1], None, [0.9]]
    assert x == pytest.approx(0.3)
    for entry in reference:
        assert entry[4] == entry[5] == entry[6] == {}
        assert entry[7] == entry[8] == datetime.datetime(2000, 1, 1)
    for order in ([2, 1, 0], [1, 2, 0]):
        assert noted(scores, order, noise=7.0) == (reference, x)
    assert noted([0.1, None, 0.8], [0, 1, 2])[0] != reference


def test_a_pilot_sees_the_completed_batches_before_its_own() -> None:
    notes: list[Any] = []
    spied = sampler(budget(7), search_space=X, pilot_batch_size=3, proposer=Spy(notes))
    study_of(spied).optimize(objective)
    last = {number: len(known) for number, known, _, _ in notes}
    assert last == {0: 0, 1: 0, 2: 0, 3: 3, 4: 3, 5: 3, 6: 6}


@pytest.mark.parametrize("batch", [1, 3])
def test_a_proposer_sees_nothing_of_trials_that_are_no_runs(batch: int) -> None:
    """Of one that was added by hand, and of one that another sampler made, it sees a failure."""
    notes: list[Any] = []
    study = study_of(
        sampler(budget(6), search_space=X, pilot_batch_size=batch, proposer=Spy(notes))
    )
    study.optimize(objective, n_trials=1)
    study.add_trial(
        create_trial(
            params={"x": 0.5},
            distributions=X,
            value=9.0,
            user_attrs={"secret": 9.0},
            system_attrs={PROPOSER.key: {"trial": {"secret": 9.0}, "study": {"secret": 9.0}}},
        )
    )
    ours, study.sampler = study.sampler, RandomSampler()
    study.optimize(lambda trial: trial.suggest_float("x", -1.0, 1.0) + 9.0, n_trials=1)
    study.sampler = ours
    study.optimize(objective)
    assert rungs_of(study)[:4] == ["pilot", "", "", "pilot"]
    known = {number: trials for number, trials, _, _ in notes}[5]
    first, *others = known[:3]
    assert first.params == study.trials[0].params
    for one in others:
        shown = (one.state, one.params, one.values, one.user_attrs, one.system_attrs)
        assert shown == (TrialState.FAIL, {}, None, {}, {})


@pytest.mark.slow
def test_the_default_proposer_learns() -> None:
    """TPE's second half of forty pilots is better than the uniform law's mean, -0.42.

    One study's mean is -0.08 with a standard deviation of 0.036 (60 studies): -0.2 is nine of
    them away from the mean of eight.
    """
    late: list[Any] = []
    for _ in range(8):
        study = study_of(sampler(budget(40), search_space=X))
        study.optimize(objective)
        late += [t.value for t in study.trials[20:40]]
    assert np.mean(late) > -0.2


def test_what_samplers_remember_is_handed_on_by_slot() -> None:
    grid = GridSampler({"x": [-1.0, -0.5, 0.0, 0.5, 1.0]})
    study = study_of(sampler(budget(5), search_space=X, proposer=grid))
    study.optimize(objective)
    assert sorted(t.params["x"] for t in study.trials[:5]) == [-1.0, -0.5, 0.0, 0.5, 1.0]


@pytest.mark.filterwarnings("ignore::optuna.exceptions.ExperimentalWarning")
@pytest.mark.parametrize("batch", [1, 4])
def test_a_quasi_random_proposer_goes_on_where_it_was(batch: int) -> None:
    """The first eight points of a Sobol sequence fall into different eighths.

    Optuna's sampler draws at random until it knows a finished trial, so the first batch is not
    part of the sequence.
    """
    sobol = QMCSampler(scramble=True, seed=3, warn_independent_sampling=False)
    study = study_of(sampler(budget(8), search_space=X, proposer=sobol, pilot_batch_size=batch))
    study.optimize(objective)
    eighths = {int((t.params["x"] + 1.0) * 4.0) for t in study.trials[batch:8]}
    assert len(eighths) == 8 - batch


def test_a_seed_of_the_proposer_is_not_repeated_in_every_pilot() -> None:
    study = study_of(sampler(budget(6), search_space=X, proposer=RandomSampler(seed=1)))
    study.optimize(objective)
    assert len({t.params["x"] for t in study.trials[:6]}) == 6
