"""Decides when the last run of a budget begins, and when the study has ended.

=================  ============================================================================
trial number       what it is
=================  ============================================================================
0 .. B - 1         a pilot, whatever becomes of it; the rung follows from the number
B and above        a last run, if all pilots have ended, no last run before it has an output, and
                   fewer last runs have begun than are charged for; otherwise it never begins
=================  ============================================================================

A run *begins* when its slot entry is written, just before its objective is called. A trial that
ends without one (its worker died while it waited, or was configured differently, or the choice of
hyperparameters raised) has cost nothing. A pilot that is lost this way is not replaced, because
the rung of a pilot follows from its number. A last run is: the next trial takes its place.

Last runs decide one after the other, in the order of their numbers, so of any number of workers
one begins at a time.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from optuna.exceptions import UpdateFinishedTrialError
from optuna.study import Study
from optuna.trial import FrozenTrial, TrialState

from optuna_dp.core.polling import poll
from optuna_dp.errors import WaitError
from optuna_dp.runs.trial_notes import used_records
from optuna_dp.samplers.budget.settings import BudgetSettings
from optuna_dp.study.trials import began, ended, fail_unstarted, from_number, output, trials_of
from optuna_dp.study.waiting import Waiting

_logger = logging.getLogger("optuna_dp")

# Nothing of a budget is secret, so everybody may know how the last run ended.
# What a release says of a last run without an output.
FAILED = (
    "it failed, so there is no model and no score; the hyperparameters are those chosen for it"
)
GIVEN_UP = (
    "the curator gave up its output: the guarantee covers neither its score nor its model; the "
    "hyperparameters are those of this run"
)
FAILED_LAST = (
    "The last run failed or was interrupted, and the budget has no other one. "
    "optuna_dp.release(study) still gives the pilots and the chosen hyperparameters, without a "
    "model and a score. To get a model, train once more with release.params and plan.final, and "
    "add its cost: release.with_training(plan.final.event). Next time, "
    "plan_budget(spare_runs=1) charges for a spare run beforehand."
)
_NOT_BEGUN = (
    "The last run failed before odp.train or odp.opacus.make_private began a training, and the "
    "budget has no other one. If the objective used no records until then, the run has spent "
    "nothing, and what the plan charges for it is left. Mend the objective. "
)
_NEW_STUDY = "Then start a new study with the same plan: this one had no other run."
_TRAIN_AGAIN = (
    "A new study is not needed, and would cost as much as this one: optuna_dp.release(study) "
    "gives the pilots and the chosen hyperparameters. Train once with release.params and "
    "plan.final by a loop of your own. release.with_training(plan.final.event) states the cost, "
    "and counts the last run twice. Next time, plan_budget(spare_runs=1) charges for a spare run "
    "beforehand."
)


def may_begin(
    trials: Sequence[FrozenTrial], number: int, pilots: int, charged_runs: int
) -> bool | None:
    """Returns whether a trial is a last run: yes, no, or not known yet (None).

    ``number`` is its own, ``pilots`` the first that a last run may have (B), ``charged_runs`` how
    many last runs are charged for.
    """
    earlier_trials = [trial for trial in trials if pilots <= trial.number < number]
    last_runs = [trial for trial in earlier_trials if began(trial)]
    if len(last_runs) >= charged_runs or any(output(trial) is not None for trial in last_runs):
        return False
    if any(not ended(trial) for trial in earlier_trials) or len(earlier_trials) < number - pilots:
        return None
    return True


def end_of(trials: Sequence[FrozenTrial], pilots: int, charged_runs: int) -> int | None:
    """Returns the number after the study's last run; None if a last run is still to come."""
    last_runs = sorted(
        (t for t in trials if t.number >= pilots and began(t)), key=lambda t: t.number
    )
    for count, trial in enumerate(last_runs, start=1):
        if output(trial) is not None or (count == charged_runs and ended(trial)):
            return trial.number + 1
    return None


def wait_for_turn(
    study: Study, number: int, settings: BudgetSettings, is_own: Callable[[FrozenTrial], bool]
) -> bool:
    """Returns whether a trial beyond the pilots is a last run; waits for last runs before it.

    Args:
        study: The study.
        number: The trial's number.
        settings: What the study's plan records.
        is_own: Whether this very thread started a trial; waiting for it would be for ever.

    Raises:
        WaitError: If a run waited for is this thread's own.
    """
    pilots = settings.pilots

    def read() -> bool | None:
        trials = from_number(trials_of(study), pilots)
        answer = may_begin(trials, number, pilots, settings.paid)
        own_runs = [
            t.number for t in trials if pilots <= t.number < number and not ended(t) and is_own(t)
        ]
        if answer is None and own_runs:
            raise WaitError(
                f"Trial {number} is a spare run, used only if the last run, trial {own_runs[0]}, "
                "fails. This thread started the last run. Tell its result first (study.tell)."
            )
        return answer

    waiting = Waiting(study, "for the result of the last run", below=number, names_trials=True)
    return poll(read, waiting.pause)


def words_on_failure(trial: FrozenTrial, settings: BudgetSettings) -> str:
    """Returns what to do when the last run that is charged for has failed.

    Args:
        trial: The last run, as its storage has it.
        settings: What the study's plan records.
    """
    if used_records(trial):
        return FAILED_LAST
    return _NOT_BEGUN + (_TRAIN_AGAIN if settings.pilots or settings.paid > 1 else _NEW_STUDY)


def words_without_scores(pilots: Sequence[FrozenTrial], failure: str | None) -> str:
    """Returns what to do when no pilot has a score.

    Args:
        pilots: The pilots, as their storage has them.
        failure: The type of the first error that a run raised; None if it is not known.
    """
    failed = ""
    if all(trial.state == TrialState.FAIL for trial in pilots):
        failed = ": all of them failed" + (
            f", the first one here with {failure}" if failure else ""
        )
    spent = (
        "What the pilots spent counts beside it."
        if any(map(used_records, pilots))
        else "No pilot began a training by odp.train or odp.opacus.make_private, so if the "
        "objective used no records either, they have spent nothing."
    )
    return (
        f"No pilot has a score{failed}. So the last run's hyperparameters cannot be chosen. The "
        "last run has not begun and is not lost. Mend the objective: Optuna's log has each error, "
        "and without catch= the first one ends study.optimize. Then start a new study with the "
        f"same plan. {spent} Or give the last run's hyperparameters by hand, "
        "study.enqueue_trial({...}), and continue with study.optimize."
    )


def failed_last_run(trials: Sequence[FrozenTrial], settings: BudgetSettings) -> FrozenTrial | None:
    """Returns the last run of a study that has ended without an output; None if it has one."""
    end = end_of(trials, settings.pilots, settings.paid)
    last_run = next((t for t in trials if end is not None and t.number == end - 1), None)
    return None if last_run is None or output(last_run) else last_run


def is_last_paid(study: Study, number: int, settings: BudgetSettings) -> bool:
    """Returns whether no run after this last run is charged for."""
    last_runs = from_number(trials_of(study), settings.pilots)
    earlier_runs = sum(t.number < number and began(t) for t in last_runs)
    return earlier_runs + 1 >= settings.paid


def drop_enqueued_too_early(study: Study, pilots: int) -> None:
    """Drops enqueued trials that would become the last run; called while pilots are open.

    A person may choose the last run, having seen the pilots. A trial that was enqueued before
    they ended was meant as a pilot, or repeats a failed one, and must not take the last run's
    place.
    """
    for trial in from_number(trials_of(study), pilots):
        if trial.state != TrialState.WAITING:
            continue
        try:
            fail_unstarted(study, trial)
        except UpdateFinishedTrialError:
            continue
        _logger.warning(
            "Trial %d was enqueued too early: the plan has %d pilots, other trials are these "
            "pilots, and not all of them have ended. The trial is dropped and costs nothing. To "
            "choose the last run by hand, enqueue it when all pilots have ended.",
            trial.number,
            pilots,
        )
