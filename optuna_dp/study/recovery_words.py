"""Words on runs whose workers have died: what to call, with the study's own storage and name."""

from __future__ import annotations

import shlex


def listing_call(place: str | None, study_name: str) -> str:
    """Returns what lists the open trials of a study: a command, or Python where none can read it.

    A password in the storage's URL is shown as ``***``.

    Args:
        place: How a command names the storage; None if no command can open it.
        study_name: The study's name.
    """
    if place is None:
        return "optuna_dp.recover(study)"
    return shlex.join(["optuna-dp", "recover", hidden_password(place), study_name])


def hidden_password(storage: str) -> str:
    """Returns the URL or the path of a storage as it may be printed: without a password."""
    # Lazy: start-up time.
    from sqlalchemy.engine import make_url
    from sqlalchemy.exc import ArgumentError

    try:
        return make_url(storage).render_as_string(hide_password=True)
    except (ArgumentError, ValueError):
        return storage


def failing_call(place: str | None, study_name: str, number: int | None = None) -> str:
    """Returns what marks a trial of a study as failed.

    Args:
        place: How a command names the storage; None if no command can open it.
        study_name: The study's name.
        number: The trial's number; None where it is secret, or there are several.
    """
    shown_number = "NUMBER" if number is None else str(number)
    if place is None:
        return f"optuna_dp.recover(study, fail=[{shown_number}])"
    return f"{listing_call(place, study_name)} --fail {shown_number}"
