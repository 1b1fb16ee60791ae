"""Reads a study: its plan and procedure, and its runs as evidence for a release.

Nothing is written here: a refusal leaves the study as it was. What waiting cannot mend is refused
before it is said that runs are still open.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from optuna.study import Study
from optuna.trial import TrialState

from optuna_dp.core.value_types import JsonObject
from optuna_dp.errors import PlanError, ReleaseRefusedError, UnfinishedStudyError
from optuna_dp.evidence.ended_runs import EndedRun, Evidence
from optuna_dp.evidence.procedure import Procedure
from optuna_dp.evidence.procedures import procedure_of
from optuna_dp.evidence.slot_entries import check_direction, slot_entry, way_on
from optuna_dp.evidence.stated_run import ONE_COST, run_costs
from optuna_dp.study.plan import StudyPlan
from optuna_dp.study.snapshot import StudySnapshot
from optuna_dp.study.trials import INSTEAD_OF_CONSTRAINTS, checked_study, is_constrained


@dataclass(frozen=True)
class OpenedStudy:
    """A study's plan and how it is checked.

    Attributes:
        plan: The plan, with as many slots as the study turned out to have.
        procedure: How the study is checked; it has the settings.
        snapshot: What the storage held when the plan was read.
    """

    plan: StudyPlan
    procedure: Procedure
    snapshot: StudySnapshot


def open_study(study: Study) -> OpenedStudy | None:
    """Reads a study, and returns its plan and procedure; None if it has no plan yet.

    Raises:
        PlanError: If the plan's entry is damaged.
        ReleaseRefusedError: If this version does not know the procedure.
    """
    return opened_from(StudySnapshot.of(study))


def opened_from(snapshot: StudySnapshot) -> OpenedStudy | None:
    """Returns the plan and the procedure of a study that was read; None if it has no plan yet.

    Raises:
        PlanError: If the plan's entry is damaged.
        ReleaseRefusedError: If this version does not know the procedure.
    """
    plan = snapshot.plan
    if plan is None:
        return None
    procedure = procedure_of(plan.design)
    slots = procedure.slots(snapshot.trials, plan)
    return OpenedStudy(replace(plan, slots=slots), procedure, snapshot)


def read_evidence(study: Study) -> Evidence:
    """Reads a study, and returns its runs, if all of them can be vouched for.

    Raises:
        ReleaseRefusedError: If the study's runs are not what its plan says.
        UnfinishedStudyError: If runs are still open or to come.
    """
    return evidence_from(StudySnapshot.of(checked_study(study)))


def evidence_from(snapshot: StudySnapshot) -> Evidence:
    """Returns the runs of a study that was read, if all of them can be vouched for.

    Raises:
        ReleaseRefusedError: If the study's runs are not what its plan says.
        UnfinishedStudyError: If runs are still open or to come.
    """
    opened_study = _opened(snapshot)
    plan, procedure = opened_study.plan, opened_study.procedure
    procedure.check_plan(snapshot)
    check_direction(snapshot, plan)
    slots = procedure.runs_among(snapshot.trials, plan)
    procedure.check_origin(slots)
    vouched_trials = snapshot.confirmed
    tie_breaks = []
    for trial in slots:
        if trial.state == TrialState.COMPLETE and is_constrained(trial):
            raise ReleaseRefusedError(
                "it has a constraint, which no choice here looks at.",
                trial_number=trial.number,
                fix=f"Start a new study. {INSTEAD_OF_CONSTRAINTS}",
            )
        entry = slot_entry(trial, plan, vouched_trials)
        procedure.check_run(trial, entry)
        # A slot without an entry failed, so it cannot win, whatever its tie-break.
        tie_breaks.append(0 if entry is None else entry.tie_break)
    procedure.check_together(slots)
    reason = procedure.unfinished(snapshot.trials, plan)
    if reason:
        raise UnfinishedStudyError(reason, fix=way_on(snapshot))
    runs = tuple(
        EndedRun(trial, tie_break, procedure.judgement(trial))
        for trial, tie_break in zip(slots, tie_breaks, strict=True)
    )
    return Evidence(plan, runs, snapshot)


def with_cost(procedure: Procedure, attributes: JsonObject) -> Procedure:
    """Returns a study's procedure with what a run costs, whoever said it.

    Args:
        procedure: The procedure of the study's plan.
        attributes: The system attributes of the study, in which a callback may have said it.

    Raises:
        ReleaseRefusedError: If nobody said it, workers stored different costs, or an entry is
            corrupted.
    """
    if procedure.knows_cost:
        return procedure
    entries = run_costs(attributes)
    if not entries:
        raise ReleaseRefusedError(
            "Nobody said what one run costs.",
            fix=f"Give the sampler run=, as in {procedure.design.sampler}("
            "run=optuna_dp.RunPlan(...)), in a new study. If the runs of this one are made, say "
            "it now: study.optimize(objective, callbacks=[optuna_dp.PrivacyCallback(event)]). "
            "It makes no further run.",
        )
    if len(entries) > 1:
        # Lazy: only the words of a refusal need it.
        from optuna_dp.accounting.event_words import differences_of_runs

        raise ReleaseRefusedError(
            "Its workers stored different costs of a run: "
            f"{differences_of_runs(entries[0], entries[1])}.",
            fix=f"Start a new study. {ONE_COST}",
        )
    return procedure.told(entries[0])


def _opened(snapshot: StudySnapshot) -> OpenedStudy:
    try:
        opened_study = opened_from(snapshot)
    except PlanError as error:
        raise ReleaseRefusedError(str(error), trial_number=0) from error
    if opened_study is not None:
        return opened_study
    if len(snapshot.directions) > 1:
        raise ReleaseRefusedError(
            "It has several objectives and no budget plan. optuna-dp selects by one score.",
            fix="Start a new study with BudgetSampler(plan_budget(...)).",
        )
    if not snapshot.trials:
        raise UnfinishedStudyError("It has no runs yet.", fix="Run study.optimize first.")
    if all(trial.state == TrialState.WAITING for trial in snapshot.trials):
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
