"""Reads a study: its plan and procedure, and its runs as evidence for a release.

Nothing is written here: a refusal leaves the study as it was. What waiting cannot mend is refused
before it is said that runs are still open.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from optuna.study import Study
from optuna.trial import TrialState

from optuna_dp.errors import PlanError, ReleaseRefusedError, UnfinishedStudyError
from optuna_dp.evidence.procedure import Procedure
from optuna_dp.evidence.procedures import procedure_of
from optuna_dp.evidence.runs import Evidence, Run
from optuna_dp.evidence.slot_records import GO_ON, check_direction, slot_record
from optuna_dp.optuna_internals import storage_of, study_id_of
from optuna_dp.protocol.plan import StudyPlan
from optuna_dp.protocol.records import checked_study, read_plan, trials_of, vouched_unstarted


@dataclass(frozen=True)
class OpenedStudy:
    """A study's plan and how it is checked.

    Attributes:
        plan: The plan, with as many slots as the study turned out to have.
        procedure: How the study is checked; it has the settings.
    """

    plan: StudyPlan
    procedure: Procedure


def open_study(study: Study) -> OpenedStudy | None:
    """Returns the plan and the procedure of a study; None if it has no plan yet.

    Raises:
        PlanError: If the plan's record is damaged.
        ReleaseRefusedError: If this version does not know the procedure.
    """
    plan = read_plan(storage_of(study), study_id_of(study))
    if plan is None:
        return None
    procedure = procedure_of(plan.design)
    return OpenedStudy(replace(plan, slots=procedure.slots(study, plan)), procedure)


def read_evidence(study: Study) -> Evidence:
    """Returns the study's runs, if all of them can be vouched for.

    Raises:
        ReleaseRefusedError: If the study's runs are not what its plan promises.
        UnfinishedStudyError: If runs are still open or to come.
    """
    opened_study = _opened(checked_study(study))
    plan, procedure = opened_study.plan, opened_study.procedure
    procedure.check_plan(study)
    check_direction(study, plan)
    trials = trials_of(study)
    slots = procedure.runs_among(trials, plan)
    procedure.check_origin(slots)
    vouched_trials = vouched_unstarted(storage_of(study), study_id_of(study), plan.nonce)
    runs = []
    for trial in slots:
        record = slot_record(trial, plan, vouched_trials)
        procedure.check_run(trial, record)
        # A slot without a record failed, so it cannot win, whatever its tie-break.
        runs.append(Run(trial, 0 if record is None else record.tie_break))
    procedure.check_together(slots)
    reason = procedure.unfinished(trials, plan)
    if reason:
        raise UnfinishedStudyError(reason, fix=GO_ON)
    return Evidence(plan, tuple(runs), study)


def _opened(study: Study) -> OpenedStudy:
    try:
        opened_study = open_study(study)
    except PlanError as error:
        raise ReleaseRefusedError(str(error), trial_number=0) from error
    if opened_study is not None:
        return opened_study
    if len(study.directions) > 1:
        raise ReleaseRefusedError(
            "It has several objectives and no budget plan. optuna-dp selects by one score.",
            fix="Start a new study with BudgetSampler(plan_budget(...)).",
        )
    trials = trials_of(study)
    if not trials:
        raise UnfinishedStudyError("It has no runs yet.", fix="Run study.optimize first.")
    if all(trial.state == TrialState.WAITING for trial in trials):
        raise UnfinishedStudyError(
            "It has no runs yet, only enqueued trials.",
            fix="Run study.optimize first, with the sampler of the study.",
        )
    raise ReleaseRefusedError(
        "It has no plan: its first trial was not made by a sampler of optuna-dp, or its worker "
        "died before it wrote one.",
        fix="Start a new study with sampler=BudgetSampler(plan_budget(...)). Give the same "
        "sampler to every optuna.load_study.",
    )
