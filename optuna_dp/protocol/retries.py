"""Optuna's own retries of stale runs, which a study whose number of runs is fixed cannot have.

``RDBStorage(..., heartbeat_stale_trial_callback=RetryHeartbeatStaleTrialCallback())`` enqueues a
copy of a run whose worker has died. The copy takes the place of another run, with parameters that
were not drawn for it, and the study would be lost at the first dead worker.
"""

from __future__ import annotations

import logging
from typing import Any

import optuna
from optuna.storages import BaseStorage
from optuna.study import Study
from optuna.trial import FrozenTrial

from optuna_dp.protocol.plan import PLAN_KEY
from optuna_dp.protocol.records import SLOT_KEY, did_nothing, leader_id

_logger = logging.getLogger("optuna_dp")

# Today's name of the argument and the class, and those of Optuna before 4.9.
_ATTRIBUTES = ("heartbeat_stale_trial_callback", "failed_trial_callback")
_RETRIES = tuple(
    getattr(optuna.storages, name)
    for name in ("RetryHeartbeatStaleTrialCallback", "RetryFailedTrialCallback")
    if hasattr(optuna.storages, name)
)


class NoRetries:
    """Stands before a storage's retries: studies of optuna-dp's samplers get none.

    Args:
        retries: Optuna's callback, for the other studies of the storage.
    """

    def __init__(self, retries: Any) -> None:
        self._retries = retries

    def __call__(self, study: Study, trial: FrozenTrial) -> None:
        """Called by Optuna for each run whose heartbeat has stopped."""
        if not is_ours(study._storage, study._study_id):
            self._retries(study, trial)


def without_retries(storage: BaseStorage) -> None:
    """Keeps a storage's retries from studies of optuna-dp, and says so in the log once."""
    backend = getattr(storage, "_backend", storage)
    told = False
    for name in _ATTRIBUTES:
        retries = getattr(backend, name, None)
        if isinstance(retries, _RETRIES):
            setattr(backend, name, NoRetries(retries))
            if not told:
                _logger.warning(
                    "The storage retries runs whose worker has died (%s). It does not in studies "
                    "of optuna-dp: a run that failed is a run and is never repeated.",
                    type(retries).__name__,
                )
            told = True


def is_ours(storage: BaseStorage, study_id: int) -> bool:
    """Whether a study was begun by a sampler of optuna-dp."""
    trial_id = leader_id(storage, study_id)
    if trial_id is None:
        return False
    leader = storage.get_trial(trial_id)
    trials = storage.get_all_trials(study_id, deepcopy=False) if did_nothing(leader) else [leader]
    return any(PLAN_KEY in t.system_attrs or SLOT_KEY in t.system_attrs for t in trials)
