"""The private procedures by name: how their studies are checked, and what statements say of them.

A study's plan names its procedure. A sampler that selects in a new way adds a line here and a room
with two files, ``procedure.py`` and ``statement.py``.
"""

from __future__ import annotations

import importlib
from typing import Any

from optuna_dp.errors import ReleaseRefusedError
from optuna_dp.evidence.procedure import Procedure
from optuna_dp.evidence.statement import Description
from optuna_dp.protocol.plan import Design

# Loaded by name, so that a release depends on the code of its own procedure only. A vote takes
# place without a study, so it has a statement and no procedure.
VOTE = "vote"
_ROOMS: dict[str, tuple[str, str | None, str]] = {
    "budget": ("budget", "Budget", "BudgetDescription"),
    "private_selection": ("private_selection", "PrivateSelection", "SelectionDescription"),
    "propose_test": ("utilities", "ProposeTest", "UtilityDescription"),
    "noisy_max": ("utilities", "UtilityChoice", "UtilityDescription"),
    VOTE: ("voting", None, "VoteDescription"),
}


def procedure_of(design: Design) -> Procedure:
    """Returns how a study of this design is checked; refuses what no study can be."""
    room, name, _ = _ROOMS.get(design.procedure, ("", None, ""))
    if name is None:
        raise _refusal(design)
    found: Procedure = _loaded(f"{room}.procedure", name)(design)
    return found


def description_of(design: Design) -> Description:
    """Returns what statements say of results of this design; refuses an unknown procedure."""
    if design.procedure not in _ROOMS:
        raise _refusal(design)
    room, _, name = _ROOMS[design.procedure]
    found: Description = _loaded(f"{room}.statement", name)()
    return found


def releases_all_runs(design: Design) -> bool:
    """Returns whether the outputs of all runs of this design are charged for and may be shown."""
    return design.procedure != VOTE and procedure_of(design).releases_all_runs


def _loaded(module: str, name: str) -> Any:
    return getattr(importlib.import_module(f"optuna_dp.{module}"), name)


def _refusal(design: Design) -> ReleaseRefusedError:
    why, fix = (
        ("takes place without a study.", "Start a new study.")
        if design.procedure == VOTE
        else (
            "this version of optuna-dp does not know.",
            "Use the version of optuna-dp that made the study.",
        )
    )
    return ReleaseRefusedError(
        f"Its plan names the procedure {design.procedure!r}, which {why}", fix=fix
    )
