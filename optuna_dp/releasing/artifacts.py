"""The artifact of the winning run, which is released with it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from optuna.artifacts import get_all_artifact_meta
from optuna.study import Study
from optuna.trial import FrozenTrial

from optuna_dp.errors import ReleaseRefusedError

if TYPE_CHECKING:
    from optuna.artifacts._protocol import ArtifactStore


def artifact_of(study: Study, winner: FrozenTrial, store: ArtifactStore) -> bytes | None:
    """Returns the content of the winner's artifact, None if it has none; refuses several."""
    found = get_all_artifact_meta(winner, storage=study._storage)
    if len(found) > 1:
        raise ReleaseRefusedError(
            f"The winning run has {len(found)} artifacts.",
            fix="Upload one artifact per run, for example a zip file.",
        )
    if not found:
        return None
    # Names and ids stay behind: they may tell the trial.
    with store.open_reader(found[0].artifact_id) as reader:
        return reader.read()
