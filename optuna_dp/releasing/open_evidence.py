"""What a study in the open has to show: that no more runs began than are paid for, and which.

Hyperparameters may come from anywhere: any function of private outputs, and any person who saw no
more, may propose, climb, prune and choose (docs/explanation/budget.md). So nothing is asked here
of how they were drawn, nor whether the sampler had a seed.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from optuna.study import Study
from optuna.trial import FrozenTrial

from optuna_dp.errors import PlanError, ReleaseRefusedError, UnfinishedStudyError
from optuna_dp.protocol.open_runs import began, end_of, output
from optuna_dp.protocol.pilot_keys import PILOT_KEY
from optuna_dp.protocol.plan import StudyPlan
from optuna_dp.protocol.records import GATE_KEY, ended
from optuna_dp.releasing.runs import Evidence, Run
from optuna_dp.releasing.slot_records import (
    GO_ON,
    NEW_STUDY,
    check_direction,
    check_waited,
    slot_record,
)
from optuna_dp.samplers.budget_settings import BudgetSettings


def read_open_evidence(study: Study, plan: StudyPlan) -> Evidence:
    """Returns the pilots, by number, and the last runs that began, of a study in the open.

    Raises:
        ReleaseRefusedError: If the study's runs are not what its plan promises.
        UnfinishedStudyError: If runs are still open or to come.
    """
    try:
        settings = BudgetSettings.of(plan.design)
    except PlanError as error:
        raise ReleaseRefusedError(str(error), trial_number=0) from error
    trials = sorted(
        study._storage.get_all_trials(study._study_id, deepcopy=False), key=lambda t: t.number
    )
    check_direction(study, plan)
    for trial in trials:
        _check(trial, plan, settings)
    last = [trial for trial in trials if trial.number >= settings.pilots and began(trial)]
    _check_paid(last, settings)
    pilots = trials[: settings.pilots]
    if len(pilots) < settings.pilots or not all(ended(trial) for trial in pilots):
        raise UnfinishedStudyError("Some of its pilots have not ended.", fix=GO_ON)
    if not last or not all(ended(trial) for trial in last):
        raise UnfinishedStudyError("Its last run has not ended.", fix=GO_ON)
    if end_of(trials, settings.pilots, settings.paid) is None:
        raise UnfinishedStudyError("Its last run has failed, and one more is paid for.", fix=GO_ON)
    runs = []
    for trial in [*pilots, *last]:
        record = slot_record(trial, plan) if began(trial) else None
        runs.append(Run(trial, 0 if record is None else record.tie_break))
    return Evidence(plan, tuple(runs), study)


def _check(trial: FrozenTrial, plan: StudyPlan, settings: BudgetSettings) -> None:
    if not began(trial):
        # Only a run has any of these.
        shows = trial.params or trial.values or trial.intermediate_values
        if not ended(trial) or not shows:
            return
        if GATE_KEY in trial.system_attrs and trial.values is None:
            return
        raise ReleaseRefusedError(
            "it was added by hand or made by another sampler, so nobody has paid for what it "
            "shows.",
            trial_number=trial.number,
            fix=NEW_STUDY,
        )
    slot_record(trial, plan)
    if (PILOT_KEY in trial.system_attrs) != (trial.number < settings.pilots):
        raise ReleaseRefusedError(
            "it ran as a pilot and is none, or the other way round: its mark is not the plan's.",
            trial_number=trial.number,
            fix=NEW_STUDY,
        )
    check_waited(trial)


def _check_paid(last: Sequence[FrozenTrial], settings: BudgetSettings) -> None:
    """Refuses more last runs than are paid for, and one more after one with an output."""
    beyond = list(last[settings.paid :])
    beyond += [later for one, later in itertools.pairwise(last) if output(one) is not None]
    if beyond:
        raise ReleaseRefusedError(
            "it is a last run beyond those that are paid for.",
            trial_number=beyond[0].number,
            fix="Report this: optuna-dp begins no such run. What it showed composes "
            "(Guarantee.compose).",
        )
