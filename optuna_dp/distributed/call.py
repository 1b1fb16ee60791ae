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
from optuna_dp.distributed.owners import ended_well, settle
from optuna_dp.distributed.storages import check_numbers, numbers_well, reachable, scratch_study
from optuna_dp.distributed.worker import CALL_KEY, THIS_PROCESS, Report, Ticket, look, tried, work
from optuna_dp.errors import InvalidArgumentError, WorkersError
from optuna_dp.evidence.procedures import procedure_of
from optuna_dp.protocol.records import checked_study
from optuna_dp.protocol.slots import SlotSampler
from optuna_dp.validation import whole

_logger = logging.getLogger("optuna_dp")

Callback = Callable[[Study, FrozenTrial], None]

# A place whose workers die that many times in a row without ending a run is given up. Deaths that
# follow a run that ended are not counted: machines come and go.
_DEATHS_IN_A_ROW = 3


def optimize(
    make_study: Callable[[], Study],
    objective: Callable[[optuna.Trial], Any],
    *,
    workers: int,
    callbacks: Sequence[Callback] = (),
) -> Study:
    """Runs a study to its end with workers wherever joblib's configuration says.

    ``joblib.parallel_config("loky")`` (processes on this machine, joblib's own choice),
    ``"threading"``, ``"dask"``, ``"ray"`` or ``"spark"`` (untried) around the call says where.
    Each worker does what ``study.optimize`` does; the study's sampler ends it. The engine sees one
    task per worker and never how many runs there are.

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

    Returns:
        The study, every run of these workers ended.

    Raises:
        InvalidArgumentError: If an argument cannot be used: nothing has begun then.
        MissingExtraError: If a package for the engine or for serving the storage is missing.
        WorkersError: If workers cannot begin (nothing has begun then), or could not be replaced:
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
    study = checked_study(make_study())
    _check_sampler(study)
    engine = engine_here(workers)
    if engine is None:
        _try_numbers_here(study, workers)
        study.optimize(objective, n_jobs=workers, callbacks=callbacks)
        return study
    for argument, value in (("objective", objective), ("callbacks", callbacks)):
        _check_travels(argument, value)
    _Call(study, engine, objective, callbacks, workers).run()
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
    ) -> None:
        self._study = study
        self._engine = engine
        call = uuid.uuid4().hex
        self._ticket = Ticket(
            call=call,
            place=call,
            caller=THIS_PROCESS,
            study_name=study.study_name,
            storage=study._storage,
            sampler=study.sampler,
            pruner=study.pruner,
            objective=objective,
            callbacks=callbacks,
            scratch=None,
        )
        self._places = [f"{call}/{number}" for number in range(workers)]
        self._served = False
        self._raised: Report | None = None
        self._lost: BaseException | None = None
        self._ended = False  # Whether some worker has seen the study's last run start.

    def run(self) -> None:
        """Runs the study to its end."""
        none_alive = True
        try:
            with reachable(self._study._storage, self._engine) as storage:
                self._served = storage is not self._study._storage
                self._ticket = replace(self._ticket, storage=storage)
                try:
                    self._look()
                    self._work()
                finally:
                    none_alive = self._engine.close()
        except BaseException:
            # Interrupted. Whoever is cut off from the study is as good as dead.
            if self._served or none_alive:
                for place in self._places:
                    settle(self._study, place)
            raise
        self._say_what_went_wrong()

    def _look(self) -> None:
        """Has every worker look at the study, and at the storage's numbers, before any run."""
        study, tries = self._study, not numbers_well(self._study._storage)
        study._storage.set_study_system_attr(study._study_id, CALL_KEY, self._ticket.call)
        with ExitStack() as stack:
            scratch = stack.enter_context(scratch_study(study._storage)) if tries else None
            tickets = [_packed(replace(self._ticket, scratch=scratch)) for _ in self._places]
            reports: list[Report] = []
            with self._taking_tasks():
                futures = self._engine.start_all(look, tickets)
            for future in futures:
                lost = _exception_of(future)
                if lost is not None:
                    raise WorkersError(
                        f"A worker on {self._engine.name} could not begin: {_in_words(lost)}.",
                        "Nothing has begun. optuna-dp has to be installed where the workers are.",
                    ) from lost
                reports.append(future.result())
            for report in reports:
                if report.error:
                    raise WorkersError(
                        f"A worker on {self._engine.name} cannot reach the study, or cannot load "
                        f"what it needs: {report.error}.",
                        "Nothing has begun. Storage, data and modules must be within reach of "
                        "every worker; a study in memory or on SQLite is served from here.",
                    )
            if tries:
                check_numbers(study._storage, [n for report in reports for n in report.numbers])

    def _work(self) -> None:
        deaths = dict.fromkeys(range(len(self._places)), 0)
        well = dict(deaths)
        tickets = [self._packed_for(place) for place in deaths]
        with self._taking_tasks():
            futures = self._engine.start_all(work, tickets)
        under_way = {future: place for place, future in enumerate(futures)}
        while under_way:
            for future in wait(under_way, return_when=FIRST_COMPLETED).done:
                place = under_way.pop(future)
                lost = _exception_of(future)
                if lost is not None and not self._engine.tells_who_died:
                    raise WorkersError(
                        f"A worker was lost: {_in_words(lost)}. {self._engine.name} does not tell "
                        "which.",
                        "List the open runs by odp.recover, tell them to have failed, and call "
                        "again to go on.",
                    ) from lost
                settle(self._study, self._places[place])
                if lost is None:
                    report: Report = future.result()
                    self._raised = self._raised or (report if report.error else None)
                    self._ended = self._ended or not report.error
                    continue
                self._lost = lost
                before, well[place] = well[place], ended_well(self._study, self._places[place])
                deaths[place] = 1 if well[place] > before else deaths[place] + 1
                if deaths[place] >= _DEATHS_IN_A_ROW:
                    _logger.warning("A worker is not replaced any more: %s.", _in_words(lost))
                    continue
                _logger.warning(
                    "A worker was lost (%s) and is replaced. The run that it had open, if any, "
                    "counts as failed.",
                    _in_words(lost),
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
                f"{self._engine.name} takes no tasks (any more): {_in_words(error)}.",
                "Start the engine (again) and call again: the study goes on where it is.",
            ) from error

    def _packed_for(self, place: int) -> bytes:
        return _packed(replace(self._ticket, place=self._places[place]))

    def _say_what_went_wrong(self) -> None:
        """Raises what a worker's objective raised, or that not all could be replaced."""
        if self._raised is not None:
            raise _rebuilt(self._raised) from _WhereItHappened(self._raised.trace)
        if self._lost is not None and not self._ended:
            raise WorkersError(
                f"Workers died again and again and are not replaced: {_in_words(self._lost)}.",
                "The study has runs left: mend what kills them and call again.",
            ) from self._lost


def _check_sampler(study: Study) -> None:
    if not isinstance(study.sampler, SlotSampler):
        raise InvalidArgumentError(
            "make_study",
            f"a study with {type(study.sampler).__name__}",
            "its sampler must be one of optuna-dp's, which end by themselves",
            "For example optuna.create_study(sampler=odp.RandTuneSampler()).",
        )
    design, _ = study.sampler._own_design(study)
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
    if numbers_well(study._storage):
        return
    storage: BaseStorage = study._storage
    with scratch_study(storage) as scratch, ThreadPoolExecutor(workers) as threads:
        found = list(threads.map(lambda _: tried(storage, scratch), range(workers)))
    check_numbers(storage, [number for numbers in found for number in numbers])


def _check_travels(argument: str, value: Any) -> None:
    try:
        cloudpickle.loads(cloudpickle.dumps(value))
    except Exception as error:
        raise InvalidArgumentError(
            argument,
            getattr(value, "__qualname__", type(value).__name__),
            f"it is sent to workers and cannot be pickled ({_in_words(error)})",
            "Open files, connections, locks and devices inside the objective.",
        ) from error


def _packed(ticket: Ticket) -> bytes:
    try:
        packed: bytes = cloudpickle.dumps(ticket)
    except Exception as error:
        raise InvalidArgumentError(
            "study",
            ticket.study_name,
            f"its storage, sampler or pruner cannot be sent to workers ({_in_words(error)})",
            "Use PostgreSQL, MySQL, SQLite, a journal, or no storage at all.",
        ) from error
    return packed


def _exception_of(future: Future[Any]) -> BaseException | None:
    try:
        return future.exception()
    except BaseException as error:  # Cancelled.
        return error


def _in_words(error: BaseException) -> str:
    first = (str(error).strip().splitlines() or [""])[0].rstrip(".")
    return f"{type(error).__name__}: {first}" if first else type(error).__name__


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
