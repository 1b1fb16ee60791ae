"""What is checked when a trial ends: accountants are read again, and held to the plan.

A training's own accountant may go on after it was handed in, and a training with Opacus ends
whenever its loop is left. So what a run spent is decided by what its accountant says when the
objective has returned. The samplers call :func:`finalise` then, before the trial's result is
stored.
It does not depend on a generator's end, nor on the garbage collector.

What waits here is in memory only. A process that dies takes it along, and the trial has no result
then. A result that another process stores for a trial has no second reading, and the run is not
taken for a compared one.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from optuna.storages import BaseStorage

from optuna_dp.core.optuna_internals import storage_of, trial_id_of
from optuna_dp.errors import OptunaDPError, PlanError
from optuna_dp.runs.spending import is_stated, spent_event
from optuna_dp.runs.trial_notes import note
from optuna_dp.study.entries import INVALID, SPENT

if TYPE_CHECKING:
    from dp_accounting import dp_event
    from optuna.study import Study
    from optuna.trial import FrozenTrial, Trial

# Trials kept of one storage: more than any process has open.
_MOST_TRIALS = 4096


class Ending(Protocol):
    """What a trial has to show when it ends.

    Attributes:
        trial: The trial.
    """

    trial: Trial

    def finalise(self) -> None:
        """Records what was done; raises :class:`PlanError` if it is not what the plan allows."""

    def reads(self, sources: Sequence[object]) -> bool:
        """Returns whether these accountants are the ones that it reads by itself."""


class AccountantReading:
    """Accountants that an objective handed in, to be read again when its trial ends.

    Attributes:
        trial: The trial.
        first: The event of what they had recorded when they were handed in.
        is_stated: Whether something of it is an event, and no accountant's record.
    """

    def __init__(self, trial: Trial, sources: Sequence[object]) -> None:
        self.trial = trial
        self._sources = tuple(sources)
        self.first = self._read()
        # An event that the objective wrote is no accountant's record.
        self.is_stated = any(map(is_stated, self._sources))

    def _read(self) -> dp_event.DpEvent:
        # Start-up time: samplers hold plans; dp-accounting is slow.
        from optuna_dp.accounting.events import compose

        return compose(*map(spent_event, self._sources))

    def finalise(self) -> None:
        """Records the second reading; see :class:`Ending`."""
        # Start-up time: samplers hold plans; dp-accounting is slow.
        from optuna_dp.accounting.event_json import event_to_json
        from optuna_dp.accounting.event_words import in_words

        final_event = self._read()
        stated = {"stated": True} if self.is_stated else {}
        note(self.trial, SPENT, event=event_to_json(final_event), final=True, **stated)
        if event_to_json(final_event) != event_to_json(self.first):
            raise PlanError(
                f"the training went on after run.spent. Recorded then: {in_words(self.first)}. "
                f"Recorded at the trial's end: {in_words(final_event)}. Call run.spent when the "
                "training is over."
            )

    def reads(self, sources: Sequence[object]) -> bool:
        """Returns whether the very same was handed in again: nothing more; see :class:`Ending`."""
        handed_in = list(map(id, self._sources))
        return not self.is_stated and list(map(id, sources)) == handed_in


_waiting_lock = threading.Lock()
# By the id of the trial, in the order of their beginning.
_waiting: weakref.WeakKeyDictionary[BaseStorage, dict[int, list[Ending]]] = (
    weakref.WeakKeyDictionary()
)


def check_at_end(trial: Trial, ending: Ending) -> None:
    """Keeps what is to be checked when a trial ends in this process."""
    with _waiting_lock:
        by_trial = _waiting.setdefault(storage_of(trial.study), {})
        by_trial.setdefault(trial_id_of(trial), []).append(ending)
        while len(by_trial) > _MOST_TRIALS:
            del by_trial[next(iter(by_trial))]


def is_checked_at_end(trial: Trial, sources: Sequence[object]) -> bool:
    """Returns whether accountants are read at the trial's end already, by what made them."""
    with _waiting_lock:
        endings = _waiting.get(storage_of(trial.study), {}).get(trial_id_of(trial), [])
        return any(ending.reads(sources) for ending in endings)


def finalise(study: Study, trial: FrozenTrial) -> None:
    """Checks what a trial has to show, while its result is not stored yet.

    Args:
        study: The study.
        trial: The trial that ends.

    Raises:
        PlanError: If its training was not what its run may do. The trial is marked, and no release
            takes its output.
    """
    with _waiting_lock:
        endings = _waiting.get(storage_of(study), {}).pop(trial_id_of(trial), [])
    for ending in endings:
        # A database may reuse a trial id: skip what an older trial left.
        if ending.trial.number != trial.number:
            continue
        try:
            ending.finalise()
        except OptunaDPError as error:
            note(ending.trial, INVALID, why=str(error))
            raise PlanError(
                f"Trial {trial.number} cannot be released: {error} Do not use its output."
            ) from error
