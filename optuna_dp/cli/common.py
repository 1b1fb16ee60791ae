"""What the commands share: one clear line on bad input, exit code 2."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from optuna_dp.errors import InvalidArgumentError, OptunaDPError

if TYPE_CHECKING:
    from optuna.study import Study

_SQLITE = "sqlite:///"


@contextmanager
def clear_errors() -> Iterator[None]:
    """Turns the errors a user can cause into one line on stderr and exit code 2."""
    try:
        yield
    except OptunaDPError as error:
        print(f"optuna-dp: {error}", file=sys.stderr)
        raise typer.Exit(code=2) from error


def load_study(storage: str, study_name: str) -> Study:
    """Loads a study; never creates a storage that is not there.

    Args:
        storage: An Optuna storage URL (``sqlite:///tuning.db``, ``postgresql+psycopg://...``) or
            the path of a journal file.
        study_name: Name of the study.

    Raises:
        InvalidArgumentError: If there is no such storage or study.
    """
    import optuna
    from optuna.storages import BaseStorage, JournalStorage
    from optuna.storages.journal import JournalFileBackend
    from sqlalchemy.exc import SQLAlchemyError

    path = Path(storage.removeprefix(_SQLITE))
    if (storage.startswith(_SQLITE) or "://" not in storage) and not path.is_file():
        raise InvalidArgumentError(
            "STORAGE",
            storage,
            "there is no such file",
            "Give an Optuna storage URL or the path of a journal file.",
        )
    backend: str | BaseStorage = storage
    if "://" not in storage:
        backend = JournalStorage(JournalFileBackend(storage))
    try:
        return optuna.load_study(study_name=study_name, storage=backend)
    except KeyError:
        names = ", ".join(repr(name) for name in sorted(optuna.get_all_study_names(backend)))
        raise InvalidArgumentError(
            "STUDY", study_name, "the storage has no such study", f"It has: {names or 'none'}."
        ) from None
    except (SQLAlchemyError, ImportError, ValueError) as error:
        line = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise InvalidArgumentError("STORAGE", storage, f"it cannot be read ({line})") from error
