"""Gives a trial the private run that it may make, and judges the run when the trial ends."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import replace
from types import FrameType

import optuna.logging
from optuna.storages import InMemoryStorage
from optuna.trial import FrozenTrial, Trial, TrialState

from optuna_dp.core.optuna_internals import storage_of
from optuna_dp.errors import PlanError
from optuna_dp.evidence.procedures import procedure_of
from optuna_dp.evidence.run_checks import warning_of
from optuna_dp.runs.judgement import judge_at_end
from optuna_dp.runs.ranks_trial import RanksTrial
from optuna_dp.runs.run import Run
from optuna_dp.runs.scripts import script_of
from optuna_dp.runs.trial_notes import note, noted, stored_trial, used_records
from optuna_dp.study import entries
from optuna_dp.study.asking import BEYOND
from optuna_dp.study.entries import ASKED
from optuna_dp.study.plan import StudyPlan
from optuna_dp.study.slot_strategy import Slot, SlotStrategy
from optuna_dp.study.trials import SlotEntry, ended, own_slot, read_plan, trials_of

# Below Optuna's own logger, so that its handler shows what is said, and its verbosity hides it.
OPTUNA_LOG = "optuna.optuna_dp"


def start_run(trial: Trial) -> Run:
    """Returns what a trial may spend on its run: its noise, its steps and so on.

    For the objective, before anything is trained::

        run = odp.start_run(trial)
        trained = odp.train(run, model, (x, y), loss=..., score="accuracy")
        return trained.score

    In a study with a budget it is what the plan has for this trial: a pilot, or the last run. In a
    study of ``RandTuneSampler(run=...)`` or ``DPHyPOSampler(run=...)`` all runs are alike.

    That it was asked is recorded: a study with a run that has an output and never asked is refused
    at release. A trial has one run, however often it asks.

    Args:
        trial: The trial that the objective was given.

    Returns:
        The :class:`optuna_dp.Run` of the trial.

    Raises:
        PlanError: If the study has no plan of runs, the trial was not begun by the study's
            sampler, or has ended.
        optuna.TrialPruned: If the study's last run has begun already: nothing more is charged for.

    Example:
        >>> import optuna, optuna_dp as odp
        >>> plan = odp.plan_budget(
        ...     epsilon=3.0, records=20_000, batch_size=256, epochs=10, pilots=4
        ... )
        >>> study = optuna.create_study(sampler=odp.BudgetSampler(plan))
        >>> odp.start_run(study.ask()) == plan.pilot
        True
    """
    asking = sys._getframe(1)
    if isinstance(trial, RanksTrial):  # In each rank the same run; rank 0 has the trial.
        ranks_trial = trial
        own: list[Run] = []

        def numbers_only(trial: Trial) -> Run:
            own.append(_started(trial, asking))
            return replace(own[0], trial=None)

        run = ranks_trial.answered(numbers_only)
        return replace(own[0] if own else run, ranks=ranks_trial.ranks)
    return _started(trial, asking)


def _started(trial: Trial, asking: FrameType) -> Run:
    """Returns the run of a trial, and notes that it was asked for.

    Args:
        trial: The trial.
        asking: The frame of who asked.
    """
    if not isinstance(trial, Trial):
        raise PlanError(
            f"start_run got a value of type {type(trial).__name__}. Give it the trial that Optuna "
            "passes to the objective. To train by hand, write a function of a Run, and call it "
            "from the objective."
        )
    plan = read_plan(trial.study)
    if plan is None:
        raise PlanError(
            "This study has no plan, so start_run cannot say what a trial may spend. Make the "
            "study with sampler=BudgetSampler(plan_budget(...)), or with "
            "RandTuneSampler(run=RunPlan(...)) or DPHyPOSampler(run=RunPlan(...)). With "
            "optuna-dp check, give --plan NAME."
        )
    frozen = stored_trial(trial)
    if entries.BEYOND.is_in(frozen):
        raise optuna.TrialPruned(BEYOND)
    _check_began(frozen, plan)
    if ended(frozen):
        raise PlanError(f"Trial {trial.number} has ended. Train nothing more in it.")
    procedure = procedure_of(plan.design)
    planned_run = procedure.run_of(trial.number)
    if planned_run is None and not procedure.runs_are_private:
        raise PlanError(
            f"In a study of {plan.design.sampler} only the choice costs, so there is no run that "
            "start_run could give to a trial. Train each candidate on partitions of the data, and "
            "return optuna_dp.report_utilities(trial, scores)."
        )
    if planned_run is None:
        raise PlanError(
            f"The study's {plan.design.sampler} does not know what a run is, so start_run cannot "
            "say what a trial may spend: an event says what a run costs, not its noise and steps. "
            f"Give it the plan of one: {plan.design.sampler}(run=optuna_dp.RunPlan(...)). Or make "
            "a budget: BudgetSampler(plan_budget(...))."
        )
    run = replace(planned_run, trial=trial, name=procedure.name_of(trial.number))
    if noted(frozen, ASKED) is None:
        if run.name:
            optuna.logging.get_logger(OPTUNA_LOG).info(
                "%s begins: trial %d.", run.name, trial.number
            )
        # A fork has a copy of a study in memory, and what happens to one is not seen in the other.
        in_memory = isinstance(storage_of(trial.study), InMemoryStorage)
        home = {"process": os.getpid()} if in_memory else {}
        note(trial, ASKED, **home, script=script_of(asking))
    return run


def _check_began(trial: FrozenTrial, plan: StudyPlan) -> None:
    """Refuses a trial that no sampler with the study's plan has begun: it is not charged for."""
    entry = own_slot(trial)
    if entry is None or SlotEntry.from_json(entry).nonce != plan.nonce:
        raise PlanError(
            # Without its number: the first such trial may tell how many runs there were.
            f"This trial was not started by the study's {plan.design.sampler}, so the plan does "
            "not include it. Train nothing in it. Give the study's sampler to every "
            "optuna.load_study(..., sampler=...) and optuna.create_study(..., sampler=...)."
        )


_NEW_STUDY = (
    "A run failed before odp.train or odp.opacus.make_private began a training, and counts as a "
    "failed run of this study. No run of the study is known to have begun one. So if the "
    "objective used no records either, nothing is spent, and a new study is better: mend the "
    "objective and start one with the same plan. It has all of its runs."
)


def warn_of_failure(strategy: SlotStrategy, slot: Slot, state: TrialState) -> None:
    """Says that a new study is better, if a run fails while nothing is known to be spent.

    For samplers, when a trial ends and its result is not stored yet.
    """
    if state != TrialState.FAIL:
        return
    others = [trial for trial in trials_of(slot.study) if trial.number != slot.number]
    if any(used_records(trial) or trial.values for trial in [slot.stored_trial(), *others]):
        return
    strategy.warn_once(_NEW_STUDY)


def end_run(
    strategy: SlotStrategy, slot: Slot, state: TrialState, values: Sequence[float] | None
) -> None:
    """Judges a run that ends, by the plan of its study, and warns of what a release would refuse.

    For samplers, when a trial ends and its result is not stored yet. A warning and no error: the
    curator may still vouch for the run.

    Args:
        strategy: The strategy of the sampler, which warns.
        slot: The trial that ends; it has begun.
        state: As it will be stored.
        values: As they will be stored; None if there are none.

    Raises:
        PlanError: If its training was not what its run may do.
    """
    procedure = procedure_of(slot.plan.design)
    judgement = judge_at_end(
        slot.study,
        slot.trial,
        state,
        values,
        procedure.run_of(slot.number),
        procedure.output_attributes,
    )
    warning = None if judgement is None else warning_of(judgement, state)
    if warning is not None:
        text, subject = warning
        strategy.warn_once(text, about=subject)
