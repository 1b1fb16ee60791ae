"""Private procedures, one file each: how their studies are judged.

A study's plan names its procedure. Adding a sampler that selects in a new way means adding a file
here and a line to the table below, and another in :mod:`optuna_dp.releasing.statements`.
"""

from __future__ import annotations

import importlib

from optuna_dp.errors import ReleaseRefusedError
from optuna_dp.protocol.plan import Design
from optuna_dp.releasing.procedures.base import Procedure

# By names, so that only the procedure in question is loaded: a release of the best of T runs
# rests on no code of the other procedures.
_HOMES = {
    "private_selection": ("private_selection", "PrivateSelection"),
    "pilots_then_selection": ("pilots_then_selection", "PilotsThenSelection"),
    "budgeted_runs": ("budgeted_runs", "BudgetedRuns"),
    "propose_test": ("utility_choice", "ProposeTest"),
    "noisy_max": ("utility_choice", "UtilityChoice"),
}
# What takes place without a study.
VOTE = "vote"


def procedure_of(design: Design) -> Procedure:
    """Returns how a study of this design is judged; refuses what no study can be."""
    if design.procedure not in _HOMES:
        why, fix = (
            ("takes place without a study.", "Start a new study.")
            if design.procedure == VOTE
            else (
                "this version of optuna-dp does not know.",
                "Use the version of optuna-dp that made the study.",
            )
        )
        raise ReleaseRefusedError(
            f"Its plan names the procedure {design.procedure!r}, which {why}", fix=fix
        )
    module, name = _HOMES[design.procedure]
    found: Procedure = getattr(importlib.import_module(f"{__name__}.{module}"), name)()
    return found
