"""Studies in the open: every run that starts is paid for, so nothing about them is secret.

=================  ============================================================================
trial number       what it is
=================  ============================================================================
0 .. B - 1         a pilot, whatever becomes of it; the rung follows from the number
B and above        a last run, if all pilots have ended, no last run before it has an output, and
                   fewer last runs have begun than are paid for; otherwise it never begins
=================  ============================================================================

A run *begins* when its slot record is written, just before its objective is called. A trial that
ends without one (its worker died while it waited, or was configured differently, or the choice of
hyperparameters raised) has cost nothing. A pilot lost that way is not made up for, because its
fellows know their places by their numbers; a last run is: the next trial takes its place.

Last runs decide one after the other, in the order of their numbers, so of any number of workers
one begins at a time.
"""

from __future__ import annotations

from collections.abc import Sequence

from optuna.trial import FrozenTrial, TrialState

from optuna_dp.errors import PlanError
from optuna_dp.protocol.plan import StudyPlan
from optuna_dp.protocol.records import SlotRecord, ended, own_slot


def began(trial: FrozenTrial) -> bool:
    """Whether a trial has begun: its objective may have been called."""
    return own_slot(trial) is not None


def check_began(trial: FrozenTrial, plan: StudyPlan) -> None:
    """Refuses a trial that no sampler with the study's plan has begun: nothing is paid for it."""
    record = own_slot(trial)
    if record is None or SlotRecord.from_json(record).nonce != plan.nonce:
        raise PlanError(
            f"Trial {trial.number} was not begun by the study's {plan.design.sampler}, so no run "
            "is paid for it. Without sampler=, optuna.load_study and optuna.create_study use one "
            "of Optuna's own: give the study's sampler to each of them. Train nothing in this "
            "trial."
        )


def output(trial: FrozenTrial) -> tuple[float, ...] | None:
    """The scores of a run that has ended, one per objective; None if it has none.

    A pruned trial keeps the last value it reported, so ``trial.values`` alone is not the output.
    """
    if trial.state != TrialState.COMPLETE or not trial.values:
        return None
    values = tuple(float(value) for value in trial.values)
    return None if any(value != value for value in values) else values


def may_begin(trials: Sequence[FrozenTrial], number: int, first: int, paid: int) -> bool | None:
    """Whether a trial is a last run: yes, no, or not known yet (None).

    ``number`` is its own, ``first`` the first that a last run may have (B), ``paid`` how many last
    runs are paid for.
    """
    before = [trial for trial in trials if first <= trial.number < number]
    started = [trial for trial in before if began(trial)]
    if len(started) >= paid or any(output(trial) is not None for trial in started):
        return False
    if any(not ended(trial) for trial in before) or len(before) < number - first:
        return None
    return True


def end_of(trials: Sequence[FrozenTrial], first: int, paid: int) -> int | None:
    """Returns the number after the study's last run; None if a last run is still to come."""
    later = sorted((t for t in trials if t.number >= first and began(t)), key=lambda t: t.number)
    for count, trial in enumerate(later, start=1):
        if output(trial) is not None or (count == paid and ended(trial)):
            return trial.number + 1
    return None
