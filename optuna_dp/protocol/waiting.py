"""Logs for whom a worker waits, and notices workers that have died."""

from __future__ import annotations

import logging
import math
import warnings
from dataclasses import dataclass, field

from optuna.exceptions import ExperimentalWarning
from optuna.storages import fail_stale_trials
from optuna.study import Study

from optuna_dp.optuna_internals import has_heartbeat, storage_of, whole_study
from optuna_dp.protocol.records import ended, trials_of

_logger = logging.getLogger("optuna_dp")

_SAY_AFTER = 30.0
_LOOK_AFTER = 1.0


@dataclass
class Waiting:
    """One wait of one worker.

    Attributes:
        study: The study.
        what: What is waited for, in words.
        below: Only runs with numbers below this are waited for.
        advice: What else may help, in words.
    """

    study: Study
    what: str
    below: float = math.inf
    advice: str = ""
    _said: int = field(default=0, init=False)
    _looked: float = field(default=0.0, init=False)

    def pause(self, waited: float) -> None:
        """Called before each pause.

        Optuna looks for runs whose heartbeat has stopped when a worker starts a trial. If every
        worker waits for a dead one, nobody would ever look.
        """
        if waited >= self._looked + _LOOK_AFTER and has_heartbeat(storage_of(self.study)):
            self._looked = waited
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", ExperimentalWarning)
                fail_stale_trials(whole_study(self.study))
        if waited < _SAY_AFTER * (self._said + 1):
            return
        self._said += 1
        waited_for = [t for t in trials_of(self.study) if not ended(t) and t.number < self.below]
        # Their numbers are a way to learn T, so only the curator's own level has them.
        _logger.debug("The open trials waited for are %s.", [t.number for t in waited_for])
        _logger.warning(
            "This worker has waited %.0f seconds %s. To list open trials: optuna-dp recover "
            "STORAGE STUDY. If the worker of one has died, mark it as failed: optuna-dp recover "
            "STORAGE STUDY --fail NUMBER. %s",
            waited,
            self.what,
            self.advice,
        )
