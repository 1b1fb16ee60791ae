"""Which studies have nothing secret."""

from __future__ import annotations

from optuna_dp.protocol.plan import Design
from optuna_dp.releasing.procedures import VOTE, procedure_of


def is_in_the_open(design: Design) -> bool:
    """Whether the outputs of all runs of this design are paid for, and may be shown."""
    return design.procedure != VOTE and procedure_of(design).in_the_open
