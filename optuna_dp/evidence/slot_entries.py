"""The entry with which a run began, and whether it is this run's, under this plan."""

from __future__ import annotations

from collections.abc import Collection

from optuna.trial import FrozenTrial

from optuna_dp.core.json_entries import RESTORE
from optuna_dp.errors import PlanError, ReleaseRefusedError
from optuna_dp.study.claims import CLAIMED_TWICE, SPENT_TWICE, claimed_twice
from optuna_dp.study.entries import SLOT, UNSTARTED
from optuna_dp.study.plan import StudyPlan
from optuna_dp.study.recovery_words import failing_call, listing_call
from optuna_dp.study.snapshot import StudySnapshot
from optuna_dp.study.trials import (
    SlotEntry,
    did_nothing,
    ended,
)

NEW_STUDY = "Start a new study."


def way_on(snapshot: StudySnapshot) -> str:
    """Returns what to do in a study with runs that have not ended, in sentences."""
    place, name = snapshot.place, snapshot.name
    return (
        "If another worker is at it, wait and release again. If the worker of a run has died, as "
        f"when a script was stopped, mark the run as failed: {failing_call(place, name)} "
        f"({listing_call(place, name)} lists open runs). Then, or if no run is open, continue "
        "with study.optimize (the same sampler, no n_trials)."
    )


def check_direction(snapshot: StudySnapshot, plan: StudyPlan) -> None:
    """Refuses a study whose direction is not the one that it had when it was planned."""
    direction = ",".join(snapshot.directions)
    if direction != plan.design.direction:
        raise ReleaseRefusedError(
            f"Its direction is {direction!r}, but {plan.design.direction!r} in its plan.",
            fix=NEW_STUDY,
        )


def slot_entry(
    trial: FrozenTrial, plan: StudyPlan, vouched_trials: Collection[int] = ()
) -> SlotEntry | None:
    """Returns a run's entry; None for a slot whose worker died before the run began.

    ``vouched_trials`` are numbers of failed trials that the curator vouches never began.
    """
    if claimed_twice(trial):
        raise ReleaseRefusedError(CLAIMED_TWICE, trial_number=trial.number, fix=SPENT_TWICE)
    data = SLOT.of(trial)
    never_began = UNSTARTED.is_in(trial) or trial.number in vouched_trials or not ended(trial)
    if data is None and did_nothing(trial):
        if never_began:
            return None  # Still open, or a failed run: its slot is spent, the lowest outcome.
        raise ReleaseRefusedError(
            "it failed before its run began, and nobody has confirmed why. It may have been added "
            "by hand.",
            trial_number=trial.number,
            fix="If its worker died first, confirm that: optuna-dp recover STORAGE STUDY --fail "
            f"{trial.number}. Otherwise start a new study.",
        )
    if data is None:
        raise ReleaseRefusedError(
            "it was made by another sampler, or added by hand.",
            trial_number=trial.number,
            fix=f"{NEW_STUDY} Give the same sampler to every optuna.load_study(..., sampler=...) "
            "and optuna.create_study(..., sampler=...): without it Optuna uses a sampler of its "
            "own.",
        )
    try:
        entry = SlotEntry.from_json(data)
    except PlanError as error:
        raise ReleaseRefusedError(str(error), trial_number=trial.number) from error
    if (entry.nonce, entry.number) != (plan.nonce, trial.number):
        raise ReleaseRefusedError(
            "its entry belongs to another trial or another study. The trial may be a copy, or "
            "the storage may have used the id of a deleted study again.",
            trial_number=trial.number,
            fix=NEW_STUDY,
        )
    if entry.plan != plan.digest:
        raise ReleaseRefusedError(
            "the study's plan entry is corrupted: it is not the one with which this run began.",
            trial_number=trial.number,
            fix=RESTORE,
        )
    if entry.fingerprint != plan.design.fingerprint and trial.number == 0:
        raise ReleaseRefusedError(
            "the study's plan entry is corrupted: it is not what the worker of this trial wrote.",
            trial_number=0,
            fix=RESTORE,
        )
    if entry.fingerprint != plan.design.fingerprint:
        raise ReleaseRefusedError(
            "its worker had another sampler, or other sampler arguments, than the study's plan. "
            "It cannot count as a run that failed by chance.",
            trial_number=trial.number,
            fix=f"{NEW_STUDY} Give every worker the same sampler with the same arguments.",
        )
    if entry.sampler != plan.design.sampler:
        raise ReleaseRefusedError(
            f"its parameters were drawn by {entry.sampler}, but the plan is one of "
            f"{plan.design.sampler}.",
            trial_number=trial.number,
            fix=f"{NEW_STUDY} Do not wrap or replace the sampler.",
        )
    return entry
