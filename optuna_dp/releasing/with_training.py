"""A final training on the same data, composed on top of a release."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from dp_accounting import dp_event

from optuna_dp.accounting.events import compose

if TYPE_CHECKING:
    from optuna_dp.releasing.release import Release


def with_training(
    release: Release,
    event: dp_event.DpEvent,
    *,
    value: float | None,
    artifact: bytes | None,
) -> Release:
    """See :meth:`Release.with_training`."""
    found = release.search_guarantee
    training = event if release.training is None else compose(release.training, event)
    return replace(
        release,
        # In this order: the choice was made before the training, and cannot depend on it.
        guarantee=replace(found, event=compose(found.event, training)),
        training=training,
        value=release.value if value is None else value,
        artifact=release.artifact if artifact is None else artifact,
    )
