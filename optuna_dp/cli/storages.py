"""Loads the study that was named, without creating or changing a storage."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from optuna_dp.errors import InvalidArgumentError

if TYPE_CHECKING:
    from optuna.storages import BaseStorage
    from optuna.study import Study

Storage = Annotated[
    str,
    typer.Argument(
        metavar="STORAGE", help="Optuna storage URL of the curator's study, or a journal file."
    ),
]
StudyName = Annotated[str, typer.Argument(metavar="STUDY", help="Name of the study.")]

_WHAT = "Give an Optuna storage URL or the path of a journal file."


def load_study(storage: str, study_name: str) -> Study:
    """Loads a study from a storage URL or the file of a journal; never creates a storage.

    Raises:
        InvalidArgumentError: If there is no such storage or study.
    """
    import optuna  # Lazy: start-up time.

    try:
        backend = _open(storage)
        names = sorted(optuna.get_all_study_names(backend))
        if study_name not in names:
            has = f"It has: {', '.join(map(repr, names)) or 'none'}."
            raise InvalidArgumentError("STUDY", study_name, "the storage has no such study", has)
        return optuna.load_study(study_name=study_name, storage=backend)
    except InvalidArgumentError:
        raise
    except Exception as error:  # drivers, databases and damaged files raise what they like
        # Optuna's errors about a storage have the driver's as their cause.
        text = str(error.__cause__ or error).strip() or type(error).__name__
        line = text.splitlines()[0].rstrip(". ")
        raise InvalidArgumentError(
            "STORAGE", _shown(storage), f"it cannot be read ({line})", _WHAT
        ) from error


def _open(storage: str) -> BaseStorage:
    """Returns the storage; makes neither a file nor tables."""
    # Lazy: start-up time.
    from optuna.storages import JournalStorage, RDBStorage
    from optuna.storages.journal import JournalFileBackend
    from sqlalchemy.engine import make_url

    if "://" not in storage:
        _check_file(Path(storage), is_sqlite=False)
        return JournalStorage(JournalFileBackend(storage))
    url = make_url(storage)
    if url.get_backend_name() == "sqlite":
        # SQLite takes "file:" names with options of its own after the path.
        name = (url.database or ":memory:").removeprefix("file:").partition("?")[0]
        _check_file(Path(name), is_sqlite=True)
    return RDBStorage(storage, skip_table_creation=True)


def _check_file(path: Path, *, is_sqlite: bool) -> None:
    if not path.is_file():
        reason = "it is not a file" if path.exists() else "there is no such file"
        raise InvalidArgumentError("STORAGE", str(path), reason, _WHAT)
    with path.open("rb") as file:
        found = file.read(16) == b"SQLite format 3\0"
    if found != is_sqlite:
        reason = "it is a SQLite database" if found else "it is no SQLite database"
        fix = "Give sqlite:///PATH for a database, and the path alone for a journal."
        raise InvalidArgumentError("STORAGE", str(path), reason, fix)


def _shown(storage: str) -> str:
    """Returns the storage as it may be printed: without a password."""
    # Lazy: start-up time.
    from sqlalchemy.engine import make_url
    from sqlalchemy.exc import ArgumentError

    try:
        return make_url(storage).render_as_string(hide_password=True)
    except (ArgumentError, ValueError):
        return storage
