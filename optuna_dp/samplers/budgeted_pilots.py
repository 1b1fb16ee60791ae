"""Optuna's hooks in a study with a budget: pilots in the open, rung by rung, then the last run."""

from __future__ import annotations

import logging
from typing import Any

from optuna.distributions import BaseDistribution, json_to_distribution
from optuna.pruners import BasePruner
from optuna.study import Study
from optuna.trial import FrozenTrial, TrialState

from optuna_dp.densities.adaptive_density import describe_model
from optuna_dp.densities.surrogate import GaussianProcess, ScoreModel, checked_model
from optuna_dp.errors import InvalidArgumentError, PlanError, WaitError
from optuna_dp.planning.budget_plan import BudgetPlan
from optuna_dp.protocol import entropy
from optuna_dp.protocol.draws import Space, draw_record
from optuna_dp.protocol.open_runs import began
from optuna_dp.protocol.pilot_keys import PILOT_KEY
from optuna_dp.protocol.plan import StudyPlan
from optuna_dp.protocol.records import (
    DRAW_KEY,
    GATE_KEY,
    fail_unstarted,
    trial_id_of,
    trials_of,
)
from optuna_dp.protocol.shared_plan import check_same_design, refuse
from optuna_dp.protocol.slots import Drawn
from optuna_dp.samplers.budget_choice import Choose, Chosen, chosen, climbers, with_outputs
from optuna_dp.samplers.budget_runs import (
    BudgetRuns,
    checked_choose,
    directions_of,
    given_by_hand,
    name_of,
)
from optuna_dp.samplers.budget_settings import BudgetSettings
from optuna_dp.samplers.pilot_phase import PilotPhase
from optuna_dp.samplers.pilot_pruner import wrapped

_logger = logging.getLogger("optuna_dp")


class BudgetedPilots(PilotPhase):
    """The part of :class:`optuna_dp.PilotSampler` that is there for a plan.

    Attributes:
        _budget: What happens in which slot; None in a study without a plan, for which nothing
            here differs from the class above.
    """

    _budget: BudgetRuns | None

    def _budget_of(
        self, plan: BudgetPlan, choose: Any, surrogate: ScoreModel | None
    ) -> BudgetRuns:
        """Checks how the last run is chosen."""
        how: Choose = checked_choose(choose)
        if surrogate is not None and how != "model":
            raise InvalidArgumentError(
                "surrogate", surrogate, "with a plan it is for choose='model' only"
            )
        model = checked_model(GaussianProcess() if surrogate is None else surrogate)
        settings = BudgetSettings(
            plan=plan,
            first_batch=self._first_batch,
            pilot_batch_size=self._pilot_batch_size,
            proposer=self._proposer.name,
            choose=name_of(how),
            surrogate=describe_model(model) if how == "model" else None,
            search_space=self._recorded_space(),
        )
        return BudgetRuns(settings, how, model)

    # The plan.

    def _draw_slots(self, bits: entropy.Bits) -> int:
        if self._budget is None:
            return self._pilots + super()._draw_slots(bits)
        return self._pilots + self._budget.settings.paid

    # Who may run, and when.

    def _raise_error_if_multi_objective(self, study: Study) -> None:
        if self._budget is None:
            super()._raise_error_if_multi_objective(study)
        elif study._is_multi_objective() and not callable(self._budget.choose):
            raise InvalidArgumentError(
                "choose",
                self._budget.settings.choose,
                "with several objectives it must be a function of a list of (params, values)",
            )

    def _check_admitted(self, study: Study, trial: FrozenTrial) -> None:
        if self._budget is None:
            super()._check_admitted(study, trial)
            return
        try:
            self._raise_error_if_multi_objective(study)
        except InvalidArgumentError:
            fail_unstarted(study._storage, trial._trial_id)
            raise

    def _has_slot(self, study: Study, plan: StudyPlan, trial: FrozenTrial) -> bool:
        if self._budget is None:
            return super()._has_slot(study, plan, trial)
        if began(trial):
            return True
        # Before it begins, so that nothing but a pilot's number is lost.
        check_same_design(*self._own_design(study), plan, lost="")
        if trial.number < self._pilots:
            self._budget.drop_enqueued_too_early(study)
            return True
        begins = self._budget.is_last_run(
            study, trial.number, lambda other: self._asked_by_this_thread(study, other)
        )
        if begins:
            self._ended(study, trial.number, self._pilots)
        if not begins and given_by_hand(trial):
            refuse(
                study._storage,
                trial,
                f"Trial {trial.number} was enqueued, and the study's last run has begun already: "
                "no further run is paid for.",
            )
        if not begins or self._budget.is_last_paid(study, trial.number):
            self._stop(study)
        return bool(begins)

    def _is_beyond(self, study: Study, plan: StudyPlan, trial: FrozenTrial) -> bool:
        if self._budget is None:
            return super()._is_beyond(study, plan, trial)
        if trial.number < self._pilots:
            return False
        return GATE_KEY in study._storage.get_trial(trial._trial_id).system_attrs

    def _guarded(self, pruner: BasePruner) -> BasePruner:
        if self._budget is None:
            return super()._guarded(pruner)
        return wrapped(pruner, self._peers)

    def _peers(self, number: int) -> range:
        """Numbers of the pilots with which one may be compared; none beyond the first rung."""
        return range(self._seen_before(number) if number < self._proposed else 0)

    def after_trial(
        self, study: Study, trial: FrozenTrial, state: TrialState, values: Any
    ) -> None:
        super().after_trial(study, trial, state, values)
        if self._budget is None or not began(trial):
            return
        if trial.number < self._pilots:
            self._budget.drop_enqueued_too_early(study)
        elif state == TrialState.COMPLETE:
            self._stop(study)

    def _batches(self, before: int) -> str:
        if self._budget is not None and before >= self._proposed:
            return ""  # A rung waits for the whole of the one below it.
        return super()._batches(before)

    def _gave_up(self, study: Study, number: int, before: int) -> WaitError:
        if self._budget is None or number < self._pilots:
            return super()._gave_up(study, number, before)
        return WaitError(
            f"Waited {self._timeout:g} seconds (timeout) for the pilots to end. The last run has "
            "not begun and is not lost: continue with study.optimize."
        )

    # With what.

    def _mark(self, study: Study, trial: FrozenTrial) -> None:
        """Marks pilots for :func:`is_pilot`; writes down what the last run is run with."""
        if trial.number < self._pilots:
            study._storage.set_trial_system_attr(trial._trial_id, PILOT_KEY, True)
            return
        if self._budget is None:
            return
        budget, earlier = self._budget, [t for t in trials_of(study) if t.number < self._pilots]
        pilots, signs = with_outputs(earlier, budget.settings.rung_of), directions_of(study)
        found = chosen(budget.choose, pilots, signs, budget.surrogate) if pilots else None
        if found is None and not given_by_hand(trial):
            raise PlanError(
                "No pilot ended with a score, so there is nothing to choose the last run's "
                "hyperparameters by. It has not begun and is not lost: give them by hand, "
                "study.enqueue_trial({...}), and continue with study.optimize."
            )
        if found is not None:
            record = draw_record(*found)
            study._storage.set_trial_system_attr(trial._trial_id, DRAW_KEY, record)
        if given_by_hand(trial):
            _logger.warning(
                "Trial %d, the last run, is run with hyperparameters that were enqueued.",
                trial.number,
            )

    def _value_of(
        self, study: Study, trial: FrozenTrial, name: str, distribution: BaseDistribution
    ) -> Any:
        """Says what a run does not repeat."""
        if self._budget is not None and trial.number >= self._proposed:
            attrs = study._storage.get_trial(trial._trial_id).system_attrs
            if name in attrs.get(DRAW_KEY, {"space": {}})["space"]:
                _logger.warning(
                    "Trial %d was to repeat what a pilot had for %r, and the objective now asks "
                    "for another range, which does not contain it: it is drawn at random. Keep "
                    "the ranges as they are while a study runs.",
                    trial.number,
                    name,
                )
        return super()._value_of(study, trial, name, distribution)

    def _space_of(self, study: Study, plan: StudyPlan, number: int) -> Space:
        if number < self._proposed:
            return self._search_space or {}
        assert self._budget is not None
        if number < self._pilots:
            climber = self._climber(study, number)
            return {} if climber is None else climber[1]
        record = study._storage.get_trial(trial_id_of(study, number)).system_attrs.get(DRAW_KEY)
        space = {} if record is None else record["space"]
        return {name: json_to_distribution(text) for name, text in space.items()}

    def _draw(self, study: Study, plan: StudyPlan, number: int, space: Space) -> Drawn:
        if number < self._proposed:
            return self._proposal(study, number, space), {}
        climber = self._climber(study, number)
        assert climber is not None  # It has a joint space, so it has somebody to repeat.
        return climber[0], {}

    def _climber(self, study: Study, number: int) -> Chosen | None:
        """Whose hyperparameters a pilot of a higher rung repeats, when those below have ended."""
        assert self._budget is not None
        settings = self._budget.settings
        rung = settings.rung_of(number)
        first = settings.begins_at(rung)
        pilots = with_outputs(self._ended(study, number, first), settings.rung_of)
        found = climbers(pilots, rung, directions_of(study))
        if not found:
            return None
        climber = found[(number - first) % len(found)]
        return climber.params, climber.distributions
