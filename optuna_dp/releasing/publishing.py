"""A study that holds nothing but a release."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import optuna
from optuna.distributions import BaseDistribution
from optuna.storages import BaseStorage, JournalStorage, get_storage
from optuna.study import Study, StudyDirection
from optuna.trial import FrozenTrial, TrialState
from sqlalchemy.exc import SQLAlchemyError

from optuna_dp.errors import InvalidArgumentError, ReleaseRefusedError
from optuna_dp.evidence.procedures import releases_all_runs
from optuna_dp.hooks import call_optional
from optuna_dp.protocol.records import PUBLISHED_KEY, SLOT_KEY
from optuna_dp.releasing.release import Release


def publish(release: Release, storage: str | BaseStorage, study_name: str) -> Study:
    """Writes a study that holds nothing but a release and is safe to show.

    With the extra ``dashboard`` its page in Optuna Dashboard has the statement and public plots.

    Args:
        release: What :func:`optuna_dp.release` returned.
        storage: Where to; a storage that holds nothing but published releases, because who may
            read the published study can read everything beside it.
        study_name: Name of the new study.

    Returns:
        The new study.

    Raises:
        InvalidArgumentError: If an argument is not allowed, or the name is taken.
        ReleaseRefusedError: If the storage holds, or has held, anything else.

    Example:
        >>> import optuna, optuna_dp as odp
        >>> study = optuna.create_study(sampler=odp.RandTuneSampler())
        >>> study.optimize(lambda trial: trial.suggest_float("x", 0, 1))
        >>> release = odp.release(study, odp.gaussian(noise_multiplier=4))
        >>> public = odp.publish(release, optuna.storages.InMemoryStorage(), "result")
        >>> len(public.trials)
        1
    """
    if not isinstance(study_name, str) or not study_name:
        raise InvalidArgumentError("study_name", study_name, "it must be a name")
    backend = _storage(storage)
    for other in backend.get_all_studies():
        if PUBLISHED_KEY not in backend.get_study_system_attrs(other._study_id):
            raise ReleaseRefusedError(
                f"The storage also holds the study {other.study_name!r}, a curator's study or one "
                "that was not published: whoever may read the published study could read that "
                "one too.",
                fix="Publish to a storage of its own.",
            )
    if _has_leftovers(backend):
        raise ReleaseRefusedError(
            "The storage's file still holds records of a curator's study that was deleted: "
            "deleting does not erase them.",
            fix="Publish to a new file.",
        )
    if any(other.study_name == study_name for other in backend.get_all_studies()):
        raise InvalidArgumentError(
            "study_name", study_name, "the storage has a study of that name already"
        )
    names = release.design.direction.upper().split(",")
    study = optuna.create_study(
        storage=backend,
        study_name=study_name,
        directions=[StudyDirection[name] for name in names],
    )
    backend.set_study_system_attr(study._study_id, PUBLISHED_KEY, True)
    opened = releases_all_runs(release.design)
    if opened:
        for pilot in release.pilots:
            study.add_trial(_pilot(pilot, release.distributions))
    if release.params is not None:
        values = release.attributes.get("values") if opened else None
        values = values if release.value is None else [release.value]
        besides = ("pilots", "values") if opened else ()  # These are trials and values here.
        study.add_trial(
            optuna.trial.create_trial(
                params=release.params,
                distributions={name: release.distributions[name] for name in release.params},
                # Optuna has no completed trial without a value. Where no score is released the
                # trial shows the hyperparameters alone.
                state=TrialState.PRUNED if values is None else TrialState.COMPLETE,
                values=values,
                user_attrs={k: v for k, v in release.attributes.items() if k not in besides},
            )
        )
    study.set_user_attr("privacy statement", release.statement())
    study.set_user_attr("privacy", release.to_json()["statement"])
    call_optional("page of a published study", study, release)
    return study


def _has_leftovers(storage: BaseStorage) -> bool:
    """Whether the file behind a storage holds records of runs, whatever its studies are now.

    A journal keeps every line, and SQLite leaves the bytes of deleted rows where they were. What
    a database server keeps of deleted rows cannot be seen from here.
    """
    mark = SLOT_KEY.encode()
    backend: Any = getattr(storage, "_backend", storage)
    if isinstance(storage, JournalStorage):
        return any(mark in repr(entry).encode() for entry in backend.read_logs(0))
    engine = getattr(backend, "engine", None)
    if engine is None or engine.url.get_backend_name() != "sqlite" or not engine.url.database:
        return False
    files = [Path(engine.url.database + end) for end in ("", "-wal", "-journal")]
    return any(mark in file.read_bytes() for file in files if file.is_file())


def _pilot(pilot: Mapping[str, Any], distributions: Mapping[str, BaseDistribution]) -> FrozenTrial:
    """A pilot as a trial; values outside the released ranges are attributes."""
    inside = {
        name: value
        for name, value in pilot["params"].items()
        if name in distributions
        and distributions[name]._contains(distributions[name].to_internal_repr(value))
    }
    others = {name: v for name, v in pilot["params"].items() if name not in inside}
    return optuna.trial.create_trial(
        params=inside,
        distributions={name: distributions[name] for name in inside},
        state=TrialState[pilot["state"]],
        values=pilot["values"],
        user_attrs={"pilot of rung": pilot["rung"] + 1, **others},
    )


def _storage(storage: str | BaseStorage) -> BaseStorage:
    if not isinstance(storage, str | BaseStorage):
        raise InvalidArgumentError("storage", storage, "it must be an Optuna storage or its URL")
    try:
        return get_storage(storage)
    except (SQLAlchemyError, ImportError, ValueError) as error:
        line = (str(error).splitlines() or [type(error).__name__])[0]
        raise InvalidArgumentError("storage", storage, f"it cannot be opened ({line})") from error
