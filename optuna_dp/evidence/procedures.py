"""The private procedures by name: how their studies are checked, and what statements say of them.

A study's plan names its procedure. The core has two. Each part adds its own in its ``part.py``
(:mod:`optuna_dp.parts`), and brings two files, ``procedure.py`` and ``statement.py``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from optuna_dp import parts
from optuna_dp.errors import ReleaseRefusedError
from optuna_dp.evidence.procedure import Procedure
from optuna_dp.evidence.statement import Description
from optuna_dp.parts import ProcedureEntry
from optuna_dp.protocol.plan import Design

if TYPE_CHECKING:
    from optuna_dp.accounting.guarantee import Guarantee

# Entry points, so that a release depends on the code of its own procedure only.
_CORE = {
    "budget": ProcedureEntry(
        procedure="optuna_dp.budget.procedure:Budget",
        description="optuna_dp.budget.statement:BudgetDescription",
    ),
    "private_selection": ProcedureEntry(
        procedure="optuna_dp.private_selection.procedure:PrivateSelection",
        description="optuna_dp.private_selection.statement:SelectionDescription",
    ),
}


def procedure_of(design: Design) -> Procedure:
    """Returns how a study of this design is checked; refuses what no study can be."""
    entry = _entry(design)
    if entry.procedure is None:
        raise _refusal(design, "takes place without a study.", "Start a new study.")
    procedure: Procedure = parts.load(entry.procedure)(design)
    return procedure


def description_of(design: Design) -> Description:
    """Returns what statements say of results of this design; refuses an unknown procedure."""
    description: Description = parts.load(_entry(design).description)()
    return description


def guarantee_without_study(design: Design) -> Guarantee | None:
    """Returns the guarantee of a design whose procedure takes no study; None for the others."""
    entry = _entry(design)
    if entry.guarantee is None:
        return None
    guarantee: Guarantee = parts.load(entry.guarantee)(design)
    return guarantee


def releases_all_runs(design: Design) -> bool:
    """Returns whether the outputs of all runs of this design are charged for and may be shown."""
    return _entry(design).procedure is not None and procedure_of(design).releases_all_runs


def _entry(design: Design) -> ProcedureEntry:
    procedures = {**parts.table("procedures"), **_CORE}
    entry: ProcedureEntry | None = procedures.get(design.procedure)
    if entry is None:
        raise _refusal(
            design,
            "this version of optuna-dp does not know.",
            "Use the version of optuna-dp that made the study.",
        )
    return entry


def _refusal(design: Design, reason: str, fix: str) -> ReleaseRefusedError:
    return ReleaseRefusedError(
        f"Its plan names the procedure {design.procedure!r}, which {reason}", fix=fix
    )
