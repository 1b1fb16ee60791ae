"""``optuna-dp recover``."""

from __future__ import annotations

import dataclasses
import json
from typing import Annotated

import typer

from optuna_dp.cli.common import AsJson, clear_errors, option
from optuna_dp.cli.storages import Storage, StudyName, load_study


def recover(
    storage: Storage,
    study: StudyName,
    fail: Annotated[
        list[int] | None,
        option("NUMBER", "Number of a trial whose worker has died. Give it again for more."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """List the open trials of a study, and mark those of dead workers as failed.

    Without --fail nothing is changed. A run that was marked as failed counts as a run; it is not
    repeated. Choose by whether the worker is alive, not by how long the run takes.

    Example: optuna-dp recover sqlite:///curator.db digits --fail 12
    """
    with clear_errors(recover):
        from optuna_dp.protocol.recovery import recover as recover_study  # Lazy: start-up time.

        failed = sorted(set(fail or ()))
        found = recover_study(load_study(storage, study), fail=failed)
    if as_json:
        record = {"marked_as_failed": failed, "open": [dataclasses.asdict(t) for t in found]}
        typer.echo(json.dumps(record, indent=2, default=str))
        return
    if failed:
        typer.echo(f"Marked as failed: {', '.join(map(str, failed))}.")
    for trial in found:
        since = "" if trial.started is None else f" since {trial.started:%Y-%m-%d %H:%M:%S}"
        what = "others wait for its plan" if trial.leads else "nothing done yet"
        note = f" ({what})" if trial.leads or trial.did_nothing else ""
        typer.echo(f"trial {trial.number}: open{since}{note}")
    typer.echo(
        "If a worker has died, name its trial with --fail; restart workers as you started them."
        if found
        else "No trial is open."
    )
