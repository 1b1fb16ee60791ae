"""From what was typed to a study, without creating or changing a storage."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from optuna_dp.errors import InvalidArgumentError

if TYPE_CHECKING:
    from optuna.storages import BaseStorage
    from optuna.study import Study
    from sqlalchemy.engine import URL

_WHAT = "Give an Optuna storage URL or the path of a journal file."


def load_study(storage: str, study_name: str) -> Study:
    """Loads a study from a storage URL or the file of a journal; never creates a storage.

    Raises:
        InvalidArgumentError: If there is no such storage or study.
    """
    import optuna  # start-up time

    try:
        backend = _sql(storage) if "://" in storage else _journal(storage)
        names = sorted(optuna.get_all_study_names(backend))
        if study_name not in names:
            shown = ", ".join(repr(name) for name in names)
            raise InvalidArgumentError(
                "STUDY",
                study_name,
                "the storage has no such study",
                f"It has: {shown or 'none'}.",
            )
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


def _sql(storage: str) -> BaseStorage:
    """Returns the storage of a URL; makes neither a file nor tables."""
    # Start-up time: --help and refusals come at once.
    from optuna.storages import RDBStorage
    from sqlalchemy.engine import make_url

    url = make_url(storage)
    if url.get_backend_name() == "sqlite":
        _refuse_other_files(storage, url)
    return RDBStorage(storage, skip_table_creation=True)


def _refuse_other_files(storage: str, url: URL) -> None:
    name = url.database or ":memory:"
    if name == ":memory:" or url.query.get("mode") == "memory":
        raise InvalidArgumentError(
            "STORAGE", storage, "a storage in memory is empty here", "Name a file."
        )
    # SQLite takes "file:" names with options of its own after the path.
    path = Path(name.removeprefix("file:").partition("?")[0])
    _refuse_missing(storage, path)
    if not _is_sqlite(path):
        raise InvalidArgumentError(
            "STORAGE",
            storage,
            "the file is no SQLite database",
            "For a journal file give its path alone.",
        )


def _journal(storage: str) -> BaseStorage:
    """Returns the storage of a journal file, each line of which is a JSON object."""
    # Start-up time: --help and refusals come at once.
    from optuna.storages import JournalStorage
    from optuna.storages.journal import JournalFileBackend

    path = Path(storage)
    _refuse_missing(storage, path)
    if _is_sqlite(path):
        raise InvalidArgumentError(
            "STORAGE",
            storage,
            "the file is a SQLite database, not a journal",
            f"Give its URL, sqlite:///{storage}.",
        )
    with path.open("rb") as file:
        for number, line in enumerate(file, start=1):
            if not _is_entry(line):
                raise InvalidArgumentError(
                    "STORAGE",
                    storage,
                    f"the file is no Optuna journal (line {number} is no entry of one)",
                    _WHAT,
                )
    return JournalStorage(JournalFileBackend(storage))


def _is_sqlite(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(16) == b"SQLite format 3\0"


def _is_entry(line: bytes) -> bool:
    if not line.endswith(b"\n"):
        return True  # the last one may be half written; Optuna waits for the rest
    try:
        entry = json.loads(line)
    except ValueError:
        return False
    return isinstance(entry, dict) and {"op_code", "worker_id"} <= entry.keys()


def _refuse_missing(storage: str, path: Path) -> None:
    if not path.is_file():
        reason = "there is no such file" if not path.exists() else "it is not a file"
        raise InvalidArgumentError("STORAGE", storage, reason, _WHAT)


def _shown(storage: str) -> str:
    """Returns the storage as it may be printed: without a password."""
    # Start-up time: --help and refusals come at once.
    from sqlalchemy.engine import make_url
    from sqlalchemy.exc import ArgumentError

    try:
        return make_url(storage).render_as_string(hide_password=True)
    except (ArgumentError, ValueError):
        return storage
