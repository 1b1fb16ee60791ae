"""How far a study's runs have ended, remembered, so that a look does not grow with the study.

A trial that has ended does not change, and a storage of Optuna's gives the same object for it from
then on. So what was seen to have ended is not looked at again, as long as the last of it is the
same object: a study that was deleted, and another under its id, have others.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Sequence

from optuna.storages import BaseStorage
from optuna.study import Study
from optuna.trial import FrozenTrial

from optuna_dp.optuna_internals import storage_of, study_id_of
from optuna_dp.protocol.records import ended

_ended_lock = threading.Lock()
# By storage and study: how many of the first trials had ended, and the last of these.
_seen: weakref.WeakKeyDictionary[BaseStorage, dict[int, tuple[int, FrozenTrial]]] = (
    weakref.WeakKeyDictionary()
)


def ended_from_start(study: Study, trials: Sequence[FrozenTrial]) -> int:
    """Returns how many trials have ended before the first one that has not.

    Args:
        study: The study.
        trials: All of its trials by number, as :func:`trials_of` returns them.
    """
    with _ended_lock:
        studies = _seen.setdefault(storage_of(study), {})
        count, last_ended = studies.get(study_id_of(study), (0, None))
        if count > len(trials) or (count and trials[count - 1] is not last_ended):
            count = 0
        while count < len(trials) and ended(trials[count]):
            count += 1
        if count:
            studies[study_id_of(study)] = count, trials[count - 1]
        return count
