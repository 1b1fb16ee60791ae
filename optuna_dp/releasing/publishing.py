"""A study that holds nothing but a release."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import optuna
from optuna.distributions import BaseDistribution
from optuna.storages import (
    BaseStorage,
    InMemoryStorage,
    JournalStorage,
    RDBStorage,
    get_storage,
)
from optuna.study import Study, StudyDirection
from optuna.trial import FrozenTrial, TrialState
from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError, SQLAlchemyError

from optuna_dp.core import by_name
from optuna_dp.core.optuna_internals import (
    CachedStorage,
    contains,
    journal_of,
    study_id_of,
    uncached,
)
from optuna_dp.core.value_types import JsonObject
from optuna_dp.errors import InvalidArgumentError, ReleaseRefusedError
from optuna_dp.evidence.procedures import releases_all_runs
from optuna_dp.releasing.release import Release
from optuna_dp.study.entries import PUBLISHED


def publish(release: Release, storage: str | BaseStorage, study_name: str) -> Study:
    """Writes a study that holds nothing but a release and is safe to show.

    With the extra ``dashboard`` its page in Optuna Dashboard has the statement and public plots.

    Args:
        release: What :func:`optuna_dp.release` returned.
        storage: Where to: the URL of an SQLite file that does not exist yet
            (``"sqlite:///public.db"``), an empty journal, storage in memory, or a new database on
            a server. One release has one storage, because who may read the published study can
            read everything that is, or ever was, beside it.
        study_name: Name of the new study.

    Returns:
        The new study.

    Raises:
        InvalidArgumentError: If an argument is not allowed.
        ReleaseRefusedError: If the storage is not new.

    Example:
        >>> import optuna, optuna_dp as odp
        >>> run = odp.gaussian(noise_multiplier=4)
        >>> study = optuna.create_study(sampler=odp.RandTuneSampler(run=run))
        >>> study.optimize(lambda trial: trial.suggest_float("x", 0, 1))
        >>> release = odp.release(study, vouched="why")
        >>> public = odp.publish(release, optuna.storages.InMemoryStorage(), "result")
        >>> len(public.trials)
        1
    """
    if not isinstance(study_name, str) or not study_name:
        raise InvalidArgumentError("study_name", study_name, allowed="it must be a name")
    backend = _new(storage)
    names = release.design.direction.upper().split(",")
    study = optuna.create_study(
        storage=backend,
        study_name=study_name,
        directions=[StudyDirection[name] for name in names],
    )
    if study_id_of(study) != _first_id(backend):
        optuna.delete_study(study_name=study_name, storage=backend)
        raise _used("it has held studies that were deleted")
    PUBLISHED.write(study)
    shows_pilots = releases_all_runs(release.design)
    if shows_pilots:
        for pilot in release.pilots:
            study.add_trial(_pilot(pilot, release.distributions))
    if release.params is not None:
        values = release.attributes.get("values") if shows_pilots else None
        values = values if release.value is None else [release.value]
        # Pilots and their values are trials here.
        omitted_keys = ("pilots", "values") if shows_pilots else ()
        study.add_trial(
            optuna.trial.create_trial(
                params=release.params,
                distributions={name: release.distributions[name] for name in release.params},
                # Optuna has no completed trial without a value. Where no score is released the
                # trial shows the hyperparameters alone.
                state=TrialState.PRUNED if values is None else TrialState.COMPLETE,
                values=values,
                user_attrs={k: v for k, v in release.attributes.items() if k not in omitted_keys},
            )
        )
    study.set_user_attr("privacy statement", release.statement())
    study.set_user_attr("privacy", release.to_json()["statement"])
    by_name.add_published_page(study, release)
    return study


def _new(storage: object) -> BaseStorage:
    """Returns a storage that nothing was ever written to, opened; refuses any other.

    What was deleted is not gone: a journal keeps every line, SQLite leaves the bytes of deleted
    rows where they were, and where it erases them the file's size and its count of changes still
    tell how many runs there were.
    """
    if not isinstance(storage, str | BaseStorage):
        raise InvalidArgumentError(
            "storage", storage, allowed="it must be an Optuna storage or its URL"
        )
    if isinstance(storage, str):
        file = _sqlite_file(storage)
        if file is not None and file.exists():
            raise _used(f"the file {file.name} exists")
    try:
        backend = get_storage(storage)
    except (SQLAlchemyError, ImportError, ValueError) as error:
        line = (str(error).splitlines() or [type(error).__name__])[0]
        raise InvalidArgumentError(
            "storage", storage, problem=f"it cannot be opened ({line})"
        ) from error
    study_names = [study.study_name for study in backend.get_all_studies()]
    if study_names:
        raise _used(f"it holds the study {study_names[0]!r}, which its readers would see too")
    plain_storage = uncached(backend)
    if isinstance(plain_storage, JournalStorage):
        if any(True for _ in journal_of(plain_storage).read_logs(0)):
            raise _used("its journal keeps entries of a study that was deleted")
    elif isinstance(plain_storage, RDBStorage):
        if not isinstance(storage, str) and _sqlite_file(plain_storage.url) is not None:
            raise _used("its file may have held a study before")
    elif not isinstance(plain_storage, InMemoryStorage):
        raise _used(f"a {type(plain_storage).__name__} may have held a study before")
    return backend


def _sqlite_file(url: str) -> Path | None:
    """Returns the file of a SQLite database; None for other databases, and in memory."""
    try:
        parsed = make_url(url)
    except ArgumentError:
        return None  # What it is then said when it is opened.
    # SQLite takes "file:" names with options of its own after the path.
    name = (parsed.database or "").removeprefix("file:").partition("?")[0]
    on_disk = parsed.get_backend_name() == "sqlite" and name not in ("", ":memory:")
    return Path(name) if on_disk else None


def _first_id(backend: BaseStorage) -> int:
    """Returns the id that a new storage gives its first study; ids of trials would tell T."""
    return 1 if isinstance(backend, CachedStorage | RDBStorage) else 0


def _used(reason: str) -> ReleaseRefusedError:
    return ReleaseRefusedError(
        f"The storage to publish to is not new: {reason}.",
        fix="Publish to a file that does not exist yet: publish(release, 'sqlite:///PATH', name).",
    )


def _pilot(pilot: JsonObject, distributions: Mapping[str, BaseDistribution]) -> FrozenTrial:
    """A pilot as a trial; values outside the released ranges are attributes."""
    params = {
        name: value
        for name, value in pilot["params"].items()
        if name in distributions
        and contains(distributions[name], distributions[name].to_internal_repr(value))
    }
    unreleased_params = {name: v for name, v in pilot["params"].items() if name not in params}
    return optuna.trial.create_trial(
        params=params,
        distributions={name: distributions[name] for name in params},
        state=TrialState[pilot["state"]],
        values=pilot["values"],
        user_attrs={"pilot of rung": pilot["rung"] + 1, **unreleased_params},
    )
