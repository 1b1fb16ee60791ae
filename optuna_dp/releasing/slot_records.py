"""The record with which a run began, and whether it is this run's, under this plan."""

from __future__ import annotations

from collections.abc import Collection

from optuna.trial import FrozenTrial

from optuna_dp.errors import PlanError, ReleaseRefusedError
from optuna_dp.json_records import RESTORE
from optuna_dp.protocol.plan import StudyPlan
from optuna_dp.protocol.records import (
    SLOT_KEY,
    UNSTARTED_KEY,
    SlotRecord,
    did_nothing,
    ended,
    holds_new_plan,
)

_NEW_STUDY = "Start a new study."


def slot_record(
    trial: FrozenTrial, plan: StudyPlan, vouched: Collection[int] = ()
) -> SlotRecord | None:
    """Returns a run's record; None for a slot whose worker died before the run began.

    ``vouched`` are numbers of failed trials that somebody vouches never began.
    """
    data = trial.system_attrs.get(SLOT_KEY)
    never_began = (
        UNSTARTED_KEY in trial.system_attrs
        or trial.number in vouched
        or holds_new_plan(trial)
        or not ended(trial)
    )
    if data is None and did_nothing(trial) and never_began:
        return None  # Still open, or a failed run: its slot is spent, the lowest outcome.
    if data is None and did_nothing(trial):
        raise ReleaseRefusedError(
            "it failed before it began, and not by optuna-dp recover: it may have been added by "
            "hand.",
            trial_number=trial.number,
            fix="If its worker died before the run began, vouch for that: optuna-dp recover "
            f"STORAGE STUDY --fail {trial.number}. Otherwise start a new study.",
        )
    if data is None:
        raise ReleaseRefusedError(
            "it was made by another sampler, or added by hand. Without sampler=, "
            "optuna.load_study and optuna.create_study use one of Optuna's own.",
            trial_number=trial.number,
            fix=f"{_NEW_STUDY} Give the same sampler to every optuna.load_study(..., sampler=...) "
            "and optuna.create_study(..., sampler=...).",
        )
    try:
        record = SlotRecord.from_json(data)
    except PlanError as error:
        raise ReleaseRefusedError(str(error), trial_number=trial.number) from error
    if (record.nonce, record.number) != (plan.nonce, trial.number):
        raise ReleaseRefusedError(
            "its record belongs to another trial, or to another study's plan (a copied trial, or "
            "the id of a deleted study "
            "that was used again).",
            trial_number=trial.number,
            fix=_NEW_STUDY,
        )
    if record.plan is not None and record.plan != plan.digest:
        raise ReleaseRefusedError(
            "the study's plan record is corrupted: it is not the one under which this run began.",
            trial_number=trial.number,
            fix=RESTORE,
        )
    if record.fingerprint != plan.design.fingerprint and trial.number == 0:
        raise ReleaseRefusedError(
            "the study's plan record is corrupted: it is not what the worker of this trial wrote.",
            trial_number=0,
            fix=RESTORE,
        )
    if record.fingerprint != plan.design.fingerprint:
        raise ReleaseRefusedError(
            "its worker was configured differently from the study's plan. It cannot count as a "
            "failed run: leaving out runs that fail for certain changes the law of their number.",
            trial_number=trial.number,
            fix=f"{_NEW_STUDY} Give every worker the same sampler arguments.",
        )
    if record.sampler != plan.design.sampler:
        raise ReleaseRefusedError(
            f"it was drawn by {record.sampler}, and the plan is {plan.design.sampler}'s.",
            trial_number=trial.number,
            fix=f"{_NEW_STUDY} Do not wrap or replace the sampler.",
        )
    return record
