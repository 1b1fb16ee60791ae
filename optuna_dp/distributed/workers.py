"""``study.optimize`` in several workers: processes on this machine, or a cluster of Dask or Ray.

Every worker opens the study's storage by itself and calls ``study.optimize``. Nothing here hands
out runs: the study's plan and the claims of the protocol (:mod:`optuna_dp.study.claims`) make
sure that each run is begun by one worker only. What is left to do: send the objective to the
workers, bring their errors back, and mark the open run of a worker that has died.
"""

from __future__ import annotations

import contextlib
import logging
import os
import traceback
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import CancelledError, Future, as_completed
from dataclasses import dataclass
from typing import TYPE_CHECKING

import cloudpickle
import joblib
import optuna
from optuna.pruners import BasePruner
from optuna.samplers import BaseSampler
from optuna.storages import BaseStorage, InMemoryStorage, RDBStorage
from optuna.study import Study
from optuna.trial import FrozenTrial, Trial, TrialState

from optuna_dp.core.optuna_internals import storage_of, uncached
from optuna_dp.core.validation import whole
from optuna_dp.errors import (
    InvalidArgumentError,
    MissingExtraError,
    StorageError,
    Text,
    WorkersError,
)
from optuna_dp.study.entries import WORKER, trial_with
from optuna_dp.study.recovery import recover
from optuna_dp.study.slots import SlotSampler
from optuna_dp.study.storage_errors import clear_storage_errors
from optuna_dp.study.trials import checked_study, trials_of

if TYPE_CHECKING:
    import ray
    from joblib.externals.loky import ProcessPoolExecutor

_logger = logging.getLogger("optuna_dp")

Callback = Callable[[Study, FrozenTrial], None]
# As study.optimize takes it.
Objective = Callable[[Trial], float | Sequence[float]]

# Differs between processes: a worker that is a thread of the caller's process has the caller's.
_THIS_PROCESS = uuid.uuid4().hex
# Seconds after which a process without work ends by itself: its caller may have been killed.
_IDLE_SECONDS = 300.0
# Seconds that Ray is given to end its workers.
_ENDS_WITHIN_SECONDS = 30.0


def optimize(
    study: Study,
    objective: Objective,
    *,
    workers: int,
    engine: str = "processes",
    engine_options: Mapping[str, object] | None = None,
    callbacks: Sequence[Callback] = (),
    catch: Iterable[type[Exception]] | type[Exception] = (),
) -> None:
    """Runs ``study.optimize`` in several workers until the study's last run has ended.

    ===============  ============================================================================
    ``engine``       where the workers are
    ===============  ============================================================================
    ``"processes"``  processes on this machine, which end with the call
    ``"dask"``       the cluster of the current ``distributed.Client`` (extra ``dask``)
    ``"ray"``        the cluster of ``ray.init(...)``; without it, one on this machine (extra
                     ``ray``)
    ===============  ============================================================================

    For threads of this process call ``study.optimize(objective, n_jobs=...)``.

    The study's storage must be one that several processes can open: a database, or a journal
    file if all workers are on one machine. Each worker stops when the study's last run has begun.
    The engine sees one task for each worker, and never how many runs there are.

    Guarantees:
        * The study makes the runs of its plan, as with one worker. No run is made twice, whatever
          dies and however often an engine starts a task again.
        * A worker that dies costs the run that it had open. That run counts as a failed one, as
          :func:`optuna_dp.recover` would mark it, and the other workers go on. Dask and Ray start
          the worker again, up to three times unless they are told otherwise. A study of
          ``NoisyMaxSampler`` or ``ProposeTestSampler`` needs every candidate, so it ends with
          such a worker. A new one is free.
        * An exception of the objective, unless it is in ``catch``, ends its worker and fails its
          run. The others go on, and the first such exception is raised here at the end.
        * Ctrl-C, or any other exception in the calling process, ends the workers. On this machine
          and on Ray they are killed, and their open runs count as failed. Dask cannot end a task
          that has begun: its workers stop after the run under way. If the calling process is
          killed, workers stop at the latest after the run under way.
        * No task's name, argument or result tells a run's number, parameters or score, except as
          an exception's own words do. Workers in other processes keep Optuna from logging them.

    Runs of workers that outlive the call and are killed later stay open, and so does an enqueued
    trial whose worker dies before its run begins. Workers that wait for such a trial say so. Mark
    it by :func:`optuna_dp.recover`.

    Args:
        study: The study, with one of this package's samplers.
        objective: The objective, as for ``study.optimize``. It is sent to the workers by
            cloudpickle. Modules that it imports must be installed there.
        workers: The number of workers, at least 1.
        engine: ``"processes"``, ``"dask"`` or ``"ray"``.
        engine_options: What the engine is told of each worker. On Ray the arguments of a task's
            ``options``, such as ``{"num_gpus": 1}``. On Dask those of ``Client.get_executor``,
            such as ``{"resources": {"GPU": 1}}``. Processes have none.
        callbacks: As for ``study.optimize``, :class:`optuna_dp.PrivacyCallback` among them. Each
            worker gets a copy. ``study.stop()`` in a callback stops one worker.
        catch: As for ``study.optimize``: exceptions that fail a run and do not end the worker.

    Raises:
        InvalidArgumentError: If an argument cannot be used, or other processes cannot open the
            study's storage. Nothing has begun then.
        MissingExtraError: If the engine's package is not installed.
        WorkersError: If all workers died before the study's last run began, or a worker finds no
            such study in the storage that it opens. The study continues with another call.
        StorageError: If the storage failed.
        Exception: What the objective raised, with the worker's traceback as its cause.

    Example:
        >>> import optuna, optuna_dp as odp
        >>> def objective(trial):
        ...     return trial.suggest_float("x", 0, 1)
        >>> def tune():
        ...     study = optuna.create_study(
        ...         storage="sqlite:///tuning.db",
        ...         sampler=odp.RandTuneSampler(trials=odp.Geometric(mean=5)),
        ...     )
        ...     odp.distributed.optimize(study, objective, workers=2)
        ...     return study
    """
    checked_study(study)
    workers = whole("workers", workers, 1)
    if not callable(objective):
        raise InvalidArgumentError(
            "objective",
            objective,
            allowed="it must be a function of a trial that returns its score",
        )
    if engine not in ENGINES:
        raise InvalidArgumentError(
            "engine", engine, allowed=f"it must be one of {sorted(ENGINES)}"
        )
    _check_sampler(study)
    _check_storage(storage_of(study))
    call = uuid.uuid4().hex
    packed = {
        "study": _packed(
            "study", (study.study_name, storage_of(study), study.sampler, study.pruner)
        ),
        "objective": _packed("objective", objective),
        "callbacks": _packed("callbacks", list(callbacks)),
        "catch": _packed("catch", catch),
        "caller": _packed("caller", _THIS_PROCESS),
    }
    started = ENGINES[engine](workers, dict(engine_options or {}))
    places = [f"{call}/{number}" for number in range(workers)]
    try:
        error = _end_of({started.start(packed, place): place for place in places}, study)
    except BaseException:
        # Ctrl-C, or workers that cannot be started or waited for any more.
        if started.end():
            with contextlib.suppress(StorageError):  # The first error says more.
                for place in places:
                    _fail_open_runs(study, place)
        else:
            _logger.warning(
                "The call has ended before its workers, which stop after the run under way. Runs "
                "of workers that are killed before that stay open: odp.recover(study) lists them."
            )
        raise
    started.end()
    if error is not None:
        raise error


def _end_of(futures: Mapping[Future[Failure | None], str], study: Study) -> BaseException | None:
    """Waits until all workers have ended; returns what the caller is to be told, or None."""
    failure: Failure | None = None
    death: BaseException | None = None
    is_ended = False  # Whether a worker has seen the study's last run begin.
    for future in as_completed(futures):
        error = CancelledError() if future.cancelled() else future.exception()
        # An objective that calls sys.exit leaves its run open, and so does a worker that died.
        _fail_open_runs(study, futures[future])
        if error is not None:
            death = error
            _logger.warning(
                "A worker has died (%s). The run that it had open, if any, counts as failed. The "
                "other workers go on.",
                type(error).__name__,
            )
        elif (own_failure := future.result()) is not None:
            failure = failure or own_failure
            _logger.warning(
                "A worker has ended with %s, which is raised when the others have ended.",
                own_failure.kind,
            )
        else:
            is_ended = True
    if failure is not None:
        return failure.exception()
    if death is None or is_ended:
        return None
    lost = WorkersError(
        "All workers died before the study's last run had begun. The runs that they had open "
        f"count as failed. The last worker's end: {_in_one_line(death)}.",
        "Mend what kills the workers and call optimize again: the study continues.",
    )
    lost.__cause__ = death
    return lost


# Workers.


@dataclass(frozen=True)
class Failure:
    """The exception that ended a worker, in a form that can always be sent.

    Attributes:
        kind: The name of the exception's class.
        words: The exception in one line.
        traceback: The traceback.
        pickled: The exception; empty if it cannot be pickled.
    """

    kind: str
    words: str
    traceback: str
    pickled: bytes

    @classmethod
    def of(cls, error: BaseException) -> Failure:
        """Returns what is to be sent of an exception."""
        pickled = b""
        with contextlib.suppress(Exception):
            pickled = cloudpickle.dumps(error)
        trace = "".join(traceback.format_exception(error))
        return cls(type(error).__name__, _in_one_line(error), trace, pickled)

    def exception(self) -> BaseException:
        """Returns the exception, caused by its traceback in words.

        A WorkersError with its words if the exception cannot be pickled or unpickled.
        """
        error: BaseException = WorkersError(f"A worker has ended with {self.words}.")
        with contextlib.suppress(Exception):
            error = cloudpickle.loads(self.pickled)
        error.__cause__ = _WorkerTraceback(self.traceback)
        return error


class _WorkerTraceback(Exception):
    """The traceback of a worker, in words."""

    def __str__(self) -> str:
        return f"\n{self.args[0]}"


def work(
    packed: Mapping[str, bytes], place: str, goes_on: Callable[[], bool] = lambda: True
) -> Failure | None:
    """Works until the study's last run has begun. Runs where the worker is.

    An engine may call it again for a place whose worker has died.

    Args:
        packed: The arguments of the call, pickled.
        place: The name of this worker.
        goes_on: Returns whether the call still wants the worker to begin runs.

    Returns:
        What ended the worker before, or None.
    """
    storage: BaseStorage | None = None
    try:
        contents = {name: cloudpickle.loads(part) for name, part in packed.items()}
        if contents["caller"] != _THIS_PROCESS:
            # Optuna logs the number and the score of every trial, and an engine keeps the logs.
            optuna.logging.set_verbosity(optuna.logging.ERROR)
        name, storage, sampler, pruner = contents["study"]
        study = _load_study(name, storage, sampler, pruner)
        _fail_open_runs(study, place)
        _mark_new_trials(storage_of(study), place)

        given: Objective = contents["objective"]

        def objective(trial: Trial) -> float | Sequence[float]:
            # An enqueued trial was created by somebody else.
            WORKER.write(study, trial, place)
            return given(trial)

        def stop_if_over(study: Study, trial: FrozenTrial) -> None:
            if not goes_on():
                study.stop()

        study.optimize(
            objective, callbacks=[*contents["callbacks"], stop_if_over], catch=contents["catch"]
        )
    except BaseException as error:  # Also sys.exit: the worker has not died.
        return Failure.of(error)
    finally:
        # The process may live on, and a database has few connections to give away.
        if storage is not None and isinstance(backend := uncached(storage), RDBStorage):
            backend.engine.dispose()
    return None


def _load_study(
    name: str, storage: BaseStorage, sampler: BaseSampler, pruner: BasePruner
) -> Study:
    try:
        with clear_storage_errors():
            return optuna.load_study(
                study_name=name, storage=storage, sampler=sampler, pruner=pruner
            )
    except KeyError:
        raise WorkersError(
            f"A worker has opened the storage and found no study {name!r} there.",
            "The storage's address must mean the same on every machine. A path of a local disk "
            "and localhost do not: use a database server, or workers on one machine.",
        ) from None


def _mark_new_trials(storage: BaseStorage, place: str) -> None:
    """Lets a worker's copy of the storage create each trial with the worker's name.

    In the one step that creates it: the trial of a worker that dies right after that would
    otherwise be nobody's, and others may wait for it for ever.
    """
    create = storage.create_new_trial

    def create_marked(study_id: int, template_trial: FrozenTrial | None = None) -> int:
        marked_trial = trial_with(TrialState.RUNNING, {WORKER: place})
        return create(study_id, template_trial=template_trial or marked_trial)

    storage.create_new_trial = create_marked  # type: ignore[method-assign]  # of this copy only


def _fail_open_runs(study: Study, place: str) -> None:
    """Marks the open runs of a worker that has ended or died as failed.

    The worker's end decides, and nothing else, as :func:`optuna_dp.recover` asks for. If an engine
    was mistaken and the worker is alive, its result is refused.
    """
    with clear_storage_errors(study):
        trials = trials_of(study)
    for trial in trials:
        if trial.state == TrialState.RUNNING and WORKER.of(trial) == place:
            with contextlib.suppress(InvalidArgumentError):  # It has ended just now.
                recover(study, fail=[trial.number])


# Engines.


class Engine(ABC):
    """A place for workers.

    Args:
        workers: The number of workers.
        options: What the user tells the engine of each of them.
    """

    @abstractmethod
    def __init__(self, workers: int, options: dict[str, object]) -> None: ...

    @abstractmethod
    def start(self, packed: Mapping[str, bytes], place: str) -> Future[Failure | None]:
        """Starts :func:`work`. The future has an exception only if the worker has died."""

    @abstractmethod
    def end(self) -> bool:
        """Ends all workers; returns whether none of them is alive."""


class _Processes(Engine):
    """Processes on this machine, each with an executor of its own: a broken one loses all."""

    def __init__(self, workers: int, options: dict[str, object]) -> None:
        if options:
            raise InvalidArgumentError(
                "engine_options", options, problem='the engine "processes" has no options'
            )
        # As joblib does: together the workers use each core once.
        threads = str(max(1, joblib.cpu_count() // workers))
        self._environment = {"OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", threads)}
        self._executors: list[ProcessPoolExecutor] = []

    def start(self, packed: Mapping[str, bytes], place: str) -> Future[Failure | None]:
        # Start-up time: only where processes are started.
        from joblib.externals.loky import ProcessPoolExecutor

        executor = ProcessPoolExecutor(1, timeout=_IDLE_SECONDS, env=self._environment)
        self._executors.append(executor)
        future: Future[Failure | None] = executor.submit(
            _work_in_child, packed, place, os.getpid()
        )
        return future

    def end(self) -> bool:
        for executor in self._executors:
            executor.shutdown(wait=True, kill_workers=True)
        return True


def _work_in_child(packed: Mapping[str, bytes], place: str, parent: int) -> Failure | None:
    return work(packed, place, lambda: os.getppid() == parent)


class _Dask(Engine):
    """The workers of a Dask cluster."""

    def __init__(self, workers: int, options: dict[str, object]) -> None:
        try:
            from distributed import default_client  # an extra
        except ModuleNotFoundError as error:
            raise MissingExtraError("distributed", "dask") from error
        try:
            client = default_client()
        except ValueError as error:
            raise InvalidArgumentError(
                "engine",
                Text("dask"),
                problem="this process is connected to no Dask cluster",
                fix="Connect to one first: distributed.Client(...).",
            ) from error
        self._executor = client.get_executor(pure=False, **options)

    def start(self, packed: Mapping[str, bytes], place: str) -> Future[Failure | None]:
        future: Future[Failure | None] = self._executor.submit(_work_on_dask, packed, place)
        return future

    def end(self) -> bool:
        self._executor.shutdown(wait=False)  # It cancels the tasks.
        return False


def _work_on_dask(packed: Mapping[str, bytes], place: str) -> Failure | None:
    from distributed import get_worker  # an extra

    worker = get_worker()
    key = worker.get_current_task()

    def is_wanted() -> bool:
        # Dask cancels the tasks of a client that has gone, and lets those that have begun run on.
        task = worker.state.tasks.get(key)
        return task is not None and task.state != "cancelled"

    return work(packed, place, is_wanted)


class _Ray(Engine):
    """The workers of a Ray cluster."""

    def __init__(self, workers: int, options: dict[str, object]) -> None:
        try:
            import ray  # an extra
        except ModuleNotFoundError as error:
            raise MissingExtraError("ray", "ray") from error
        self._ray = ray
        self._task = ray.remote(work).options(**{"name": "optuna-dp", **options})
        self._references: list[ray.ObjectRef] = []

    def start(self, packed: Mapping[str, bytes], place: str) -> Future[Failure | None]:
        reference = self._task.remote(packed, place)
        self._references.append(reference)
        future: Future[Failure | None] = reference.future()
        return future

    def end(self) -> bool:
        if not self._references:
            return True
        for reference in self._references:
            self._ray.cancel(reference, force=True)
        _, alive = self._ray.wait(
            self._references, num_returns=len(self._references), timeout=_ENDS_WITHIN_SECONDS
        )
        return not alive


ENGINES: Mapping[str, type[Engine]] = {"processes": _Processes, "dask": _Dask, "ray": _Ray}


# Arguments.


def _check_sampler(study: Study) -> None:
    if not isinstance(study.sampler, SlotSampler):
        raise InvalidArgumentError(
            "study",
            Text(f"a study with {type(study.sampler).__name__}"),
            allowed="its sampler must be one of optuna-dp's: with another one the workers never "
            "stop",
            fix="For example optuna.create_study(sampler=odp.RandTuneSampler(), storage=...).",
        )


def _check_storage(storage: BaseStorage) -> None:
    backend = uncached(storage)
    is_in_memory = isinstance(backend, InMemoryStorage)
    if isinstance(backend, RDBStorage) and backend.engine.name == "sqlite":
        url = backend.engine.url
        is_in_memory = ":memory:" in (url.database or ":memory:") or (
            url.query.get("mode") == "memory"
        )
    if is_in_memory:
        raise InvalidArgumentError(
            "study",
            Text("a study in memory"),
            problem="workers are other processes and cannot open the memory of this one",
            fix="Create the study with a storage that they can open: storage=JournalStorage("
            'JournalFileBackend("tuning.log")) on one machine (from optuna.storages and '
            "optuna.storages.journal), the URL of a database server on several. For threads of "
            "this process call study.optimize(objective, n_jobs=...).",
        )


def _packed(argument: str, value: object) -> bytes:
    try:
        contents: bytes = cloudpickle.dumps(value)
    except Exception as error:
        raise InvalidArgumentError(
            argument,
            Text(getattr(value, "__qualname__", type(value).__name__)),
            problem=f"it is sent to the workers and cannot be pickled ({_in_one_line(error)})",
            fix="Open files, connections, locks and devices inside the objective.",
        ) from error
    return contents


def _in_one_line(error: BaseException) -> str:
    first_line = (str(error).strip().splitlines() or [""])[0].rstrip(".")
    return f"{type(error).__name__}: {first_line}" if first_line else type(error).__name__
