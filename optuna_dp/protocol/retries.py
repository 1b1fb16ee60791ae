"""Optuna's own retries of stale runs, which studies of optuna-dp's samplers do not get.

``RDBStorage(..., heartbeat_stale_trial_callback=RetryHeartbeatStaleTrialCallback())`` enqueues a
copy of a run whose worker has died. The copy takes the place of another run, with parameters that
were not drawn for it, and the study would be lost at the first dead worker.

``study.optimize`` looks for stale runs before it asks for its first trial, hence before anything
that a sampler could do. So :func:`keep_from` wraps Optuna's callback itself; other studies keep
their retries.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable

import optuna
from optuna.storages import BaseStorage
from optuna.study import Study
from optuna.trial import FrozenTrial

from optuna_dp.optuna_internals import storage_of, study_id_of
from optuna_dp.protocol.plan import PLAN_KEY
from optuna_dp.protocol.records import leading_trial

_logger = logging.getLogger("optuna_dp")

# Today's name, and that before Optuna 4.9 (since then a subclass of today's).
_NAMES = ("RetryHeartbeatStaleTrialCallback", "RetryFailedTrialCallback")


def keep_from(samplers: type) -> None:
    """Keeps Optuna's retries from studies of these samplers, now or when they began."""
    for name in _NAMES:
        callback = getattr(optuna.storages, name, None)
        if callback is not None and "__call__" in vars(callback):
            callback.__call__ = _in_other_studies(callback.__call__, samplers)


def _in_other_studies(retry: Callable[..., None], samplers: type) -> Callable[..., None]:
    @functools.wraps(retry)
    def retries(self: object, study: Study, trial: FrozenTrial) -> None:
        # The sampler tells before trial 0 has written a plan.
        has_own_sampler = isinstance(study.sampler, samplers)
        if not has_own_sampler and not is_ours(storage_of(study), study_id_of(study)):
            retry(self, study, trial)
            return
        _logger.warning(
            "The worker of a run died, and %s would repeat the run. optuna-dp does not repeat it: "
            "the run counts as a failed run.",
            type(self).__name__,
        )

    return retries


def is_ours(storage: BaseStorage, study_id: int) -> bool:
    """Returns whether a study was begun by a sampler of optuna-dp."""
    leader = leading_trial(storage, study_id)
    return leader is not None and PLAN_KEY in leader.system_attrs
