"""A study that holds nothing but a release."""

from __future__ import annotations

from typing import TYPE_CHECKING

import optuna
from optuna.storages import BaseStorage, get_storage
from optuna.study import StudyDirection
from optuna.trial import TrialState

from optuna_dp.errors import InvalidArgumentError, ReleaseRefusedError
from optuna_dp.protocol.records import is_ours

if TYPE_CHECKING:
    from optuna.study import Study

    from optuna_dp.releasing.release import Release


def publish(release: Release, storage: str | BaseStorage, study_name: str) -> Study:
    """Implements :meth:`optuna_dp.Release.publish`."""
    if not isinstance(study_name, str) or not study_name:
        raise InvalidArgumentError("study_name", study_name, "it must be a name")
    backend = _storage(storage)
    for other in backend.get_all_studies():
        if is_ours(backend, other._study_id):
            raise ReleaseRefusedError(
                f"The storage also holds the curator's study {other.study_name!r}: whoever may "
                "read the published study could read that one too.",
                fix="Publish to a storage of its own.",
            )
    if any(other.study_name == study_name for other in backend.get_all_studies()):
        raise InvalidArgumentError(
            "study_name", study_name, "the storage has a study of that name already"
        )
    study = optuna.create_study(
        storage=backend,
        study_name=study_name,
        direction=StudyDirection[release.design.direction.upper()],
    )
    if release.params is not None:
        study.add_trial(
            optuna.trial.create_trial(
                params=release.params,
                distributions=release.distributions,
                # Optuna has no completed trial without a value. Where no score is released the
                # trial shows the hyperparameters alone.
                state=TrialState.PRUNED if release.value is None else TrialState.COMPLETE,
                value=release.value,
                user_attrs=release.attributes,
            )
        )
    study.set_user_attr("privacy statement", release.statement())
    study.set_user_attr("privacy", release.to_json()["statement"])
    # The dashboard is an edge of the package and imports this part, so it is looked up by name.
    from optuna_dp.dashboard import annotate_published  # Only draws; see test_architecture.py.

    annotate_published(study, release)
    return study


def _storage(storage: str | BaseStorage) -> BaseStorage:
    from sqlalchemy.exc import SQLAlchemyError

    if not isinstance(storage, str | BaseStorage):
        raise InvalidArgumentError("storage", storage, "it must be an Optuna storage or its URL")
    try:
        return get_storage(storage)
    except (SQLAlchemyError, ImportError, ValueError) as error:
        line = (str(error).splitlines() or [type(error).__name__])[0]
        raise InvalidArgumentError("storage", storage, f"it cannot be opened ({line})") from error
