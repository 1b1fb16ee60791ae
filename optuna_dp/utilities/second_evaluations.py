"""Candidates whose trials failed after they had begun, evaluated again.

Dropping such a candidate could tell a record, so it blocks the private choice. But nothing noisy
has been drawn by then, and a utility is a function of the candidate and the data, whoever computes
it and when: with the utilities of a second evaluation the choice is the very same mechanism. They
are kept in a finished trial after the last candidate's, created in one step like an answer.

If trainings are random, the runs that failed must have failed by chance, or for what happened on
single partitions (``docs/explanation/propose-test.md``, "Evaluated again").
"""

from __future__ import annotations

from collections.abc import Sequence

import optuna
from optuna.study import Study
from optuna.trial import FrozenTrial, TrialState

from optuna_dp.errors import PlanError
from optuna_dp.optuna_internals import storage_of, study_id_of
from optuna_dp.protocol.plan import StudyPlan
from optuna_dp.protocol.records import SLOT_KEY, did_nothing, ended, trials_of
from optuna_dp.utilities.settings import UtilitySettings

UTILITIES_KEY = "optuna_dp:utilities"
WAITS_KEY = "optuna_dp:waits_for_an_answer"
AGAIN_KEY = "optuna_dp:evaluated_again"

START_AGAIN = "Or start a new study: that costs nothing, because no answer has been published."


def never_began(trial: FrozenTrial) -> bool:
    """Returns whether a trial holds an answer, or its worker died in this package's own code.

    An objective that failed before it asked for a parameter has begun: it may have read data.
    """
    attrs = trial.system_attrs
    in_our_code = SLOT_KEY not in attrs or bool(attrs.get(WAITS_KEY))
    return in_our_code and ended(trial) and did_nothing(trial)


def evaluate_again(
    study: Study, plan: StudyPlan, trial: FrozenTrial, values: Sequence[float | None], mean: float
) -> None:
    """Records the k utilities of a candidate whose trial has failed, in a trial of its own.

    Raises:
        PlanError: If there is no use for them.
    """
    settings = UtilitySettings.from_json(plan.design.settings)
    if trial.state == TrialState.COMPLETE or never_began(trial):
        raise PlanError(f"Trial {trial.number} is not a candidate that began and failed.")
    if not trial.params:
        raise PlanError(
            f"The objective of trial {trial.number} failed before it asked for a parameter, so "
            f"there is no candidate to evaluate again. {START_AGAIN}"
        )
    if settings.stages > 1:
        raise PlanError(f"Candidates that are proposed cannot be evaluated again. {START_AGAIN}")
    trials = trials_of(study)
    if len(trials) < plan.slots:
        raise PlanError(
            "A failed candidate can be evaluated again only after all others have begun. Continue "
            "with study.optimize first."
        )
    if any(t.state == TrialState.COMPLETE and UTILITIES_KEY not in t.system_attrs for t in trials):
        raise PlanError(
            "Other candidates returned means, and these cannot be mixed with utilities by "
            f"partition. {START_AGAIN} Use report_utilities for every candidate."
        )
    storage_of(study).create_new_trial(
        study_id_of(study),
        template_trial=optuna.trial.create_trial(
            value=mean,
            system_attrs={
                AGAIN_KEY: {"nonce": plan.nonce, "number": trial.number},
                UTILITIES_KEY: list(values),
            },
        ),
    )


def with_utilities(
    study: Study, plan: StudyPlan, trials: Sequence[FrozenTrial]
) -> list[FrozenTrial]:
    """Returns the trials that hold the utilities of candidates: failed ones' second evaluations.

    Of several second evaluations of one candidate everybody takes the first.
    """
    second_evaluation: dict[int, FrozenTrial] = {}
    for trial in trials_of(study):
        mark = trial.system_attrs.get(AGAIN_KEY)
        if trial.number >= plan.slots and isinstance(mark, dict) and mark["nonce"] == plan.nonce:
            second_evaluation.setdefault(mark["number"], trial)
    failure_states = (TrialState.FAIL, TrialState.PRUNED)
    return [second_evaluation.get(t.number, t) if t.state in failure_states else t for t in trials]
