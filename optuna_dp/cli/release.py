"""``optuna-dp release``."""

from __future__ import annotations

import json
from typing import Annotated, Any, cast

import typer

from optuna_dp.cli.common import AsJson, clear_errors, option
from optuna_dp.cli.storages import Storage, StudyName, load_study
from optuna_dp.errors import InvalidArgumentError


def release(
    storage: Storage,
    study: StudyName,
    as_json: AsJson = False,
    publish_to: Annotated[
        str | None,
        option(
            "URL", "Also publish to this new storage (sqlite:///NEW_FILE): a study safe to show."
        ),
    ] = None,
    publish_as: Annotated[
        str | None, option("NAME", "Name of the published study (default: release).")
    ] = None,
    failures: Annotated[
        str | None, option("chance|lost", "Why failed runs stand together, if release asks.")
    ] = None,
) -> None:
    """Release the result of a finished study.

    Prints the chosen hyperparameters, the score and the privacy statement, and nothing else. The
    cost of one run must have been recorded by PrivacyCallback.

    Example: optuna-dp release sqlite:///curator.db digits --json > release.json
    """
    with clear_errors(release, storage="--publish-to", study_name="--publish-as"):
        # Lazy: start-up time.
        from optuna_dp.releasing.make_release import release as release_study
        from optuna_dp.releasing.publishing import publish

        if publish_as is not None and publish_to is None:
            raise InvalidArgumentError(
                "--publish-as", publish_as, "it needs --publish-to", "Name the storage too."
            )
        found = release_study(load_study(storage, study), failures=cast(Any, failures))
        if publish_to is not None:
            # Not by the curator's own name for it, which may tell what was tried.
            publish(found, publish_to, publish_as or "release")
    if as_json:
        typer.echo(json.dumps(found.to_json(), indent=2, sort_keys=True))
        return
    if found.params is None:
        typer.echo("No run succeeded: there is nothing to choose. That is an outcome like others.")
    score = {} if found.value is None else {"score": found.value}
    for name, value in {**score, **(found.params or {}), **found.attributes}.items():
        typer.echo(f"{name}: {value!r}")
    typer.echo(f"\n{found.statement()}")
