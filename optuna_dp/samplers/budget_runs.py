"""Runs with a budget: which pilots climb, and when and with what the last run begins.

Proof: docs/explanation/budget.md. The numbers of trials say what they are:
:mod:`optuna_dp.protocol.open_runs`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import optuna
from optuna.exceptions import UpdateFinishedTrialError
from optuna.study import Study
from optuna.trial import FrozenTrial, Trial, TrialState

from optuna_dp.densities.surrogate import ScoreModel
from optuna_dp.errors import InvalidArgumentError, PlanError, WaitError
from optuna_dp.planning.fidelity import Fidelity
from optuna_dp.polling import poll
from optuna_dp.protocol.open_runs import began, may_begin
from optuna_dp.protocol.records import (
    GATE_KEY,
    ended,
    fail_unstarted,
    read_plan,
    trials_of,
    was_enqueued,
)
from optuna_dp.protocol.waiting import Waiting
from optuna_dp.samplers.budget_choice import Choose
from optuna_dp.samplers.budget_settings import PROCEDURE, BudgetSettings

_logger = logging.getLogger("optuna_dp")


def fidelity(trial: Trial | Any) -> Fidelity:
    """Returns what a trial of a study with a budget may spend: its noise, its steps and so on.

    For the objective, before anything is trained::

        run = odp.fidelity(trial)
        model = train(run.learning_rate("sgd"), run.noise_multiplier, run.steps)

    Args:
        trial: The trial that the objective was given.

    Returns:
        The :class:`optuna_dp.Fidelity` of the trial's rung, or of the last run.

    Raises:
        PlanError: If the trial is none of a study whose sampler is ``PilotSampler(plan=...)``.
        optuna.TrialPruned: If the study's last run has begun already: nothing more is paid for.

    Example:
        >>> import optuna, optuna_dp as odp
        >>> plan = odp.plan_budget(
        ...     epsilon=3.0, records=20_000, batch_size=256, epochs=10, pilots=4
        ... )
        >>> study = optuna.create_study(sampler=odp.PilotSampler(plan=plan))
        >>> odp.fidelity(study.ask()) == plan.pilot
        True
    """
    if not isinstance(trial, Trial):
        raise PlanError(
            f"A {type(trial).__name__} has no budget: fidelity takes the trial that Optuna gives "
            "to the objective. To call an objective by hand, give it a Fidelity as an argument."
        )
    storage, study_id = trial.study._storage, trial.study._study_id
    plan, _ = read_plan(storage, study_id)
    if plan is None or plan.design.procedure != PROCEDURE:
        raise PlanError(
            "This study has no budget, so there is nothing to say what a trial may spend: use "
            "PilotSampler(plan=plan_budget(...)). With pilots= and pilot_run= the objective asks "
            "optuna_dp.is_pilot(trial)."
        )
    if GATE_KEY in storage.get_trial(trial._trial_id).system_attrs:
        raise optuna.TrialPruned("The study's last run has begun already.")
    settings = BudgetSettings.of(plan.design)
    return settings.plan.fidelity(min(trial.number, settings.pilots))


@dataclass(frozen=True)
class BudgetRuns:
    """What happens in which slot.

    Attributes:
        settings: What the study's plan records.
        choose: How the last run's hyperparameters are chosen.
        surrogate: The score model of ``choose="model"``.
    """

    settings: BudgetSettings
    choose: Choose
    surrogate: ScoreModel

    def is_last_run(
        self, study: Study, number: int, own: Callable[[FrozenTrial], bool]
    ) -> bool | None:
        """Whether a trial beyond the pilots is a last run; waits for last runs before it.

        Raises:
            WaitError: If a run waited for is this thread's own: that would be for ever.
        """
        first = self.settings.pilots

        def read() -> bool | None:
            trials = trials_of(study)
            answer = may_begin(trials, number, first, self.settings.paid)
            mine = [
                t.number for t in trials if first <= t.number < number and not ended(t) and own(t)
            ]
            if answer is None and mine:
                raise WaitError(
                    f"Trial {number} is a spare run, to be used if the last run fails, and that "
                    f"one, trial {mine[0]}, was started by this same thread. Tell its result "
                    "first (study.tell)."
                )
            return answer

        waiting = Waiting(study, "to see whether the last run ends with a result", below=number)
        return poll(read, timeout=None, on_pause=waiting.pause)

    def is_last_paid(self, study: Study, number: int) -> bool:
        """Whether no further run is paid for when the last run of this number has begun."""
        first = self.settings.pilots
        before = sum(first <= t.number < number and began(t) for t in trials_of(study))
        return before + 1 >= self.settings.paid

    def drop_enqueued_too_early(self, study: Study) -> None:
        """Drops enqueued trials that would become the last run; called while pilots are open.

        A person may choose the last run, having seen the pilots. A trial that was enqueued before
        they ended was meant as a pilot, or is a failed one's repetition, and must not take the
        last run's place.
        """
        storage = study._storage
        for trial in trials_of(study):
            if trial.number < self.settings.pilots or trial.state != TrialState.WAITING:
                continue
            try:
                fail_unstarted(storage, trial._trial_id)
            except UpdateFinishedTrialError:
                continue
            _logger.warning(
                "Trial %d was enqueued before all pilots had ended and would have become the last "
                "run, because there are %d pilots and others have these numbers. It is dropped "
                "and costs nothing. To choose the last run by hand, enqueue it when all pilots "
                "have ended.",
                trial.number,
                self.settings.pilots,
            )


def checked_choose(choose: Any) -> Choose:
    """Returns ``choose`` if it is a way to choose; refuses anything else."""
    if choose in ("best", "model") or callable(choose):
        found: Choose = choose
        return found
    raise InvalidArgumentError(
        "choose",
        choose,
        "it must be 'best', 'model', or a function of a list of (params, values) that returns "
        "the last run's hyperparameters",
    )


def name_of(choose: Choose) -> str:
    """How the plan names a way to choose."""
    if isinstance(choose, str):
        return choose
    kind: Any = choose if hasattr(choose, "__qualname__") else type(choose)
    return f"the function {kind.__module__}.{kind.__qualname__}"


def directions_of(study: Study) -> list[float]:
    """Returns for each objective 1 if more is better, -1 if less is."""
    return [1.0 if d.name == "MAXIMIZE" else -1.0 for d in study.directions]


def given_by_hand(trial: FrozenTrial) -> bool:
    """Whether a trial's hyperparameters, or some of them, were enqueued."""
    return was_enqueued(trial) or bool(trial.params)
