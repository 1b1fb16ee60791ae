"""A study's runs, once all of them have been checked."""

from __future__ import annotations

from dataclasses import dataclass, field

from optuna.trial import FrozenTrial

from optuna_dp.protocol.plan import StudyPlan
from optuna_dp.protocol.snapshot import StudySnapshot


@dataclass(frozen=True)
class Run:
    """One run of a study that has ended, with its tie-break."""

    trial: FrozenTrial
    tie_break: int = field(repr=False)


@dataclass(frozen=True)
class Evidence:
    """A study whose every run can be vouched for. For the curator only.

    Attributes:
        runs: All runs, by slot.
        snapshot: The study as it was read, for what a procedure keeps beside its runs.
    """

    plan: StudyPlan
    runs: tuple[Run, ...] = field(repr=False)
    snapshot: StudySnapshot
