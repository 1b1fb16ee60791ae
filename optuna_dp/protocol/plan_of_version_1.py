"""Plans of optuna-dp 0.1.0, as this version writes them."""

from __future__ import annotations

from typing import Any


def with_what_it_left_out(data: dict[str, Any], version: int) -> dict[str, Any]:
    """Returns the record of a plan of version 1 as one of ``version``; others as they are.

    It is without ``selection_from``: there it follows from the procedure.
    """
    if set(data) != {"version", "design", "slots", "nonce"} or type(data["version"]) is not int:
        return data
    design = data["design"] if isinstance(data["design"], dict) else {}
    settings = design.get("settings")
    pilots = settings.get("pilots") if isinstance(settings, dict) else None
    firsts = {"private_selection": 0, "pilots_then_selection": pilots}
    procedure = design.get("procedure")
    first = firsts.get(procedure) if isinstance(procedure, str) else None
    return {**data, "version": version, "selection_from": first}
