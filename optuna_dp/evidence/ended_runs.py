"""A study's runs, once all of them have been checked."""

from __future__ import annotations

from dataclasses import dataclass, field

from optuna.trial import FrozenTrial

from optuna_dp.runs.judgement import RunJudgement
from optuna_dp.study.plan import StudyPlan
from optuna_dp.study.snapshot import StudySnapshot


@dataclass(frozen=True)
class EndedRun:
    """One run of a study that has ended.

    Attributes:
        trial: Its trial.
        tie_break: Drawn when it began; decides among equal scores.
        judgement: What is known of it; None if it shows nothing, or its plan does not say what it
            might do.
    """

    trial: FrozenTrial
    tie_break: int = field(repr=False)
    judgement: RunJudgement | None = field(default=None, repr=False)


@dataclass(frozen=True)
class Evidence:
    """A study that was read and checked. For the curator only.

    It holds no study, so what is made of it is a function of it.

    Attributes:
        plan: The plan, with as many slots as the study turned out to have.
        runs: All runs, by slot.
        snapshot: The study as it was read, for what a procedure keeps beside its runs.
    """

    plan: StudyPlan
    runs: tuple[EndedRun, ...] = field(repr=False)
    snapshot: StudySnapshot
