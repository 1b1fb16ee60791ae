"""Code that runs on an engine: a look at the study before anything begins, and a worker.

The engine sees functions without T: they are given bytes, and they return how they ended. Nothing
that a worker logs on its own machine tells a run's number or score either, for whoever may see the
engine's logs is not the study's curator.
"""

from __future__ import annotations

import contextlib
import faulthandler
import os
import threading
import traceback
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import cloudpickle
import optuna
from optuna.pruners import BasePruner
from optuna.samplers import BaseSampler
from optuna.storages import BaseStorage, GrpcStorageProxy
from optuna.study import Study

from optuna_dp.distributed.owners import OWNER_KEY, fail_at_limit, marked_template, owning, settle
from optuna_dp.errors import InvalidArgumentError
from optuna_dp.optuna_internals import storage_of, study_id_of, trial_id_of, uncached
from optuna_dp.protocol.storage_errors import storage_failure

# The attribute of a study by which a worker knows that it has found the caller's.
CALL_KEY = "optuna_dp:distributed"
# How many trials each worker creates to see how a storage numbers them.
TRIED = 4

# Tells whether code runs in the very process that made a ticket.
THIS_PROCESS = uuid.uuid4().hex


@dataclass(frozen=True)
class Ticket:
    """All that a worker needs."""

    call: str
    place: str  # of the worker in the call
    caller: str  # the process that makes the call: its THIS_PROCESS
    study_name: str
    storage: BaseStorage  # as workers open it
    sampler: BaseSampler
    pruner: BasePruner
    objective: Callable[[optuna.Trial], Any]
    callbacks: Sequence[Callable[[Study, optuna.trial.FrozenTrial], None]]
    scratch: str | None  # a study to try in how the storage numbers trials, if that is needed
    run_timeout: float | None  # seconds a run may take


@dataclass(frozen=True)
class Report:
    """How a look or a worker ended.

    Attributes:
        error: What went wrong, in one line; empty if nothing did.
        numbers: Numbers of the trials created in the scratch study, None for a lost mark.
        trace: The traceback.
        exception: The exception, pickled, if that can be done.
        storage_failed: Whether the storage failed, and not what called it.
    """

    error: str = ""
    numbers: tuple[int | None, ...] = ()
    trace: str = ""
    exception: bytes = b""
    storage_failed: bool = False

    @classmethod
    def of(cls, error: BaseException) -> Report:
        """Returns the report of an exception."""
        contents = b""
        with contextlib.suppress(Exception):
            contents = cloudpickle.dumps(error)
            cloudpickle.loads(contents)
        trace = "".join(traceback.format_exception(error))
        failure = storage_failure(error)
        return cls(in_words(failure or error), (), trace, contents, failure is not None)


def in_words(error: BaseException) -> str:
    """Returns an exception in one line, without a full stop at its end."""
    # gRPC's errors begin with a line that says nothing.
    details = getattr(error, "details", None)
    text = str(details() if callable(details) else error).strip()
    first_line = (text.splitlines() or [""])[0].rstrip(".")
    return f"{type(error).__name__}: {first_line}" if first_line else type(error).__name__


def look(ticket: bytes) -> Report:
    """Looks whether a worker here could work: everything loads, and the study is there."""
    try:
        contents: Ticket = cloudpickle.loads(ticket)
        with _closing(contents):
            study = _study_of(contents)
            call = storage_of(study).get_study_system_attrs(study_id_of(study)).get(CALL_KEY)
            if call != contents.call:
                return Report(f"there is another study {contents.study_name!r}, not the caller's")
            numbers = () if contents.scratch is None else tried(contents.storage, contents.scratch)
            return Report(numbers=numbers)
    except KeyError:
        return Report(f"there is no study {contents.study_name!r}")
    except Exception as error:  # Whatever it is, the caller is to hear of it.
        return Report.of(error)


def tried(storage: BaseStorage, scratch: str) -> tuple[int | None, ...]:
    """Creates some trials in a scratch study; returns their numbers, None where a mark is lost."""
    study = optuna.load_study(study_name=scratch, storage=storage)
    numbers: list[int | None] = []
    for _ in range(TRIED):
        trial_id = storage_of(study).create_new_trial(
            study_id_of(study), template_trial=marked_template(scratch)
        )
        trial = storage_of(study).get_trial(trial_id)
        numbers.append(trial.number if trial.system_attrs.get(OWNER_KEY) == scratch else None)
    return tuple(numbers)


def work(ticket: bytes) -> Report:
    """Works until the study's last run has started; returns how that ended.

    If the engine starts it again, because it has lost the one that ran before, the trials that the
    earlier one has open are settled first. No trial is ever continued.
    """
    contents: Ticket = cloudpickle.loads(ticket)
    try:
        with ExitStack() as stack:
            stack.enter_context(_closing(contents))
            stack.enter_context(_quiet(contents.caller != THIS_PROCESS))
            study, objective = _study_of(contents), contents.objective
            settle(study, contents.place)
            if contents.run_timeout is not None:
                stack.enter_context(_alone_in_its_process())
                objective = _Limited(objective, contents.run_timeout)
            stack.enter_context(owning(storage_of(study), contents.place))
            study.optimize(objective, callbacks=list(contents.callbacks))
    except BaseException as error:  # An objective that exits must not look like a dead worker.
        return Report.of(error)
    return Report()


def _study_of(ticket: Ticket) -> Study:
    return optuna.load_study(
        study_name=ticket.study_name,
        storage=ticket.storage,
        sampler=ticket.sampler,
        pruner=ticket.pruner,
    )


@contextmanager
def _closing(ticket: Ticket) -> Iterator[None]:
    """Closes the connections of a worker's own copy of the storage: engines outlive workers."""
    try:
        yield
    finally:
        storage: Any = ticket.storage
        backend = uncached(storage)
        storage.remove_session()
        if isinstance(storage, GrpcStorageProxy):
            storage.close()
        elif hasattr(backend, "engine"):
            backend.engine.dispose()


# Seconds beyond its limit after which a run is ended that does not let go of Python's lock, and
# is told by the caller, or by whoever goes on, to have failed.
_GRACE = 5.0
# Where faulthandler writes which lines were under way: the process's own stderr.
_STDERR = 2


@dataclass(frozen=True)
class _Limited:
    """An objective whose process ends when it takes too long, once its run has been settled."""

    objective: Callable[[optuna.Trial], Any]
    seconds: float

    def __call__(self, trial: optuna.Trial) -> Any:
        timer = threading.Timer(self.seconds, self._end, (trial,))
        timer.daemon = True
        timer.start()
        faulthandler.dump_traceback_later(self.seconds + _GRACE, exit=True, file=_STDERR)
        try:
            return self.objective(trial)
        finally:
            faulthandler.cancel_dump_traceback_later()
            timer.cancel()

    def _end(self, trial: optuna.Trial) -> None:
        if fail_at_limit(storage_of(trial.study), trial_id_of(trial), self.seconds):
            with contextlib.suppress(OSError):
                faulthandler.dump_traceback(file=_STDERR)
            os._exit(1)


ALONE = threading.Lock()


@contextmanager
def _alone_in_its_process() -> Iterator[None]:
    if not ALONE.acquire(blocking=False):
        raise InvalidArgumentError(
            "run_timeout",
            "given",
            "two workers are threads of one process, and a thread cannot be ended alone",
            "Give every worker of the engine one thread.",
        )
    try:
        yield
    finally:
        ALONE.release()


# Optuna's verbosity before, once for each worker that is in this process.
_before: list[int] = []
_changing = threading.Lock()


@contextmanager
def _quiet(is_needed: bool) -> Iterator[None]:
    """Lowers Optuna's verbosity for as long as any worker is in this process."""
    if not is_needed:
        yield
        return
    with _changing:
        _before.append(_before[0] if _before else optuna.logging.get_verbosity())
        # Optuna tells each trial's number and score, of failed ones as a warning.
        optuna.logging.set_verbosity(max(_before[0], optuna.logging.ERROR))
    try:
        yield
    finally:
        with _changing:
            verbosity = _before.pop()
            if not _before:
                optuna.logging.set_verbosity(verbosity)
