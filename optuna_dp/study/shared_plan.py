"""One plan for all workers: who writes it, who waits for it, and who may not run under it.

Trial 0 writes it. Every other worker reads it or waits for it, and ends if it was configured
differently. If trial 0 ended without writing it, no run has begun and none can.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NoReturn

from optuna.study import Study
from optuna.trial import FrozenTrial, TrialState

from optuna_dp.core.optuna_internals import storage_of, study_id_of, trial_id_of
from optuna_dp.core.polling import poll
from optuna_dp.errors import PlanError
from optuna_dp.study.entries import PLAN, is_published
from optuna_dp.study.plan import Design, StudyPlan
from optuna_dp.study.trials import (
    ended,
    fail_unstarted,
    leading_trial,
    read_plan,
)
from optuna_dp.study.waiting import Waiting


def plan_for(
    study: Study,
    trial: FrozenTrial,
    new_plan: Callable[[], StudyPlan],
    parse: Callable[[object], StudyPlan],
) -> StudyPlan:
    """Returns the study's plan for a trial that starts: read, waited for, or written by trial 0.

    Raises:
        PlanError: If trial 0 ended without writing one. No run has begun then, and none can.
    """
    storage, study_id = storage_of(study), study_id_of(study)
    if trial.number == 0 and not PLAN.is_in(trial):
        if is_published(storage):
            refuse(
                study,
                trial,
                "This storage holds a published release. Others may read it, and they would read "
                "this study too. Start the study in another storage.",
            )
        plan = new_plan()
        PLAN.write(study, trial, plan.to_json())
        return plan

    def read() -> FrozenTrial | None:
        leader = leading_trial(storage, study_id)
        is_decided = leader is not None and (PLAN.is_in(leader) or ended(leader))
        return leader if is_decided else None

    leader = poll(read, Waiting(study, "for the plan", below=1, names_trials=True).pause)
    if PLAN.is_in(leader):
        return parse(PLAN.of(leader))
    # Without a mark that vouches for it: a database may let the plan of trial 0 in late, and a run
    # that was refused must not count as one that failed by chance.
    storage.set_trial_state_values(trial_id_of(trial), TrialState.FAIL)
    raise PlanError(
        "This study has no plan, and no run can begin: trial 0 ended without writing one. Its "
        "worker died first, or it was made by hand or by another sampler. Start a new study."
    )


def written_plan(study: Study) -> StudyPlan:
    """Returns the plan that was written; refuses a study that has none."""
    plan = read_plan(study)
    if plan is None:
        raise PlanError(
            "This study has no plan, because its first trial was not made by a sampler of "
            "optuna-dp. Start a new study with sampler=BudgetSampler(plan_budget(...))."
        )
    return plan


_LOST = (
    " This worker has taken one run, so the study cannot be released any more. Stop it and start "
    "a new one."
)


def check_same_design(
    own_design: Design, fingerprint: str, plan: StudyPlan, consequence: str = _LOST
) -> None:
    """Refuses to run under a plan that is not this worker's own.

    A worker is refused before it takes a run, unless the study's first worker has not written the
    plan yet. Then the slot keeps this worker's fingerprint, by which ``release`` refuses the
    study. Counting it as a failed run instead would be unsound. A run may fail as one draw from
    the law that all runs share; this one would fail for certain, and which slots do is up to
    whoever starts workers. One that is started again and again takes every slot after the first
    s, and the best of min(T, s) runs may cost more than the best of T: with pure 0.1-DP runs and
    T geometric of mean 1000 the bound is 0.300, and an attack on min(T, 10) reaches 0.852
    (``test_a_slot_lost_to_a_wrong_configuration_cannot_count_as_a_failed_run``).
    """
    if own_design != plan.design and fingerprint != plan.design.fingerprint:
        # Lazy: only the words of a refusal need it.
        from optuna_dp.core.differences import differences

        raise PlanError(
            "This worker's sampler differs from the study's plan: "
            f"{differences(own_design.to_json(), plan.design.to_json())}. Give every worker the "
            "same sampler with the same arguments. For another plan, start a new study."
            f"{consequence}"
        )


def refuse(study: Study, trial: FrozenTrial, message: str) -> NoReturn:
    """Ends the trial, so that none is left running, and raises."""
    fail_unstarted(study, trial)
    raise PlanError(message)
