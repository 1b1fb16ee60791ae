"""Pruning of released pilots: a pilot may be compared with others, by what was charged for.

Any of Optuna's pruners may end a pilot. It is shown pilots of the completed batches before this
one, on the first rung (a rung has one noise and one length, so what is reported there can be
compared), with their hyperparameters, scores and reported values by slot. Which trials happen to
have ended by now depends on how long others take, which nobody has paid for, so that is not shown.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Any, cast

from optuna.pruners import BasePruner, NopPruner
from optuna.study import Study
from optuna.trial import FrozenTrial, TrialState

from optuna_dp.protocol.proposals import timeless_trial
from optuna_dp.protocol.pruners import SilencedPruner, StudyOf, WithinTrialPruner, guarded
from optuna_dp.protocol.records import began, ended, trials_of, was_enqueued

_logger = logging.getLogger("optuna_dp")


class PilotPruner(BasePruner):
    """Lets a pruner compare pilots; the last run is ended by its own values only.

    A pilot's reported values are part of its output: what they cost belongs in its event.

    Args:
        pruner: The study's own pruner.
        pilots: How many pilots there are: trials from this number on are never compared.
        peers: Numbers of the pilots that one may be compared with; none beyond the first rung.
    """

    def __init__(self, pruner: BasePruner, pilots: int, peers: Callable[[int], range]) -> None:
        self._pruner = pruner
        self._alone = guarded(pruner)
        self._pilots = pilots
        self._peers = peers
        self._told = threading.Event()

    def __repr__(self) -> str:
        return f"PilotPruner({type(self._pruner).__name__})"

    def prune(self, study: Study, trial: FrozenTrial) -> bool:
        if not isinstance(self._alone, SilencedPruner):
            return self._alone.prune(study, trial)  # It looks at one trial only.
        # The last run is there to be finished. A pilot that was enqueued has waited for nobody.
        if trial.number >= self._pilots or was_enqueued(trial):
            return False
        numbers = self._peers(trial.number)
        if not numbers:
            self._say_that_nothing_is_compared()
            return False
        peers = [
            _as_shown(t) for t in trials_of(study) if t.number in numbers and began(t) and ended(t)
        ]
        return self._pruner.prune(cast("Study", _Peers(study, [*peers, trial])), trial)

    def _say_that_nothing_is_compared(self) -> None:
        if not self._told.is_set():
            self._told.set()
            _logger.warning(
                "%s has no pilots to compare this one with, so it does not prune it. It compares "
                "with completed batches of the first rung. Give BudgetSampler a smaller "
                "pilot_batch_size, for example the number of workers.",
                type(self._pruner).__name__,
            )


def wrapped(pruner: BasePruner, pilots: int, peers: Callable[[int], range]) -> BasePruner:
    """Returns what stands in for the pruner of a study with a budget."""
    known = isinstance(pruner, PilotPruner | WithinTrialPruner | NopPruner)
    return pruner if known else PilotPruner(pruner, pilots, peers)


def _as_shown(trial: FrozenTrial) -> FrozenTrial:
    """Returns a trial without its times and attributes."""
    shown = timeless_trial(
        state=trial.state,
        values=trial.values,
        params=trial.params,
        distributions=trial.distributions,
        system_attrs={k: v for k, v in trial.system_attrs.items() if _of_a_pruner(k)},
        intermediate_values=trial.intermediate_values,
    )
    shown.number = trial.number
    return shown


def _of_a_pruner(key: str) -> bool:
    return key.startswith("completed_rung_")  # Successive halving and Hyperband keep these.


class _Peers(StudyOf):
    """A study as a pruner of pilots may see it."""

    def __init__(self, study: Study, trials: list[FrozenTrial]) -> None:
        super().__init__(study, trials)
        self._study = study

    @property
    def best_trial(self) -> FrozenTrial:
        done = [t for t in self.trials if t.state == TrialState.COMPLETE]
        if not done:
            raise ValueError("No trials are completed yet.")
        sign = 1.0 if self.direction.name == "MAXIMIZE" else -1.0
        return max(done, key=lambda t: sign * cast(float, t.value))

    def __getattr__(self, name: str) -> Any:
        # Name and storage (successive halving marks the trial at hand).
        return getattr(self._study, name)
