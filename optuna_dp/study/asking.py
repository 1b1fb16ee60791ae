"""What studies with a sampler of this package do in place of Optuna's ``ask`` and ``optimize``.

Optuna has no hook for three things that the protocol needs, so three methods of ``Study`` are
others where the study's sampler is of this package. For any other study they are Optuna's own: the
very functions, with no frame of ours in a traceback (:class:`_OfOurStudies`). They are put in
place when the first sampler is made, not when the package is imported (:func:`install`).

* ``ask`` goes on with the next trial where another worker has won the one that it was given: it
  asks again after :class:`TakenByAnother`. An exception from ``before_trial``, the first hook that
  a sampler has, would end ``study.optimize``. Before a trial is made or taken, ``ask`` lets the
  sampler compare its settings with those of the study's plan
  (:meth:`OfThisPackage.check_before_asking`). So a worker that was configured differently costs no
  run.
* ``optimize`` calls the objective only for a trial that is a run. It calls it right after ``ask``,
  in the same thread. If the sampler has said meanwhile that the trial is beyond the last run
  (:func:`note_beyond`), it ends as pruned instead. A first run that failed in its own set-up is
  given back, and the error ends ``optimize`` (:mod:`optuna_dp.study.given_back`).
* ``add_trial`` leaves out the copy of a failed run that Optuna's retries add. The copy would
  take the place of another run, with parameters that were not drawn for it, and the study would be
  lost at the first dead worker. Optuna looks for dead workers before it asks a sampler for
  anything.

If another library replaces ``Study.ask`` later, the exception ends the worker instead. A trial
that has begun and is given to a second worker then passes for one that is continued, which no
storage shows (``docs/limitations.md``).
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import logging
import threading
import traceback
from collections.abc import Callable, Iterable
from typing import Any

from optuna.exceptions import TrialPruned
from optuna.study import Study
from optuna.trial import FrozenTrial, Trial

from optuna_dp.core.optuna_internals import storage_of, trial_id_of
from optuna_dp.errors import InvalidArgumentError, PlanError, Text
from optuna_dp.study.storage_errors import clear_storage_errors

_logger = logging.getLogger("optuna_dp")
_thread = threading.local()
BEYOND = (
    "It is not a run and trains nothing, because the study's last run has already begun. When all "
    "runs have ended: optuna_dp.release(study)."
)


class TakenByAnother(PlanError):
    """Another worker has won the trial that this one was given."""


class OfThisPackage:
    """Marks a sampler of this package, and has what its studies ask it besides Optuna's hooks."""

    def check_before_asking(self, study: Study) -> None:
        """Refuses, before a trial is made or taken, what can be seen to be no worker's study.

        Raises:
            PlanError: If the study's plan is not that of this sampler.
        """

    def note_failure(self, study: Study, error: Exception) -> None:
        """Notes that an objective raised an error, which is about to fail its trial."""

    def gives_back(self, study: Study, trial: Trial, error: Exception) -> bool:
        """Lets a run wait again if the error was raised before it began, and returns whether.

        See :mod:`optuna_dp.study.given_back`.
        """
        return False

    def value_without_score(self, study: Study, trial: Trial) -> float | None:
        """Returns what stands in for the score of a run whose objective returned None.

        None, which fails the trial, for a run that must have a score.
        """
        return None


def is_asked_for() -> bool:
    """Returns whether the trial that begins in this thread comes from ``study.ask``.

    Otherwise somebody who knows a running trial has made a ``Trial`` from it, to continue it.
    """
    return getattr(_thread, "asking", 0) > 0


def note_beyond() -> None:
    """Notes that the trial that begins in this thread is none of the study's runs."""
    _thread.beyond = True


class _GivenBack(BaseException):
    """Ends a trial that waits again. Optuna would mark it as failed after an ``Exception``."""


Method = Callable[..., Any]


class _OfOurStudies:
    """A method of ``Study`` that is another one where the sampler is of this package.

    Args:
        theirs: The method as it was.
        ours: The method for studies whose sampler is an :class:`OfThisPackage`.
    """

    def __init__(self, theirs: Method, ours: Method) -> None:
        self._theirs = theirs
        self._ours = ours

    def __get__(self, study: Study | None, owner: type | None = None) -> Method:
        if study is None:
            return self._by_its_study()
        is_ours = isinstance(getattr(study, "sampler", None), OfThisPackage)
        method: Method = (self._ours if is_ours else self._theirs).__get__(study, owner)
        return method

    def _by_its_study(self) -> Method:
        """Returns the function for callers that take it from the class, as patches do."""

        @functools.wraps(self._theirs)
        def method(study: Study, *args: object, **kwargs: object) -> object:
            return self.__get__(study)(*args, **kwargs)

        return method


def install() -> None:
    """Puts the methods in place, unless they are there already."""
    methods = {"add_trial": _without_retries, "ask": _going_on, "optimize": _of_runs_only}
    for name, made_of in methods.items():
        theirs = vars(Study)[name]
        if not isinstance(theirs, _OfOurStudies):
            setattr(Study, name, _OfOurStudies(theirs, made_of(theirs)))


def _going_on(ask: Method) -> Method:
    @functools.wraps(ask)
    def ask_until_won(study: Study, *args: object, **kwargs: object) -> Trial:
        sampler: Any = study.sampler
        while True:
            _thread.asking, _thread.beyond = getattr(_thread, "asking", 0) + 1, False
            try:
                with clear_storage_errors(study):
                    sampler.check_before_asking(study)
                    trial: Trial = ask(study, *args, **kwargs)
                    return trial
            except TakenByAnother as error:
                _logger.debug("%s It goes on with the next.", error)
            finally:
                _thread.asking -= 1

    return ask_until_won


def _of_runs_only(optimize: Method) -> Method:
    @functools.wraps(optimize)
    def optimize_runs(study: Study, func: Method, *args: object, **kwargs: object) -> None:
        sampler: Any = study.sampler
        call = inspect.signature(optimize).bind(study, func, *args, **kwargs)
        catch = call.arguments.get("catch", ())
        caught = tuple(catch) if isinstance(catch, Iterable) else (catch,)
        not_begun: list[Exception] = []

        @functools.wraps(func)
        def objective(trial: Trial) -> object:
            if getattr(_thread, "beyond", False):
                # A private choice that is due after the last candidate is made there.
                frozen = storage_of(study).get_trial(trial_id_of(trial))
                sampler.infer_relative_search_space(study, frozen)
                raise TrialPruned(BEYOND)
            try:
                value = func(trial)
            except TrialPruned:
                raise
            except Exception as error:
                if not isinstance(error, caught) and sampler.gives_back(study, trial, error):
                    not_begun.append(error)
                    raise _GivenBack from None
                sampler.note_failure(study, error)
                if _is_of_other_choices(error):
                    raise InvalidArgumentError(
                        "hyperparameter",
                        Text("one that earlier runs have otherwise"),
                        problem="runs of this study have its name with other choices or of "
                        "another kind, and a study keeps those of the first",
                        fix="Give it another name, or start a new study under another name. This "
                        "run counts as failed.",
                    ) from error
                raise
            return sampler.value_without_score(study, trial) if value is None else value

        with clear_storage_errors(study):
            with contextlib.suppress(_GivenBack):
                optimize(study, objective, *args, **kwargs)
            if not_begun:  # Optuna's threads may have kept it for themselves.
                raise not_begun[0]

    return optimize_runs


def _is_of_other_choices(error: Exception) -> bool:
    """Returns whether Optuna refused a hyperparameter that differs from that of earlier runs."""
    frames = [frame.f_code.co_name for frame, _ in traceback.walk_tb(error.__traceback__)]
    return isinstance(error, ValueError) and frames[-1] == "check_distribution_compatibility"


def _without_retries(add_trial: Method) -> Method:
    @functools.wraps(add_trial)
    def add_unless_retried(study: Study, trial: FrozenTrial) -> None:
        if "retry_history" not in trial.system_attrs:
            add_trial(study, trial)
            return
        _logger.warning(
            "A copy of a failed run was left out, as Optuna's retries add it when a worker has "
            "died. optuna-dp does not repeat a run: it counts as a failed run."
        )

    return add_unless_retried
