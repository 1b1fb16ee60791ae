"""``optuna_dp.distributed.optimize``: one study, many workers, on the engine joblib names."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any

import cloudpickle
import optuna
from optuna.storages import BaseStorage
from optuna.study import Study
from optuna.trial import FrozenTrial

from optuna_dp.distributed.engines import Engine, engine_here
from optuna_dp.distributed.owners import ended_at_limit, ended_well, settle
from optuna_dp.distributed.storages import (
    check_numbers,
    numbers_well,
    reachable,
    scratch_study,
)
from optuna_dp.distributed.worker import (
    CALL_KEY,
    THIS_PROCESS,
    Report,
    Ticket,
    in_words,
    look,
    tried,
    work,
)
from optuna_dp.errors import InvalidArgumentError, OptunaDPError, WorkersError
from optuna_dp.evidence.procedures import procedure_of
from optuna_dp.optuna_internals import storage_of, study_id_of
from optuna_dp.protocol.records import checked_study
from optuna_dp.protocol.slots import SlotSampler
from optuna_dp.protocol.storage_errors import storage_failure
from optuna_dp.validation import positive, whole

_logger = logging.getLogger("optuna_dp")

Callback = Callable[[Study, FrozenTrial], None]

# A place whose workers die that many times in a row without ending a run is given up. Deaths that
# follow a run that ended are not counted: machines come and go.
_DEATHS_IN_A_ROW = 3

# What has become of the runs that had begun.
_NOTHING = "Nothing has begun."
_SETTLED = "Every run that had begun has ended. Runs that were cut off count as failed."
_OPEN = (
    "Running trials may still be open: odp.recover(study) lists them. When no worker is alive any "
    "more, mark them as failed."
)
_CALL_AGAIN = "call optimize again: the study continues."


def optimize(
    make_study: Callable[[], Study],
    objective: Callable[[optuna.Trial], Any],
    *,
    workers: int,
    callbacks: Sequence[Callback] = (),
    run_timeout: float | None = None,
) -> Study:
    """Runs a study to its end with workers wherever joblib's configuration says.

    ``joblib.parallel_config("loky")`` (processes on this machine, joblib's own choice),
    ``"threading"``, ``"dask"`` or ``"ray"`` around the call says where. joblib knows Ray once
    ``ray.util.joblib.register_ray()`` was called. Each worker does what ``study.optimize`` does;
    the study's sampler ends it. The engine sees one task per worker and never how many runs there
    are.

    A study in memory or on SQLite is served to the workers from this process while the call
    lasts (extra ``grpc``), so that no database is needed; on PostgreSQL, MySQL, a journal or
    Optuna's gRPC proxy workers connect by themselves.

    Before anything begins, each worker looks whether it can load everything and reaches the study,
    and a storage that is not one of Optuna's shows how it numbers trials.

    Guarantees:
        * Exactly the study's number of runs is made, however many workers die, and none is made
          twice: a task that the engine starts again goes on with other runs.
        * When the engine says that a worker has died, the run it had open counts as failed (as
          :func:`optuna_dp.recover` has it) and a replacement is started, unless three in a row
          have died in that place without ending a run.
        * A run that takes longer than ``run_timeout`` is ended with its worker's process and
          counts as one that failed, at its full cost; a replacement is started.
        * On Ctrl-C the workers' processes are ended and their open runs count as failed. Threads
          of this process finish the run under way, or leave it to :func:`optuna_dp.recover`, as
          does a worker that cannot be ended (on Dask without nannies).
        * No process of loky's, Dask's or Ray's goes on with the study when this one has died. The
          runs that were under way are open, and :func:`optuna_dp.recover` lists them.
        * Neither a task's name, argument or result, nor what workers log on their machines, tells
          a run's number, parameters or score.

    Args:
        make_study: Returns the study: ``optuna.create_study(..., load_if_exists=True)`` with one
            of this package's samplers of runs, say (``NoisyMaxSampler`` and
            ``ProposeTestSampler`` are refused). Called once, in this process.
        objective: The objective, as for ``study.optimize``. It is sent to the workers (by
            cloudpickle; modules that it imports must be there). One that raises ends its worker,
            as under plain Optuna; the others go on.
        workers: How many workers, at least 1.
        callbacks: As for ``study.optimize``, :class:`optuna_dp.PrivacyCallback` among them. Each
            worker gets a copy.
        run_timeout: Seconds that the objective may take for one run; no limit if None. For hangs,
            and far above what any run can take: no event covers how long a run takes, so whether
            a run reaches its limit must not depend on the data any more than the event allows
            (the statement's "whether a run fails is part of its private output"). If on any
            data a run reaches it with probability at most beta, delta grows by at most
            ``(1 + exp(epsilon)) * beta`` times the expected number of runs. Fix it beforehand,
            not in view of scores or durations. Refused where workers are threads, which cannot be
            ended.

    Returns:
        The study, every run of these workers ended.

    Raises:
        InvalidArgumentError: If an argument cannot be used: nothing has begun then.
        MissingExtraError: If a package for the engine or for serving the storage is missing.
        WorkersError: If workers cannot begin (nothing has begun then), could not be replaced, or
            the engine or the storage died. It says what has become of the runs that had begun;
            the study can be continued by another call.
        Exception: What the objective raised, when all workers have ended.

    Example:
        >>> import joblib, optuna, optuna_dp as odp
        >>> def make_study():
        ...     return optuna.create_study(sampler=odp.RandTuneSampler(trials=odp.Geometric(5)))
        >>> with joblib.parallel_config("threading"):
        ...     study = odp.distributed.optimize(
        ...         make_study, lambda trial: trial.suggest_float("x", 0, 1), workers=2
        ...     )
    """
    workers = whole("workers", workers, 1)
    if not callable(make_study):
        raise InvalidArgumentError(
            "make_study",
            make_study,
            "it must be a function without arguments that returns a study",
        )
    if not callable(objective):
        raise InvalidArgumentError(
            "objective", objective, "it must be a function of a trial that returns its score"
        )
    callbacks = list(callbacks) if isinstance(callbacks, Iterable) else callbacks
    if not isinstance(callbacks, list) or not all(map(callable, callbacks)):
        raise InvalidArgumentError(
            "callbacks", callbacks, "it must be a sequence of functions of the study and a trial"
        )
    run_timeout = None if run_timeout is None else positive("run_timeout", run_timeout)
    study = checked_study(make_study())
    _check_sampler(study)
    engine = engine_here(workers)
    if run_timeout is not None:
        reason = "threads cannot be ended" if engine is None else engine.cannot_end_one()
        if reason:
            raise InvalidArgumentError(
                "run_timeout",
                run_timeout,
                reason,
                'Use joblib.parallel_config("loky"), Dask or Ray.',
            )
    if engine is None:
        _try_numbers_here(study, workers)
        try:
            study.optimize(objective, n_jobs=workers, callbacks=callbacks)
        except Exception as error:
            failure = storage_failure(error)
            if failure is None:
                raise
            raise _storage_lost(in_words(failure), _OPEN) from error
        return study
    for argument, value in (("objective", objective), ("callbacks", callbacks)):
        _check_travels(argument, value)
    _Call(study, engine, objective, callbacks, workers, run_timeout).run()
    return study


class _Call:
    """One call on an engine that is not this process."""

    def __init__(
        self,
        study: Study,
        engine: Engine,
        objective: Callable[[optuna.Trial], Any],
        callbacks: Sequence[Callback],
        workers: int,
        run_timeout: float | None,
    ) -> None:
        self._study = study
        self._engine = engine
        call = uuid.uuid4().hex
        self._ticket = Ticket(
            call=call,
            place=call,
            caller=THIS_PROCESS,
            study_name=study.study_name,
            storage=storage_of(study),
            sampler=study.sampler,
            pruner=study.pruner,
            objective=objective,
            callbacks=callbacks,
            scratch=None,
            run_timeout=run_timeout,
        )
        self._places = [f"{call}/{number}" for number in range(workers)]
        self._raised: Report | None = None
        self._storage_failed = ""  # How, in words.
        self._unsettled: set[str] = set()  # Places whose runs could not be settled for that.
        self._lost: BaseException | None = None
        self._begun = False  # Whether workers have been started.
        self._ended = False  # Whether some worker has seen the study's last run start.

    def run(self) -> None:
        """Runs the study to its end."""
        is_served = none_alive = False
        try:
            with reachable(storage_of(self._study), self._engine) as storage:
                is_served = storage is not storage_of(self._study)
                self._ticket = replace(self._ticket, storage=storage)
                try:
                    self._look()
                    self._work()
                finally:
                    none_alive = self._engine.close()
        except BaseException as error:
            # Interrupted. Whoever is cut off from the study is as good as dead. Whoever cannot be
            # ended after Ctrl-C ends with its run, whose result is refused.
            if is_served or none_alive or not isinstance(error, Exception):
                self._settle(self._places)
            state_of_runs = self._what_became_of_runs(is_served or none_alive)
            if isinstance(error, WorkersError) and error.settled == _OPEN:
                raise WorkersError(error.reason, state_of_runs, error.fix) from error.__cause__
            failure = storage_failure(error)
            if failure is not None:
                raise _storage_lost(in_words(failure), state_of_runs) from error
            if not isinstance(error, OptunaDPError):
                _logger.warning("The call was interrupted. %s", state_of_runs)
            raise
        self._settle([*self._unsettled])  # The storage may be back.
        self._say_what_went_wrong()

    def _settle(self, places: Iterable[str]) -> None:
        """Settles what workers that are gone had open, as far as the storage can be reached."""
        for place in places:
            try:
                settle(self._study, place)
                self._unsettled.discard(place)
            except Exception as error:
                failure = storage_failure(error)
                if failure is None:
                    raise
                self._unsettled.add(place)
                self._storage_failed = in_words(failure)

    def _what_became_of_runs(self, cut_off: bool) -> str:
        if not self._begun:
            return _NOTHING
        return _SETTLED if cut_off and not self._unsettled else _OPEN

    def _look(self) -> None:
        """Has every worker look at the study, and at the storage's numbers, before any run."""
        study, tries = self._study, not numbers_well(storage_of(self._study))
        storage_of(study).set_study_system_attr(study_id_of(study), CALL_KEY, self._ticket.call)
        with ExitStack() as stack:
            scratch = stack.enter_context(scratch_study(storage_of(study))) if tries else None
            tickets = [_packed(replace(self._ticket, scratch=scratch)) for _ in self._places]
            reports: list[Report] = []
            with self._taking_tasks():
                futures = self._engine.start_all(look, tickets)
            for future in futures:
                failure = _exception_of(future)
                if failure is not None:
                    raise WorkersError(
                        f"A worker on {self._engine.name} could not begin: {in_words(failure)}.",
                        _NOTHING,
                        "Install optuna-dp where the workers are.",
                    ) from failure
                reports.append(future.result())
            for report in reports:
                if report.error:
                    raise WorkersError(
                        f"A worker on {self._engine.name} cannot reach the study, or cannot load "
                        f"what it needs: {report.error}.",
                        _NOTHING,
                        "Every worker must reach the storage, the data and the modules. "
                        "A study in memory or on SQLite is served from here.",
                    )
            if tries:
                check_numbers(storage_of(study), [n for report in reports for n in report.numbers])

    def _work(self) -> None:
        self._begun = True
        deaths = dict.fromkeys(range(len(self._places)), 0)
        well = dict(deaths)
        tickets = [self._packed_for(place) for place in deaths]
        with self._taking_tasks():
            futures = self._engine.start_all(work, tickets)
        under_way = {future: place for place, future in enumerate(futures)}
        while under_way:
            for future in wait(under_way, return_when=FIRST_COMPLETED).done:
                place = under_way.pop(future)
                failure = _exception_of(future)
                self._settle([self._places[place]])
                if failure is None:
                    report: Report = future.result()
                    if report.storage_failed:
                        self._storage_failed = report.error
                    else:
                        self._raised = self._raised or (report if report.error else None)
                    self._ended = self._ended or not report.error
                    continue
                self._lost = failure
                if self._unsettled:
                    continue
                earlier_count, well[place] = (
                    well[place],
                    ended_well(self._study, self._places[place]),
                )
                deaths[place] = 1 if well[place] > earlier_count else deaths[place] + 1
                if deaths[place] >= _DEATHS_IN_A_ROW:
                    _logger.warning("A worker is not replaced any more: %s.", in_words(failure))
                    continue
                _logger.warning(
                    "A worker was lost (%s) and is replaced. The run that it had open, if any, "
                    "counts as failed.",
                    in_words(failure),
                )
                ticket = self._packed_for(place)
                with self._taking_tasks():
                    under_way[self._engine.start(place, work, ticket)] = place

    @contextmanager
    def _taking_tasks(self) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            raise WorkersError(
                f"{self._engine.name} takes no tasks (any more): {in_words(error)}.",
                _OPEN,
                f"Start the engine (again) and {_CALL_AGAIN}",
            ) from error

    def _packed_for(self, place: int) -> bytes:
        return _packed(replace(self._ticket, place=self._places[place]))

    def _say_what_went_wrong(self) -> None:
        """Raises what a worker's objective raised, or how workers, or the storage, were lost."""
        if self._unsettled:
            raise _storage_lost(self._storage_failed, _OPEN)
        self._say_what_took_too_long()
        if self._raised is not None:
            raise _rebuilt(self._raised) from _WhereItHappened(self._raised.trace)
        if self._storage_failed and not self._ended:
            raise _storage_lost(self._storage_failed, _SETTLED)
        if self._lost is not None and not self._ended:
            raise WorkersError(
                f"Workers died again and again and are not replaced: {in_words(self._lost)}.",
                _SETTLED,
                f"The study has runs left: mend what kills the workers and {_CALL_AGAIN}",
            ) from self._lost

    def _say_what_took_too_long(self) -> None:
        if self._ticket.run_timeout is None:
            return
        too_long = ended_at_limit(self._study, self._places)
        if too_long:
            _logger.warning(
                "%d run(s) reached run_timeout=%g seconds, counts as failed and is charged for in "
                "full. The worker's stderr has the lines that were under way.",
                too_long,
                self._ticket.run_timeout,
            )


def _storage_lost(how: str, state_of_runs: str) -> WorkersError:
    return WorkersError(
        f"The storage of the study failed: {how}.",
        state_of_runs,
        f"Once the storage is back, {_CALL_AGAIN}",
    )


def _check_sampler(study: Study) -> None:
    if not isinstance(study.sampler, SlotSampler):
        raise InvalidArgumentError(
            "make_study",
            f"a study with {type(study.sampler).__name__}",
            "its sampler must be one of optuna-dp's, which end by themselves",
            "For example optuna.create_study(sampler=odp.RandTuneSampler()).",
        )
    design, _ = study.sampler.own_design(study)
    if not procedure_of(design).runs_are_private:
        raise InvalidArgumentError(
            "make_study",
            f"a study with {type(study.sampler).__name__}",
            "a candidate whose worker dies can be evaluated again but not settled, so the others "
            "would wait for it for ever",
            "Call study.optimize in processes of your own.",
        )


def _try_numbers_here(study: Study, workers: int) -> None:
    """Tries how a storage that is not Optuna's numbers trials that threads create."""
    if numbers_well(storage_of(study)):
        return
    storage: BaseStorage = storage_of(study)
    with scratch_study(storage) as scratch, ThreadPoolExecutor(workers) as threads:
        numbers_by_worker = list(threads.map(lambda _: tried(storage, scratch), range(workers)))
    check_numbers(storage, [number for numbers in numbers_by_worker for number in numbers])


def _check_travels(argument: str, value: Any) -> None:
    try:
        cloudpickle.loads(cloudpickle.dumps(value))
    except Exception as error:
        raise InvalidArgumentError(
            argument,
            getattr(value, "__qualname__", type(value).__name__),
            f"it is sent to workers and cannot be pickled ({in_words(error)})",
            "Open files, connections, locks and devices inside the objective.",
        ) from error


def _packed(ticket: Ticket) -> bytes:
    try:
        contents: bytes = cloudpickle.dumps(ticket)
    except Exception as error:
        raise InvalidArgumentError(
            "study",
            ticket.study_name,
            f"its storage, sampler or pruner cannot be sent to workers ({in_words(error)})",
            "Use PostgreSQL, MySQL, SQLite, a journal, or no storage at all.",
        ) from error
    return contents


def _exception_of(future: Future[Any]) -> BaseException | None:
    try:
        return future.exception()
    except BaseException as error:  # Cancelled.
        return error


class _WhereItHappened(Exception):
    """The traceback on the worker's machine, in words."""

    def __str__(self) -> str:
        return f"\n{self.args[0]}"


def _rebuilt(report: Report) -> BaseException:
    try:
        error = cloudpickle.loads(report.exception)
        assert isinstance(error, Exception)
    except Exception:
        return RuntimeError(report.error)  # It could not be sent as it was.
    return error
