"""Runs whose worker has died: listing them, and telling them to have failed."""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from optuna.exceptions import UpdateFinishedTrialError
from optuna.study import Study
from optuna.trial import FrozenTrial, TrialState

from optuna_dp.core.optuna_internals import storage_of
from optuna_dp.core.validation import whole
from optuna_dp.errors import InvalidArgumentError
from optuna_dp.study.entries import CONFIRMED, SLOT, UNSTARTED
from optuna_dp.study.storage_errors import clear_storage_errors
from optuna_dp.study.trials import (
    checked_study,
    did_nothing,
    ended,
    fail_unstarted,
    give_back_end,
    read_plan,
    trials_of,
)


@dataclass(frozen=True)
class OpenTrial:
    """A trial that has not ended: a worker is at it, or has died. For the curator only.

    Attributes:
        number: Its number.
        started: When it started; None if the storage does not know.
        did_nothing: Whether there is no sign of a run yet.
        leads: Whether others wait for it to write the plan.
    """

    number: int
    started: datetime.datetime | None
    did_nothing: bool
    leads: bool


def recover(study: Study, *, fail: Sequence[int] = ()) -> list[OpenTrial]:
    """Marks runs whose workers have died as failed, and lists those that are still open.

    Optuna leaves the trial of a killed worker running for ever. Its slot is one of the study's
    runs: it is not repeated, it counts as a failed run (the lowest outcome), and until it has
    been marked so the study cannot be released. Choose trials by whether their worker is alive,
    never by how long they take or what they have reported: that would make the outcome of a run
    depend on something its event does not cover.

    If trial 0 died before it had written the study's plan, no run has begun and none can. Once it
    has been marked as failed, the workers that wait for it say so and end: start a new study.

    A trial that ended, and that SQLite shows as open because it gave it away too late, is given
    its end back.

    Guarantees:
        * No trial that has ended is changed, and no trial is added; the number of runs stays.
        * Either all trials of ``fail`` can be marked, or nothing is changed.
        * A worker that is alive after all cannot bring its trial back: its result is refused.

    Args:
        study: The study.
        fail: Numbers of trials whose workers have died. One that has failed already, by other
            means and before it began, is vouched for: that it was lost with its worker.

    Returns:
        The trials that are open now.

    Raises:
        InvalidArgumentError: If ``study`` is none, or a number is not that of an open trial.
        StorageError: If the storage fails.

    Example:
        >>> import optuna, optuna_dp as odp
        >>> study = optuna.create_study(sampler=odp.RandTuneSampler(trials=odp.Geometric(mean=9)))
        >>> _ = study.ask()  # ... and its worker is killed
        >>> [trial.number for trial in odp.recover(study)]
        [0]
        >>> odp.recover(study, fail=[0])
        []
    """
    checked_study(study)
    if not isinstance(fail, Iterable):
        raise InvalidArgumentError("fail", fail, allowed="it must be a sequence of trial numbers")
    numbers = {whole("fail", number) for number in fail}
    with clear_storage_errors(study):
        return _recovered(study, numbers)


def _recovered(study: Study, numbers: set[int]) -> list[OpenTrial]:
    storage = storage_of(study)
    for trial in trials_of(study):
        if not ended(trial):
            give_back_end(storage, trial)
    is_open = {trial.number: trial for trial in _open(study)}
    plan = read_plan(study)
    trials = trials_of(study)
    unstarted = set() if plan is None else {t.number for t in trials if _failed_unnoticed(t)}
    if not numbers <= is_open.keys() | unstarted:
        wrong_number = min(numbers - is_open.keys() - unstarted)
        raise InvalidArgumentError(
            "fail",
            wrong_number,
            problem="it is not the number of an open trial",
            # Not which ones are: an exception may be read by others.
            fix="recover(study) returns the open trials.",
        )
    if plan is not None:
        for number in sorted(numbers & unstarted):
            # An entry of the study: nothing can be written to a trial that has ended.
            CONFIRMED.named(number).write(study, plan.nonce)
    by_number = {trial.number: trial for trial in trials}
    for number in sorted(numbers - unstarted):
        try:
            fail_unstarted(study, by_number[number])
        except UpdateFinishedTrialError:
            continue  # Its worker was alive after all and has just ended it.
    return _open(study)


def _failed_unnoticed(trial: FrozenTrial) -> bool:
    """Returns whether a trial failed before it began without a mark of this package."""
    return (
        trial.state == TrialState.FAIL
        and did_nothing(trial)
        and not SLOT.is_in(trial)
        and not UNSTARTED.is_in(trial)
    )


def _open(study: Study) -> list[OpenTrial]:
    plan = read_plan(study)
    return [
        OpenTrial(
            number=trial.number,
            started=trial.datetime_start,
            did_nothing=did_nothing(trial),
            leads=trial.number == 0 and plan is None,
        )
        for trial in trials_of(study)
        if trial.state == TrialState.RUNNING
    ]
