"""Storages that die: what a database, a journal or a disk raises becomes one error with a way out.

Drivers have exceptions of their own (gRPC, databases, Redis, the operating system), and Optuna
ends with others of its own on the way out: where the result of a run cannot be written, with an
``UnboundLocalError``. That one came out of Optuna's storages shows in its traceback.
"""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from contextlib import contextmanager

from optuna.exceptions import OptunaError, StorageInternalError
from optuna.study import Study

from optuna_dp.core.optuna_internals import JOURNAL_FILE_MODULE, storage_of, study_id_of
from optuna_dp.errors import DeletedStudyError, OptunaDPError, StorageError

# What Optuna's storages raise about how they were called.
_OF_CALLERS = (OptunaError, LookupError, TypeError, ValueError)
_TORN = (
    "a line of the journal file is torn, as after a disk was full; optuna-dp recover FILE STUDY "
    "--mend drops such lines"
)


def storage_failure(error: BaseException) -> BaseException | None:
    """Returns what a storage failed with if that is why an exception was raised, or None."""
    cause: BaseException | None = error
    while cause is not None and not _is_of_a_storage(cause):
        cause = cause.__cause__ or cause.__context__
    return cause


def storage_error(failure: BaseException) -> StorageError:
    """Returns the error for what a storage failed with."""
    if _comes_from(failure, JOURNAL_FILE_MODULE) and isinstance(failure, ValueError):
        return StorageError(_TORN)
    # Optuna's errors about a database have the driver's as their cause. Only its first line: the
    # others are statements with their values.
    cause = failure.__cause__ or failure
    text = str(cause).strip() or type(cause).__name__
    return StorageError(text.splitlines()[0].rstrip(". "))


@contextmanager
def clear_storage_errors(study: object = None) -> Iterator[None]:
    """Raises a :class:`StorageError` for what a storage raises; lets everything else pass.

    Args:
        study: The study that is worked at, if there is one. If it has been deleted meanwhile, the
            error is a :class:`DeletedStudyError`.
    """
    try:
        yield
    except OptunaDPError:
        raise
    except Exception as error:
        failure = storage_failure(error)
        if failure is not None:
            raise storage_error(failure) from error
        # An objective may look up something that never was there: that is no deleted study.
        if isinstance(study, Study) and _missed_a_record(error) and _is_deleted(study):
            raise DeletedStudyError from error
        raise


def _missed_a_record(error: BaseException) -> bool:
    """Returns whether a storage was asked for what it does not have."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, KeyError) and _comes_from(cause, "optuna.storages"):
            return True
        cause = cause.__cause__ or cause.__context__
    return False


def _is_deleted(study: Study) -> bool:
    try:
        storage_of(study).get_study_system_attrs(study_id_of(study))
    except KeyError:
        return True
    except Exception:  # The storage has failed besides: nobody knows.
        return False
    return False


def _is_of_a_storage(error: BaseException) -> bool:
    if isinstance(error, StorageInternalError):
        return True
    if not isinstance(error, Exception):
        return False
    if isinstance(error, ValueError) and _comes_from(error, JOURNAL_FILE_MODULE):
        return True
    return not isinstance(error, _OF_CALLERS) and _comes_from(error, "optuna.storages")


def _comes_from(error: BaseException, module: str) -> bool:
    frames = (frame for frame, _ in traceback.walk_tb(error.__traceback__))
    return any(frame.f_globals.get("__name__", "").startswith(module) for frame in frames)
