"""Says what a trial of a study with a budget may spend."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import optuna
from optuna.trial import FrozenTrial, Trial

from optuna_dp.budget.fidelity import Fidelity
from optuna_dp.budget.settings import PROCEDURE, BudgetSettings
from optuna_dp.budget.spending import ASKED, note, noted
from optuna_dp.errors import PlanError
from optuna_dp.protocol.asking import BEYOND
from optuna_dp.protocol.plan import StudyPlan
from optuna_dp.protocol.records import GATE_KEY, SlotRecord, ended, own_slot, read_plan


def fidelity(trial: Trial | Any) -> Fidelity:
    """Returns what a trial of a study with a budget may spend: its noise, its steps and so on.

    For the objective, before anything is trained::

        run = odp.fidelity(trial)
        model = train(run.learning_rate("sgd"), run.noise_multiplier, run.steps)
        run.spent(accountant)  # what the training's own accountant says
        return run.score(model(x) == y)

    That it was asked is recorded: a study with a run that has an output and never asked is refused
    at release. A run has one grant, however often it asks.

    Args:
        trial: The trial that the objective was given.

    Returns:
        The :class:`optuna_dp.Fidelity` of the trial's rung, or of the last run.

    Raises:
        PlanError: If the trial is not one of a study of :class:`optuna_dp.BudgetSampler`, was not
            begun by that sampler, or has ended.
        optuna.TrialPruned: If the study's last run has begun already: nothing more is paid for.

    Example:
        >>> import optuna, optuna_dp as odp
        >>> plan = odp.plan_budget(
        ...     epsilon=3.0, records=20_000, batch_size=256, epochs=10, pilots=4
        ... )
        >>> study = optuna.create_study(sampler=odp.BudgetSampler(plan))
        >>> odp.fidelity(study.ask()) == plan.pilot
        True
    """
    if not isinstance(trial, Trial):
        raise PlanError(
            f"fidelity got a {type(trial).__name__}. Give it the trial that Optuna passes to the "
            "objective. To call an objective by hand, write one that takes a Fidelity."
        )
    storage, study_id = trial.study._storage, trial.study._study_id
    plan = read_plan(storage, study_id)
    if plan is None or plan.design.procedure != PROCEDURE:
        raise PlanError(
            "This study has no budget plan, so fidelity cannot say what a trial may spend. Make "
            "the study with sampler=BudgetSampler(plan_budget(...)). With optuna-dp check, give "
            "--plan."
        )
    now = storage.get_trial(trial._trial_id)
    if GATE_KEY in now.system_attrs:
        raise optuna.TrialPruned(BEYOND)
    _check_began(now, plan)
    if ended(now):
        raise PlanError(f"Trial {trial.number} has ended. Train nothing more in it.")
    if noted(now, ASKED) is None:
        note(trial, ASKED)
    settings = BudgetSettings.of(plan.design)
    granted = settings.fidelity_of(trial.number)
    return replace(granted, trial=trial)


def _check_began(trial: FrozenTrial, plan: StudyPlan) -> None:
    """Refuses a trial that no sampler with the study's plan has begun: it is not charged for."""
    record = own_slot(trial)
    if record is None or SlotRecord.from_json(record).nonce != plan.nonce:
        raise PlanError(
            f"Trial {trial.number} was not started by the study's {plan.design.sampler}, so the "
            "budget does not include it. Train nothing in this trial. Give the study's sampler "
            "to every optuna.load_study(..., sampler=...) and optuna.create_study(..., "
            "sampler=...)."
        )
