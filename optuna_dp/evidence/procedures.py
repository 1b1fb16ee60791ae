"""The private procedures by name: how their studies are checked, and what statements say of them.

A study's plan names its procedure by a word of this table, which is closed. A new procedure is a
row of it, and brings two files, ``procedure.py`` and ``statement.py``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from optuna_dp.core import by_name
from optuna_dp.errors import ReleaseRefusedError
from optuna_dp.evidence.procedure import Procedure
from optuna_dp.evidence.statement import Description
from optuna_dp.study.plan import Design

if TYPE_CHECKING:
    from optuna_dp.accounting.guarantee import Guarantee


class _Row(NamedTuple):
    """A private procedure: how its studies are judged, and what statements say of them.

    Attributes:
        description: The :class:`~optuna_dp.evidence.statement.Description`.
        procedure: The :class:`~optuna_dp.evidence.procedure.Procedure`; None if the procedure
            takes place without a study.
        guarantee: For a procedure without a study: a function of its design that returns the
            guarantee.
    """

    description: by_name.Target
    procedure: by_name.Target | None = None
    guarantee: by_name.Target | None = None


# Loaded when they are used, so that a release depends on the code of its own procedure only.
_PROCEDURES = {
    "budget": _Row(
        procedure="optuna_dp.samplers.budget.procedure:Budget",
        description="optuna_dp.samplers.budget.statement:BudgetDescription",
    ),
    "noisy_max": _Row(
        procedure="optuna_dp.samplers.choice.procedure:UtilityChoice",
        description="optuna_dp.samplers.choice.statement:UtilityDescription",
    ),
    "private_selection": _Row(
        procedure="optuna_dp.samplers.selection.procedure:PrivateSelection",
        description="optuna_dp.samplers.selection.statement:SelectionDescription",
    ),
    "propose_test": _Row(
        procedure="optuna_dp.samplers.choice.procedure:UtilityChoice",
        description="optuna_dp.samplers.choice.statement:UtilityDescription",
    ),
    "vote": _Row(
        description="optuna_dp.voting.statement:VoteDescription",
        guarantee="optuna_dp.voting.statement:guarantee_of_design",
    ),
}


def procedure_of(design: Design) -> Procedure:
    """Returns how a study of this design is checked; refuses what no study can be."""
    row = _row(design)
    if row.procedure is None:
        raise _refusal(design, "takes place without a study.", "Start a new study.")
    procedure: Procedure = by_name.load(row.procedure)(design)
    return procedure


def description_of(design: Design) -> Description:
    """Returns what statements say of results of this design; refuses an unknown procedure."""
    description: Description = by_name.load(_row(design).description)()
    return description


def guarantee_without_study(design: Design) -> Guarantee | None:
    """Returns the guarantee of a design whose procedure takes no study; None for the others."""
    row = _row(design)
    if row.guarantee is None:
        return None
    guarantee: Guarantee = by_name.load(row.guarantee)(design)
    return guarantee


def releases_all_runs(design: Design) -> bool:
    """Returns whether the outputs of all runs of this design are charged for and may be shown."""
    return _row(design).procedure is not None and procedure_of(design).releases_all_runs


def _row(design: Design) -> _Row:
    row = _PROCEDURES.get(design.procedure)
    if row is None:
        raise _refusal(
            design,
            "this version of optuna-dp does not know.",
            "Use the version of optuna-dp that made the study.",
        )
    return row


def _refusal(design: Design, reason: str, fix: str) -> ReleaseRefusedError:
    return ReleaseRefusedError(
        f"Its plan names the procedure {design.procedure!r}, which {reason}", fix=fix
    )
