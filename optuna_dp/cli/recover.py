"""``optuna-dp recover``."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from optuna_dp.cli.common import AsJson, clear_errors, option
from optuna_dp.cli.release import Storage, StudyName
from optuna_dp.cli.storages import load_study


def recover(
    storage: Storage,
    study: StudyName,
    fail: Annotated[
        list[int] | None,
        option("NUMBER", "Number of a trial whose worker has died. Give it again for more."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """List the open trials of a study, and tell those of dead workers to have failed.

    Without --fail nothing is changed. A run told to have failed counts as a run; it is not
    repeated. Choose by whether the worker is alive, not by how long the run takes.

    Example: optuna-dp recover sqlite:///curator.db digits --fail 12
    """
    with clear_errors(recover):
        from optuna_dp.protocol.recovery import recover as recover_study  # start-up time

        found = recover_study(load_study(storage, study), fail=fail or ())
    if as_json:
        rows = [
            {
                "number": trial.number,
                "started": None if trial.started is None else trial.started.isoformat(),
                "did_nothing": trial.did_nothing,
                "leads": trial.leads,
            }
            for trial in found
        ]
        typer.echo(json.dumps({"told_to_have_failed": sorted(fail or ()), "open": rows}, indent=2))
        return
    if fail:
        typer.echo(f"Told to have failed: {', '.join(map(str, sorted(set(fail))))}.")
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
