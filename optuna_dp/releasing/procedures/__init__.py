"""Private procedures, one file each: what one promises, and how its studies are judged.

A study's plan names its procedure. Adding a sampler that selects in a new way means adding a file
here and a line to the table below.
"""

from __future__ import annotations

import importlib

from optuna_dp.errors import ReleaseRefusedError
from optuna_dp.protocol.plan import Design
from optuna_dp.releasing.procedures.base import Description, Procedure

# By names, so that only the procedure in question is loaded: a release of the best of T runs
# rests on no code of the other procedures.
_HOMES = {
    "private_selection": ("private_selection", "PrivateSelection"),
    "pilots_then_selection": ("pilots_then_selection", "PilotsThenSelection"),
    "budgeted_runs": ("budgeted_runs", "BudgetedRuns"),
    "propose_test": ("utility_choice", "ProposeTest"),
    "noisy_max": ("utility_choice", "UtilityChoice"),
    "vote": ("vote", "Vote"),
}


def description_of(design: Design) -> Description:
    """Returns what is to be said of results of this design; refuses an unknown procedure."""
    try:
        module, name = _HOMES[design.procedure]
    except KeyError:
        raise ReleaseRefusedError(
            f"Its plan names the procedure {design.procedure!r}, which this version of optuna-dp "
            "does not know.",
            fix="Use the version of optuna-dp that made the study.",
        ) from None
    found: Description = getattr(importlib.import_module(f"{__name__}.{module}"), name)()
    return found


def procedure_of(design: Design) -> Procedure:
    """Returns how a study of this design is judged; refuses what no study can be."""
    found = description_of(design)
    if not isinstance(found, Procedure):
        raise ReleaseRefusedError(
            f"Its plan names the procedure {design.procedure!r}, which takes place without a "
            "study.",
            fix="Start a new study.",
        )
    return found
