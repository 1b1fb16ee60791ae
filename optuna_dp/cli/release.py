"""``optuna-dp release`` and ``optuna-dp statement``."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from optuna_dp.cli.common import AsJson, clear_errors, option
from optuna_dp.cli.storages import load_study
from optuna_dp.errors import InvalidArgumentError

if TYPE_CHECKING:
    from optuna_dp.releasing.release import Release

Storage = Annotated[
    str,
    typer.Argument(
        metavar="STORAGE", help="Optuna storage URL of the curator's study, or a journal file."
    ),
]
StudyName = Annotated[str, typer.Argument(metavar="STUDY", help="Name of the study.")]


def release(
    storage: Storage,
    study: StudyName,
    as_json: AsJson = False,
    publish_to: Annotated[
        str | None, option("URL", "Also publish to this storage URL: a study safe to show.")
    ] = None,
    publish_as: Annotated[
        str | None, option("NAME", "Name of the published study (default: release).")
    ] = None,
    failures: Annotated[
        str | None, option("chance|lost", "Why failed runs stand together, if release asks.")
    ] = None,
) -> None:
    """Release the best run of a finished study.

    Prints the chosen hyperparameters, the score and the privacy statement, and nothing else. The
    cost of one run must have been recorded by PrivacyCallback.

    Example: optuna-dp release sqlite:///curator.db digits --json > release.json
    """
    with clear_errors(release, storage="--publish-to", study_name="--publish-as"):
        if publish_as is not None and publish_to is None:
            raise InvalidArgumentError(
                "--publish-as", publish_as, "it needs --publish-to", "Name the storage too."
            )
        found = _release(storage, study, failures)
        if publish_to is not None:
            from optuna_dp.releasing.publishing import publish  # start-up time

            # Not by the curator's own name for it, which may tell what was tried.
            publish(found, publish_to, publish_as or "release")
    if as_json:
        typer.echo(json.dumps(found.to_json(), indent=2, sort_keys=True))
        return
    if found.params is None:
        typer.echo("No run succeeded: there is nothing to choose. That is an outcome like others.")
    else:
        if found.value is not None:
            typer.echo(f"score: {found.value:.6g}")
        for name, value in found.params.items():
            typer.echo(f"{name}: {value!r}")
    for name, value in found.attributes.items():
        typer.echo(f"{name}: {value!r}")
    typer.echo("")
    typer.echo(found.statement())


def statement(storage: Storage, study: StudyName, as_json: AsJson = False) -> None:
    """Print the privacy statement of a finished study: the release, for whoever signs it off.

    Example: optuna-dp statement sqlite:///curator.db digits > statement.md
    """
    with clear_errors(statement):
        found = _release(storage, study)
    if as_json:
        typer.echo(json.dumps(found.to_json()["statement"], indent=2, sort_keys=True))
    else:
        typer.echo(found.statement())


def _release(storage: str, study: str, failures: str | None = None) -> Release:
    from optuna_dp.releasing.make_release import release as release_study  # start-up time

    return release_study(load_study(storage, study), failures=cast(Any, failures))
