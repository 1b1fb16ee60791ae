"""The statement of one release, as a page and as JSON."""

from __future__ import annotations

import hashlib
import json
import math
from typing import TYPE_CHECKING, Any

from optuna.distributions import distribution_to_json

from optuna_dp.accounting.event_words import in_words
from optuna_dp.evidence.markdown import statement_markdown
from optuna_dp.evidence.procedures import description_of
from optuna_dp.evidence.statement_data import statement_data

if TYPE_CHECKING:
    from optuna_dp.releasing.release import Release


def page_of(release: Release) -> str:
    """Returns the privacy statement in Markdown."""
    facts = {} if release.description is None else release.description.facts()
    facts |= description_of(release.design).facts(release.design, release.search_guarantee)
    if release.disclosed_runs is not None:
        facts["Number of runs"] = (
            f"{release.disclosed_runs} could be chosen. The number is revealed here, and the "
            "guarantee is that of the best of exactly so many. The curator vouches that a block "
            "of other runs failed for a cause that does not depend on the data"
        )
    if release.training is not None:
        facts["Final training"] = f"{in_words(release.training)}; counted in the guarantee above"
    return statement_markdown(statement_of(release), facts)


def release_to_json(release: Release) -> dict[str, Any]:
    """Returns a release as plain JSON values, its statement included."""
    return {
        "format": "optuna-dp release",
        "version": 1,
        **content_of(release),
        "statement": statement_of(release),
    }


def statement_of(release: Release) -> dict[str, Any]:
    """Returns the statement as plain JSON values."""
    described = description_of(release.design)
    released = ["the hyperparameters"]
    if described.score_is_told or release.value is not None:
        released.append("the score" if release.training is None else "the final score")
    if release.training is not None:
        released.append("the final training's output")
    released += [f"attribute {name!r}" for name in sorted(release.attributes)]
    released += ["the model artifact"] if release.artifact is not None else []
    return statement_data(
        release.guarantee,
        release.design,
        delta=release.delta,
        released=released,
        content=content_of(release),
        described=described,
        cap=None if release.description is None else release.description.cap,
    )


def content_of(release: Release) -> dict[str, Any]:
    """Returns what is released, as plain JSON values."""
    artifact = release.artifact
    described = {} if release.description is None else release.description.to_json()
    return {
        "params": _as_json(release.params),
        "value": _as_json(release.value),
        "attributes": _as_json(release.attributes),
        "artifact_sha256": None if artifact is None else hashlib.sha256(artifact).hexdigest(),
        "distributions": {
            name: json.loads(distribution_to_json(distribution))
            for name, distribution in release.distributions.items()
        },
        **({"description": described} if described else {}),
    }


def _as_json(value: Any) -> Any:
    """Returns a value as JSON has it, which knows no infinity and no NaN: they become text."""
    if isinstance(value, float) and not math.isfinite(value):
        return repr(value)
    if isinstance(value, dict):
        return {name: _as_json(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_as_json(item) for item in value]
    return value
