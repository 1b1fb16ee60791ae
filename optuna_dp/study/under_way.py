"""Cache of one sampler's running trials in this process. Losing an entry only costs time.

Never more than a copy of what the storage holds, so that forgetting costs time and nothing else.
What must not happen is the opposite: that something outlives its trial and is taken for another's.
Python gives the ``id`` of a storage away again, and SQLite the id of a deleted study or trial. So:

* a storage is held weakly, as an object and not by its ``id``: what is known of its trials goes
  with it;
* a trial that begins forgets whatever stood under its id (:meth:`UnderWay.drop`);
* what is found for a trial counts only if its slot entry is the trial's own, which carries the
  plan's nonce and the trial's number;
* a trial that is never told is forgotten when as many others have begun since as are kept.
"""

from __future__ import annotations

import threading
import weakref
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from optuna.storages import BaseStorage
from optuna.study import Study
from optuna.trial import FrozenTrial

from optuna_dp.core.optuna_internals import storage_of, trial_id_of
from optuna_dp.study.entries import SLOT
from optuna_dp.study.plan import StudyPlan
from optuna_dp.study.trials import SlotEntry

# Trials kept of one storage: more than any process has open; what is beyond is read from there.
_MOST = 4096


@dataclass
class TrialUnderWay:
    """A trial under way in this process.

    Attributes:
        thread: The thread that asked for it.
        plan: The plan under which it runs.
        entry: Its slot entry.
        notes: What a strategy keeps for as long as the trial is under way, by name.
    """

    thread: int
    plan: StudyPlan
    entry: SlotEntry
    notes: dict[str, Any] = field(default_factory=dict)


# By the trial's id, in the order in which the trials began.
_Entries: TypeAlias = OrderedDict[int, TrialUnderWay]


class UnderWay:
    """The trials that one sampler has under way in this process; copies and pickles are empty."""

    def __init__(self, capacity: int = _MOST) -> None:
        self._most = capacity
        self._lock = threading.Lock()
        self.entries_by_storage: weakref.WeakKeyDictionary[BaseStorage, _Entries] = (
            weakref.WeakKeyDictionary()
        )

    def __reduce__(self) -> tuple[type[UnderWay], tuple[int]]:
        return (UnderWay, (self._most,))

    def get(self, study: Study, trial: FrozenTrial) -> TrialUnderWay | None:
        """Returns what is known of a trial that began here; None if nothing is."""
        with self._lock:
            return self.entries_by_storage.get(storage_of(study), _NOTHING).get(trial_id_of(trial))

    def put(self, study: Study, trial: FrozenTrial, entry: TrialUnderWay) -> None:
        """Remembers what is known of a trial from its beginning on."""
        with self._lock:
            entries = self.entries_by_storage.setdefault(storage_of(study), OrderedDict())
            entries.pop(trial_id_of(trial), None)
            entries[trial_id_of(trial)] = entry
            while len(entries) > self._most:
                entries.popitem(last=False)

    def drop(self, study: Study, trial: FrozenTrial) -> TrialUnderWay | None:
        """Forgets a trial, as the storage has it; returns what was known of this very trial."""
        with self._lock:
            entry = self.entries_by_storage.get(storage_of(study), _NOTHING).pop(
                trial_id_of(trial), None
            )
        if entry is None or SLOT.of(trial) != entry.entry.to_json():
            return None
        return entry

    def is_of_this_thread(self, study: Study, trial: FrozenTrial) -> bool:
        """Returns whether the thread that calls this asked for the trial."""
        entry = self.get(study, trial)
        return entry is not None and entry.thread == threading.get_ident()


_NOTHING: _Entries = OrderedDict()  # Stays empty.
