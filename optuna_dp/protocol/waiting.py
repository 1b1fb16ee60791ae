"""What a worker does while it waits for others: says for whom, and notices who has died."""

from __future__ import annotations

import logging
import math
import warnings

from optuna.exceptions import ExperimentalWarning
from optuna.storages import fail_stale_trials
from optuna.storages._heartbeat import is_heartbeat_enabled
from optuna.study import Study

from optuna_dp.protocol.records import ended, trials_of

_logger = logging.getLogger("optuna_dp")

_SAY_AFTER = 30.0
_LOOK_AFTER = 1.0


class Waiting:
    """One wait of one worker.

    Args:
        study: The study.
        what: What is waited for, in words.
        below: Only runs with numbers below this are waited for; None: any.
        advice: What else may help, in words.
    """

    def __init__(
        self, study: Study, what: str, *, below: int | None = None, advice: str = ""
    ) -> None:
        self._study = study
        self._what = what
        self._below = below
        self._advice = advice
        self._said = 0
        self._looked = 0.0

    def pause(self, waited: float) -> None:
        """Called before each pause.

        Optuna looks for runs whose heartbeat has stopped when a worker starts a trial. If every
        worker waits for a dead one, nobody would ever look.
        """
        if waited >= self._looked + _LOOK_AFTER and is_heartbeat_enabled(self._study._storage):
            self._looked = waited
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", ExperimentalWarning)
                fail_stale_trials(getattr(self._study, "_study", self._study))
        if waited < _SAY_AFTER * (self._said + 1):
            return
        self._said += 1
        below = math.inf if self._below is None else self._below
        open_numbers = [
            t.number for t in trials_of(self._study) if not ended(t) and t.number < below
        ]
        # Their numbers are a way to learn T, so only the curator's own level has them.
        _logger.debug("The open trials waited for are %s.", open_numbers)
        _logger.warning(
            "Waiting since %.0f seconds %s. The open trials are listed by optuna-dp recover "
            "STORAGE STUDY. If the worker of one has died, tell that run to have failed: "
            "optuna-dp recover STORAGE STUDY --fail NUMBER. %s",
            waited,
            self._what,
            self._advice,
        )
