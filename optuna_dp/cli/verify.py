"""``optuna-dp verify``."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from optuna_dp.cli.common import AsJson, clear_errors, option


def verify(
    file: Annotated[
        str, typer.Argument(metavar="FILE", help="The JSON of a release or of its statement.")
    ],
    artifact: Annotated[
        str | None, option("FILE", "The file said to be the released model.")
    ] = None,
    time_limit: Annotated[float, option("SECONDS", "How long the computing may take.")] = 300.0,
    as_json: AsJson = False,
) -> None:
    """Check a release: compute its guarantee and its digest again from its JSON.

    Needs neither the study nor the data. Says what agrees, what could not be checked, and what
    remains to be believed. Exit code 0 if everything agrees, 1 if not, 2 if FILE is no release
    or cannot be computed in time.

    Example: optuna-dp verify release.json
    """
    from optuna_dp.releasing.verification import verify as check  # start-up time

    with clear_errors(verify, path_or_json="FILE", time_limit="--time-limit"):
        found = check(file, artifact=artifact, time_limit=time_limit)
    typer.echo(json.dumps(found.to_json(), indent=2) if as_json else str(found))
    raise typer.Exit(code=0 if found.ok else 1)
