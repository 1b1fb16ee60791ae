"""Privacy statements: what is said of a release, in words and as JSON.

Nothing here enters a guarantee or a choice. Whoever reads a statement relies on it all the same.
"""

from __future__ import annotations

import importlib

from optuna_dp.errors import ReleaseRefusedError
from optuna_dp.protocol.plan import Design
from optuna_dp.releasing.statements.base import Description

# By names, as the procedures themselves.
_HOMES = {
    "private_selection": ("private_selection", "PrivateSelection"),
    "pilots_then_selection": ("pilots_then_selection", "PilotsThenSelection"),
    "budgeted_runs": ("budgeted_runs", "BudgetedRuns"),
    "propose_test": ("utility_choice", "UtilityChoice"),
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
