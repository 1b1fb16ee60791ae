"""An objective is called only for a trial that this worker has won and that is a run of the plan.

Optuna has no hook for this. ``before_trial`` is the first of ours that is called, and by then the
trial is chosen; an exception from it ends ``study.optimize``. So importing this module wraps two
methods of ``Study``. For samplers that are not optuna-dp's nothing changes.

``ask`` goes on with the next trial where another worker has won the one it was given: it asks
again after :class:`TakenByAnother`. ``optimize`` calls ``ask`` for each trial. It has a heartbeat
and calls the objective only for what ``ask`` returns, so a worker that lost a trial leaves it as
it is and makes as many runs as asked.

Before a trial is made or taken, ``ask`` lets the sampler compare its settings with those of the
study's plan (:meth:`OfThisPackage.check_before_asking`). So a worker that was configured
differently costs no run.

``optimize`` calls the objective right after ``ask``, in the same thread. If the sampler has said
meanwhile that the trial is beyond the last run (:func:`is_beyond`), it ends as pruned instead.

If another library replaces ``Study.ask``, the exception ends the worker instead. A trial that has
begun and is given to a second worker then passes for one that is continued, which no storage shows
(``docs/limitations.md``).
"""

from __future__ import annotations

import functools
import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from optuna.exceptions import TrialPruned
from optuna.study import Study
from optuna.trial import Trial

from optuna_dp.errors import PlanError
from optuna_dp.optuna_internals import storage_of, trial_id_of
from optuna_dp.protocol.storage_errors import clear_storage_errors

_logger = logging.getLogger("optuna_dp")
_thread = threading.local()
BEYOND = (
    "It is not a run and trains nothing, because the study's last run has already begun. When all "
    "runs have ended: optuna_dp.release(study)."
)


class TakenByAnother(PlanError):
    """Another worker has won the trial that this one was given."""


class OfThisPackage:
    """Marks a sampler of this package: what its studies' storages raise becomes one error."""

    def check_before_asking(self, study: Study) -> None:
        """Refuses, before a trial is made or taken, what can be seen to be no worker's study.

        Raises:
            PlanError: If the study's plan is not that of this sampler.
        """

    def note_failure(self, study: Study, error: Exception) -> None:
        """Notes that an objective raised an error, which is about to fail its trial."""

    def value_without_score(self, study: Study, trial: Trial) -> float | None:
        """Returns what stands in for the score of a run whose objective returned None.

        None, which fails the trial, for a run that must have a score.
        """
        return None


@contextmanager
def _clear_errors(study: Study) -> Iterator[None]:
    if not isinstance(study.sampler, OfThisPackage):
        yield
        return
    with clear_storage_errors(study):
        yield


def is_asked_for() -> bool:
    """Returns whether the trial that begins in this thread comes from ``study.ask``.

    Otherwise somebody who knows a running trial has made a ``Trial`` from it, to continue it.
    """
    return getattr(_thread, "asking", 0) > 0


def is_beyond() -> None:
    """Notes that the trial that begins in this thread is none of the study's runs."""
    _thread.beyond = True


def _going_on(ask: Callable[..., Trial]) -> Callable[..., Trial]:
    @functools.wraps(ask)
    def asks_until_it_has_one(self: Study, *args: Any, **kwargs: Any) -> Trial:
        while True:
            _thread.asking, _thread.beyond = getattr(_thread, "asking", 0) + 1, False
            try:
                with _clear_errors(self):
                    if isinstance(self.sampler, OfThisPackage):
                        self.sampler.check_before_asking(self)
                    return ask(self, *args, **kwargs)
            except TakenByAnother as error:
                _logger.debug("%s It goes on with the next.", error)
            finally:
                _thread.asking -= 1

    return asks_until_it_has_one


def _of_runs_only(optimize: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(optimize)
    def optimizes(self: Study, func: Callable[[Trial], Any], *args: Any, **kwargs: Any) -> None:
        @functools.wraps(func)
        def objective(trial: Trial) -> Any:
            if getattr(_thread, "beyond", False):
                # A private choice that is due after the last candidate is made there.
                frozen = storage_of(self).get_trial(trial_id_of(trial))
                self.sampler.infer_relative_search_space(self, frozen)
                raise TrialPruned(BEYOND)
            try:
                value = func(trial)
            except TrialPruned:
                raise
            except Exception as error:
                if isinstance(self.sampler, OfThisPackage):
                    self.sampler.note_failure(self, error)
                raise
            if value is None and isinstance(self.sampler, OfThisPackage):
                return self.sampler.value_without_score(self, trial)
            return value

        with _clear_errors(self):
            return optimize(self, objective, *args, **kwargs)

    return optimizes


Study.ask = _going_on(Study.ask)  # type: ignore[method-assign]
Study.optimize = _of_runs_only(Study.optimize)  # type: ignore[method-assign]
