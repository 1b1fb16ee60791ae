"""Logs for whom a worker waits, and notices workers that have died."""

from __future__ import annotations

import logging
import math
import warnings
import weakref
from dataclasses import dataclass, field

from optuna.exceptions import ExperimentalWarning
from optuna.storages import BaseStorage, InMemoryStorage, fail_stale_trials
from optuna.study import Study
from optuna.trial import TrialState

from optuna_dp.core.optuna_internals import (
    has_heartbeat,
    place_of,
    storage_of,
    study_id_of,
    whole_study,
)
from optuna_dp.core.polling import poll
from optuna_dp.study.recovery_words import failing_call, listing_call
from optuna_dp.study.trials import ended, trials_of

_logger = logging.getLogger("optuna_dp")

# Seconds. The first wait in a study is said soon: a user who starts a killed search again has to
# know. Later waits are what workers of a sound search do, so they are said when they are long.
_SAY_FIRST_AFTER = 1.0
_SAY_AFTER = 30.0
_LOOK_AFTER = 1.0
# Trials that a warning names.
_MOST_NAMED = 5
# Ids of the studies of which this process has said for whom it waits.
_said: weakref.WeakKeyDictionary[BaseStorage, set[int]] = weakref.WeakKeyDictionary()


@dataclass
class Waiting:
    """One wait of one worker.

    Attributes:
        study: The study.
        what: What is waited for, in words.
        below: Only runs with numbers below this are waited for.
        advice: What else may help, in words.
        names_trials: Whether the numbers of trials may be said: they are a way to learn T where
            the number of runs is secret.
    """

    study: Study
    what: str
    below: float = math.inf
    advice: str = ""
    names_trials: bool = False
    _say_at: float = field(default=_SAY_AFTER, init=False)
    _looked: float = field(default=0.0, init=False)

    def pause(self, waited: float) -> None:
        """Called before each pause.

        Optuna looks for runs whose heartbeat has stopped when a worker starts a trial. If every
        worker waits for a dead one, nobody would ever look.

        Args:
            waited: Seconds waited so far.
        """
        if waited >= self._looked + _LOOK_AFTER and has_heartbeat(storage_of(self.study)):
            self._looked = waited
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", ExperimentalWarning)
                fail_stale_trials(whole_study(self.study))
        if waited < _SAY_FIRST_AFTER:
            return
        studies = _said.setdefault(storage_of(self.study), set())
        # Nobody but this process works in its memory, and what kills a worker kills the study too.
        can_be_left = not isinstance(storage_of(self.study), InMemoryStorage)
        is_first = can_be_left and study_id_of(self.study) not in studies
        studies.add(study_id_of(self.study))
        if not is_first and waited < self._say_at:
            return
        if waited >= self._say_at:
            self._say_at = 2.0 * waited  # Less and less often: a wait may last a night.
        self._say(waited)

    def _say(self, waited: float) -> None:
        open_numbers = [
            t.number for t in trials_of(self.study) if not ended(t) and t.number < self.below
        ]
        # Their numbers are a way to learn T, so only the curator's own level has them.
        _logger.debug("The open trials waited for are %s.", open_numbers)
        names = ""
        if self.names_trials and open_numbers:
            shown_numbers = ", ".join(map(str, open_numbers[:_MOST_NAMED]))
            ellipsis = ", ..." if len(open_numbers) > _MOST_NAMED else ""
            names = f" (open: trial {shown_numbers}{ellipsis})"
        is_one = self.names_trials and len(open_numbers) == 1
        place, name = place_of(storage_of(self.study)), self.study.study_name
        _logger.warning(
            "This worker has waited %.0f s %s of the study %r%s. If another worker is at it, all "
            "is well. If its worker has died, as when a script was stopped, mark it as failed: %s "
            "(it counts and is not repeated). Do that from another terminal and leave this worker "
            "running: one that is stopped leaves its own trial open. %s lists open trials.%s",
            waited,
            self.what,
            name,
            names,
            failing_call(place, name, open_numbers[0] if is_one else None),
            listing_call(place, name),
            f" {self.advice}" if self.advice else "",
        )


def wait_for_others(study: Study) -> None:
    """Waits until no trial of a study is running."""

    def is_quiet() -> bool | None:
        is_open = any(trial.state == TrialState.RUNNING for trial in trials_of(study))
        return None if is_open else True

    poll(is_quiet, Waiting(study, "for trials of other workers").pause)
