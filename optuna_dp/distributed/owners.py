"""Notes the worker of each trial, and settles the trials of workers that have died.

A trial must be a worker's from the very moment it exists: one that is marked a little later, by a
worker that dies in between, is nobody's, and others may wait for it for ever. So the mark is part
of the one step in which the storage creates the trial.

A *place* is one of the ``workers`` of a call. One after the other may hold it: the engine may
start the same task again, and the call replaces those that died.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import Any

import optuna
from optuna.exceptions import UpdateFinishedTrialError
from optuna.storages import BaseStorage
from optuna.study import Study
from optuna.trial import FrozenTrial, TrialState

from optuna_dp.errors import InvalidArgumentError
from optuna_dp.optuna_internals import storage_of, study_id_of
from optuna_dp.protocol.records import ended
from optuna_dp.protocol.recovery import recover

OWNER_KEY = "optuna_dp:worker"
# Of a run that was ended at its limit: how many seconds that was.
LIMIT_KEY = "optuna_dp:reached_run_timeout"

_current = threading.local()
_installing = threading.Lock()


@contextmanager
def owning(storage: BaseStorage, place: str) -> Iterator[None]:
    """Marks every trial that this thread creates in a storage as a worker's own."""
    _mark_what_is_created(storage)
    _current.place = place
    try:
        yield
    finally:
        _current.place = None


def _mark_what_is_created(storage: Any) -> None:
    with _installing:
        if hasattr(storage, "_optuna_dp_marks"):
            return
        create = storage.create_new_trial

        def create_marked(study_id: int, template_trial: FrozenTrial | None = None) -> int:
            place = getattr(_current, "place", None)
            if place is not None and template_trial is None:
                template_trial = marked_template(place)
            trial_id: int = create(study_id, template_trial=template_trial)
            return trial_id

        storage.create_new_trial = create_marked
        storage._optuna_dp_marks = True


def marked_template(place: str) -> FrozenTrial:
    """Returns a trial that has just started and is somebody's."""
    return optuna.trial.create_trial(state=TrialState.RUNNING, system_attrs={OWNER_KEY: place})


def settle(study: Study, place: str) -> None:
    """Tells the open trials of a place, whose holder has died or ended, to have failed.

    By whether the worker is alive and by nothing else, as :func:`optuna_dp.recover` asks for. If
    the engine was mistaken and it lives, its results are refused. The caller may hold the place
    itself if it has not begun.
    """
    open_numbers = [t.number for t in _trials_of(study, place) if t.state == TrialState.RUNNING]
    for number in open_numbers:
        try:
            recover(study, fail=[number])
        except InvalidArgumentError:
            continue  # It has just ended by itself.


def fail_at_limit(storage: BaseStorage, trial_id: int, seconds: float) -> bool:
    """Tells a run that has reached its limit to have failed; returns whether it has not ended."""
    try:
        storage.set_trial_system_attr(trial_id, LIMIT_KEY, seconds)
        return bool(storage.set_trial_state_values(trial_id, TrialState.FAIL))
    except UpdateFinishedTrialError:
        return False


def ended_at_limit(study: Study, places: Collection[str]) -> int:
    """Returns how many runs of these places reached their limit. For the curator only."""
    return sum(
        LIMIT_KEY in trial.system_attrs and trial.state == TrialState.FAIL
        for place in places
        for trial in _trials_of(study, place)
    )


def ended_well(study: Study, place: str) -> int:
    """Returns how many runs a place has brought to their end. For the curator only."""
    return sum(t.state != TrialState.FAIL and ended(t) for t in _trials_of(study, place))


def _trials_of(study: Study, place: str) -> list[FrozenTrial]:
    trials = storage_of(study).get_all_trials(study_id_of(study), deepcopy=False)
    return [t for t in trials if t.system_attrs.get(OWNER_KEY) == place]
