"""What a figure is about: a guarantee, a release or a study."""

from __future__ import annotations

from typing import Any

import optuna
from optuna.trial import FrozenTrial

from optuna_dp import validation
from optuna_dp.accounting.guarantee import Guarantee
from optuna_dp.budget.settings import BudgetSettings
from optuna_dp.errors import InvalidArgumentError, PlanError
from optuna_dp.evidence.procedures import procedure_of
from optuna_dp.evidence.run_record import RunRecord, read_run_record
from optuna_dp.protocol.plan import Design, StudyPlan
from optuna_dp.protocol.records import began, ended, read_plan
from optuna_dp.releasing.release import Release
from optuna_dp.utilities.choice import end_of, final_choice
from optuna_dp.utilities.second_evaluations import never_began


def plan_of(study: Any) -> StudyPlan:
    """Returns the plan of a study; for the curator only."""
    if not isinstance(study, optuna.Study):
        raise InvalidArgumentError("study", type(study).__name__, "it must be an Optuna study")
    plan, _ = read_plan(study._storage, study._study_id)
    if plan is None:
        raise PlanError(
            "This study has no plan: it has no trials yet, or another sampler made it. Use a "
            "sampler of optuna-dp from the first trial."
        )
    return plan


def record_of(study: optuna.Study) -> RunRecord:
    """Returns what one run of a study costs, as the callback or a release recorded it.

    What the choice of a :class:`~optuna_dp.ProposeTestSampler` or
    :class:`~optuna_dp.NoisyMaxSampler` study costs is in its plan, and so is what runs with a
    budget cost.
    """
    record = read_run_record(study._storage, study._study_id)
    if record is not None:
        return record
    design = plan_of(study).design
    procedure = procedure_of(design)
    own = procedure.own_record()
    if own is not None:
        return own
    if not procedure.runs_are_private:
        return RunRecord(procedure.run(None))
    raise PlanError(
        "What one run of this study costs is not recorded. Give study.optimize a "
        "PrivacyCallback(run)."
    )


def design_of(target: Any) -> Design | None:
    """Returns the public design of a release or a study; None for a guarantee."""
    if isinstance(target, Release):
        return target.design
    return plan_of(target).design if isinstance(target, optuna.Study) else None


def has_finished(study: optuna.Study, plan: StudyPlan) -> bool:
    """Whether all runs have ended, or the private choice has been made."""
    procedure = procedure_of(plan.design)
    if procedure.releases_all_runs:
        trials = study._storage.get_all_trials(study._study_id, deepcopy=False)
        return procedure.slots(study, plan) <= len(trials)
    if procedure.runs_are_private:
        return len(candidates_of(study, plan)) == plan.slots
    return final_choice(study, plan) is not None


def pilots_of(plan: StudyPlan) -> int:
    """Returns how many of a study's first runs are pilots."""
    if procedure_of(plan.design).releases_all_runs:
        return BudgetSettings.of(plan.design).pilots
    return int(plan.design.settings.get("pilots", 0))


def candidates_of(study: optuna.Study, plan: StudyPlan) -> list[FrozenTrial]:
    """Returns the trials that hold runs or candidates and have ended, by number.

    Left out are trials beyond the last run, and those that hold a private answer.
    """
    trials = study._storage.get_all_trials(study._study_id, deepcopy=False)
    procedure = procedure_of(plan.design)
    if procedure.releases_all_runs:
        mine = [t for t in trials if began(t) and ended(t)]
    elif procedure.runs_are_private:
        mine = [t for t in trials if t.number < plan.slots and ended(t)]
    else:
        end = end_of(study, plan)
        mine = [t for t in trials if t.number < end and ended(t) and not never_began(t)]
    return sorted(mine, key=lambda t: t.number)


def target_of(target: Any, delta: float | None = None) -> tuple[Guarantee, float]:
    """Returns what a guarantee, a release or a study guarantees, and the delta to show it at.

    Nothing but the public design of a study is read.
    """
    if isinstance(target, Guarantee):
        guarantee, usual = target, 1e-5
    elif isinstance(target, Release):
        guarantee, usual = target.guarantee, target.delta
    elif isinstance(target, optuna.Study):
        design, record = plan_of(target).design, record_of(target)
        guarantee, usual = procedure_of(design).guarantee(record), record.delta
    else:
        raise InvalidArgumentError(
            "target", type(target).__name__, "it must be a Guarantee, a Release or a study"
        )
    return guarantee, validation.open_unit("delta", usual if delta is None else delta)
