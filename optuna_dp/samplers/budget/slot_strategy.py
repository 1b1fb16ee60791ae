"""Strategy of a budget: pilot runs rung by rung, then the last run.

Every run is charged for by composition, so nothing about the study is secret
(``docs/explanation/budget.md`` has the proof). The number of a trial says what it is:

=================  ============================================================================
trial number       what it is
=================  ============================================================================
first rung         a pilot that the proposer, any Optuna sampler, proposes from the outputs of
                   the completed batches before it
later rungs        a pilot that repeats one of the best of the rung below, or the first guess
from ``pilots``    the last run, with the hyperparameters that ``choose`` picks; a further one
                   only if it failed and a spare run is charged for
=================  ============================================================================
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Sequence
from typing import Any

from optuna.distributions import BaseDistribution, json_to_distribution
from optuna.samplers import BaseSampler, RandomSampler
from optuna.study import Study
from optuna.trial import FrozenTrial, Trial, TrialState

from optuna_dp.core.validation import whole
from optuna_dp.core.value_types import Params
from optuna_dp.errors import InvalidArgumentError, PlanError
from optuna_dp.evidence.start import end_run, warn_of_failure
from optuna_dp.evidence.stated_run import attribute_names
from optuna_dp.priors.listed import Listed
from optuna_dp.priors.space import check_space
from optuna_dp.samplers.budget.choice import Choose, Pilot, chosen, promoted, with_outputs
from optuna_dp.samplers.budget.last_runs import (
    drop_enqueued_too_early,
    failed_last_run,
    is_last_paid,
    wait_for_turn,
    words_on_failure,
    words_without_scores,
)
from optuna_dp.samplers.budget.plan import BudgetPlan
from optuna_dp.samplers.budget.settings import PROCEDURE, BudgetSettings
from optuna_dp.study import entropy
from optuna_dp.study.draws import (
    Space,
    as_stored,
    check_choices,
    draw_entry,
    drawn_jointly,
    drawn_once,
    own_form,
)
from optuna_dp.study.entries import BEYOND, DRAW
from optuna_dp.study.proposals import Proposer, remember
from optuna_dp.study.shared_plan import refuse
from optuna_dp.study.slot_strategy import JointDraw, Slot, SlotStrategy
from optuna_dp.study.trials import (
    began,
    trials_of,
    was_enqueued,
)
from optuna_dp.study.visible_runs import completed_batches

_logger = logging.getLogger("optuna_dp")
# Where the proposer's trial is kept while its pilot is under way.
_PROPOSAL = "proposal"


_FEWER = (
    "The plan is for a short list of candidates, and no list was given, nor are as many trials "
    "enqueued. The other pilots are charged for in any case. Their hyperparameters are proposed "
    "as in any budget, which found less than good guesses do. Give the list to the sampler, "
    "BudgetSampler(plan, candidates=[...]), or plan for fewer."
)


def _refuse_unused(reason: str, **arguments: object) -> None:
    """Refuses arguments of the sampler that would have no effect."""
    defaults = {"proposer": None, "choose": None, "pilot_batch_size": 1}
    for name, value in arguments.items():
        if value != defaults[name]:
            raise InvalidArgumentError(name, value, problem=reason, fix="Leave it out.")


def _listed(plan: BudgetPlan, candidates: Sequence[Params], space: Space | None) -> Listed:
    """Returns the list as a proposer; refuses one that is not the plan's."""
    if plan.candidates is None:
        raise InvalidArgumentError(
            "candidates",
            candidates,
            problem=f"the plan has {plan.pilots} pilots and is for no list",
            fix="Plan for it: plan_budget(..., candidates=<how many there are>).",
        )
    listed = Listed(candidates, space)
    if len(listed.points) != plan.candidates:
        raise InvalidArgumentError(
            "candidates",
            candidates,
            problem=f"it has {len(listed.points)} candidates, and the plan charges for "
            f"{plan.candidates}",
            fix="Change the list, or plan for it: plan_budget(..., "
            f"candidates={len(listed.points)}).",
        )
    return listed


class BudgetStrategy(SlotStrategy):
    """Pilots, then the last run; arguments as of :class:`~optuna_dp.BudgetSampler`."""

    procedure = PROCEDURE

    def __init__(
        self,
        sampler_name: str,
        plan: BudgetPlan,
        *,
        search_space: dict[str, BaseDistribution] | None,
        proposer: BaseSampler | None,
        candidates: Sequence[Params] | None,
        choose: Choose | None,
        pilot_batch_size: int,
        output_attributes: Sequence[str],
        seed: int | None,
    ) -> None:
        super().__init__(sampler_name, search_space, seed)
        if not isinstance(plan, BudgetPlan):
            raise InvalidArgumentError(
                "plan",
                plan,
                allowed="it must be a BudgetPlan",
                fix="For example plan_budget(epsilon=3, records=20_000, batch_size=256, "
                "epochs=10).",
            )
        if self.search_space is not None:
            check_space(self.search_space)
        if not plan.pilots:
            _refuse_unused(
                "it needs pilots, and the plan has none",
                proposer=proposer,
                choose=choose,
                pilot_batch_size=pilot_batch_size,
            )
        self._proposed = plan.rung_sizes[0] if plan.pilots else 0
        listed = None
        if candidates is not None:
            listed = _listed(plan, candidates, self.search_space)
            _refuse_unused(
                "a list of candidates needs no proposal",
                proposer=proposer,
                pilot_batch_size=pilot_batch_size,
            )
        self._proposer = Proposer(listed or proposer, self._proposed, self.seed)
        self._pilot_batch_size = whole("pilot_batch_size", pilot_batch_size, 1)
        # Pilots that are listed, or drawn at random in any case, need not wait.
        free_pilots = self._proposer.startup if listed is None else self._proposed
        self._first_batch = max(self._pilot_batch_size, free_pilots)
        self._choose = _checked_choose(choose, plan, is_listed=listed is not None)
        self._budget = BudgetSettings(
            plan=plan,
            first_batch=self._first_batch,
            pilot_batch_size=self._pilot_batch_size,
            proposer=self._proposer.name,
            choose=_name_of(self._choose),
            search_space=self.recorded_space(),
            candidates=None if listed is None else listed.points,
            output_attributes=attribute_names(output_attributes),
        )
        self._pilots = plan.pilots
        # By a study's name: the type of the first error of a run in this process.
        self._failures: dict[str, str] = {}

    # The plan.

    @property
    def plans_runs(self) -> bool:
        """Always: a budget charges for runs of its plan."""
        return True

    def settings(self) -> BudgetSettings:
        """Returns the budget plan, and how pilots and the last run get their hyperparameters."""
        return self._budget

    def number_of_slots(self, bits: entropy.Bits) -> int:
        """Returns the number of pilots and of last runs that are charged for."""
        return self._pilots + self._budget.paid

    def public_settings(self) -> dict[str, object]:
        """Returns the plan and the names of the search space and of attributes."""
        settings = {"plan": self._budget.plan, **super().public_settings()}
        if self._budget.output_attributes:
            settings["output_attributes"] = list(self._budget.output_attributes)
        return settings

    # Who may run, and when.

    def check_directions(self, study: Study) -> None:
        """Refuses several objectives, unless a function chooses among the pilots."""
        if self._pilots and len(study.directions) > 1 and not callable(self._choose):
            raise InvalidArgumentError(
                "choose",
                self._choose,
                allowed="with several objectives it must be a function of a list of (params, "
                "values)",
            )

    def check_admitted(self, slot: Slot) -> None:
        """Admits every trial: an enqueued one is a pilot, or the last run."""
        return

    def has_slot(self, slot: Slot, check_design: Callable[[str], None]) -> bool:
        """Returns whether the trial is a pilot or a last run; that waits for earlier runs."""
        study, trial = slot.study, slot.trial
        if began(trial):
            return True
        # Before it begins, so that nothing but a pilot's number is lost.
        check_design("")
        if trial.number < self._pilots:
            drop_enqueued_too_early(study, self._pilots)
            self._warn_of_candidates(trial)
            return True
        if wait_for_turn(study, trial.number, self._budget, slot.is_asked_by_this_thread):
            self._ended_runs(slot, self._pilots)
            if is_last_paid(study, trial.number, self._budget):
                slot.stop_loop()
            return True
        if _given_by_hand(trial):
            refuse(
                study,
                trial,
                f"Trial {trial.number} was enqueued after the study's last run had begun. The "
                "budget has no further run. Release the study: optuna_dp.release(study). To train "
                "once more, add its cost: release.with_training(event).",
            )
        last_run = failed_last_run(trials_of(study), self._budget)
        if last_run is not None:
            _logger.warning("%s", words_on_failure(last_run, self._budget))
        slot.stop_loop()
        return False

    def _warn_of_candidates(self, trial: FrozenTrial) -> None:
        """Warns if a pilot of a short list is not what the list has, or if there is none."""
        if self._budget.plan.candidates is None:
            return
        if self._budget.candidates is None and not _given_by_hand(trial):
            self.warn_once(_FEWER)
        elif self._budget.candidates is not None and _given_by_hand(trial):
            _logger.warning(
                "Trial %d was enqueued and takes the place of candidates[%d], which is not tried.",
                trial.number,
                trial.number,
            )

    def is_beyond(self, slot: Slot) -> bool:
        """Returns whether a trial after the pilots was refused when it started."""
        return slot.number >= self._pilots and BEYOND.is_in(slot.stored_trial())

    def before_slot(self, slot: Slot) -> None:
        """Records the hyperparameters of the last run just before it begins."""
        if slot.number < self._pilots or not self._pilots:
            return
        pilot_trials = [t for t in trials_of(slot.study) if t.number < self._pilots]
        pilots = with_outputs(pilot_trials, self._budget.run_of)
        choice = chosen(self._choose, pilots, _signs_of(slot.study)) if pilots else None
        if choice is None and not _given_by_hand(slot.trial):
            raise PlanError(
                words_without_scores(pilot_trials, self._failures.get(slot.study.study_name))
            )
        if choice is not None:
            entry = draw_entry(*choice)
            DRAW.write(slot.study, slot.trial, entry)
        if _given_by_hand(slot.trial):
            _logger.warning(
                "Trial %d is the last run and uses the hyperparameters that were enqueued.",
                slot.number,
            )

    # Which earlier runs a run may know.

    def _first_of_batch(self, number: int) -> int:
        """Returns where the batch of a first-rung pilot begins: it sees the pilots before that."""
        if number < self._first_batch:
            return 0
        return number - (number - self._first_batch) % self._pilot_batch_size

    def _ended_runs(self, slot: Slot, end: int) -> list[FrozenTrial]:
        """Returns all runs of slots below ``end``; waits until they have ended."""
        return completed_batches(
            slot.study,
            end,
            is_own=slot.is_asked_by_this_thread,
            # A rung waits for the whole of the one below it, whatever the batches.
            batches="BudgetSampler a pilot_batch_size" if end < self._proposed else "",
            otherwise="",
            names_trials=True,
        )

    # The hyperparameters of a run.

    def joint_space(self, slot: Slot) -> Space:
        """Returns the search space for a proposal, and a pilot's own space for a repetition."""
        if slot.number < self._proposed:
            return self.search_space or {}
        if slot.number < self._pilots:
            pilot = self._repeated_pilot(slot)
            return {} if pilot is None else pilot.distributions
        entry = DRAW.of(slot.stored_trial())
        space = {} if entry is None else entry["space"]
        return {name: json_to_distribution(text) for name, text in space.items()}

    def joint_draw(self, slot: Slot, space: Space) -> JointDraw:
        """Returns a proposal, or the hyperparameters of the pilot that is repeated."""
        if slot.number < self._proposed:
            proposal = self._proposal(slot, space)
            remember(slot.study, slot.trial, proposal)
            return dict(proposal.params), {}
        pilot = self._repeated_pilot(slot)
        return ({} if pilot is None else pilot.params), {}

    def _repeated_pilot(self, slot: Slot) -> Pilot | None:
        """Returns the pilot that one of a higher rung repeats, when those below have ended.

        None if no pilot below has an output.
        """
        rung = self._budget.run_of(slot.number).rung
        start = self._budget.begins_at(rung)
        lower_pilots = with_outputs(self._ended_runs(slot, start), self._budget.run_of)
        best_pilots = promoted(lower_pilots, rung, _signs_of(slot.study))
        if not best_pilots:
            return None
        return best_pilots[(slot.number - start) % len(best_pilots)]

    def value(self, slot: Slot, name: str, distribution: BaseDistribution) -> object:
        """Asks the proposer in a first-rung pilot; draws at random in other runs, and says so."""
        if slot.number < self._proposed:
            return self._proposed_value(slot, name, distribution)
        study, trial = slot.study, slot.trial
        stored_trial = slot.stored_trial()
        pilot_value = drawn_jointly(stored_trial, name, distribution)
        if pilot_value is not None:
            # Optuna asks again for a value that was enqueued and lies outside the range.
            return distribution.to_external_repr(pilot_value)
        if name in DRAW.of(stored_trial, {"space": {}})["space"]:
            _logger.warning(
                "Trial %d cannot repeat a pilot's value of %r: the objective now asks for a "
                "range without that value. The value is drawn at random instead. Do not change "
                "ranges while a study runs.",
                trial.number,
                name,
            )
        seed = entropy.bits(self.seed, "independent", trial.number, name)(32)
        uniform = RandomSampler(seed=seed)
        draw = functools.partial(uniform.sample_independent, study, trial, name, distribution)
        check_choices(name, distribution)
        return drawn_once(study, trial, name, distribution, draw)

    def _proposed_value(self, slot: Slot, name: str, distribution: BaseDistribution) -> object:
        check_choices(name, distribution)

        def propose() -> object:
            proposal = self._proposal(slot, self.search_space or {})
            value = self._proposer.suggest(proposal, name, as_stored(distribution))
            remember(slot.study, slot.trial, proposal)
            return own_form(distribution, value)

        return drawn_once(slot.study, slot.trial, name, distribution, propose)

    def _proposal(self, slot: Slot, space: dict[str, BaseDistribution]) -> Trial:
        """Returns the proposer's trial for a pilot, made once while the pilot is under way."""
        entry = slot.entry
        if entry is not None and _PROPOSAL in entry.notes:
            stored_proposal: Trial = entry.notes[_PROPOSAL]
            return stored_proposal
        visible_pilots = self._ended_runs(slot, self._first_of_batch(slot.number))
        # What was added by hand, or run by another sampler, is nobody's private output.
        proposal = self._proposer.ask(
            slot.study.directions, visible_pilots, slot.number, space, is_shown=began
        )
        if entry is not None:
            entry.notes[_PROPOSAL] = proposal
        return proposal

    # The end of a run.

    def after_trial(self, slot: Slot, state: TrialState, values: Sequence[float] | None) -> None:
        """Judges the run, and warns of one that failed; the last run ends the loop."""
        study, trial = slot.study, slot.trial
        if not began(trial):
            return
        end_run(self, slot, state, values)
        if trial.number < self._pilots:
            drop_enqueued_too_early(study, self._pilots)
            warn_of_failure(self, slot, state)
        elif state == TrialState.COMPLETE:
            slot.stop_loop()
        elif is_last_paid(study, trial.number, self._budget):
            _logger.warning("%s", words_on_failure(slot.stored_trial(), self._budget))

    def note_failure(self, study: Study, error: Exception) -> None:
        """Keeps the type of the first error of a study; its text may tell of the records."""
        self._failures.setdefault(study.study_name, type(error).__name__)

    def value_without_score(self, number: int) -> float | None:
        """Returns 0.0 for a run whose score is not charged for, so that it does not fail."""
        return 0.0 if self._budget.run_of(number).scored_on is None else None


def _checked_choose(choose: Choose | None, plan: BudgetPlan, *, is_listed: bool) -> Choose:
    if choose is None:
        return "evidence" if plan.candidates is None else "best"
    if choose == "evidence" and is_listed:
        raise InvalidArgumentError(
            "choose",
            choose,
            problem="no candidate of a short list is the first guess: its best score is taken",
            fix="Leave it out, or give a function of a list of (params, values).",
        )
    if choose in ("evidence", "best") or callable(choose):
        return choose
    raise InvalidArgumentError(
        "choose",
        choose,
        allowed="it must be 'evidence', 'best', or a function of a list of (params, values) that "
        "returns the last run's hyperparameters",
    )


def _name_of(choose: Choose) -> str:
    """Returns how the plan's entry names a way to choose."""
    if isinstance(choose, str):
        return choose
    kind: Any = choose if hasattr(choose, "__qualname__") else type(choose)
    return f"the function {kind.__module__}.{kind.__qualname__}"


def _signs_of(study: Study) -> list[float]:
    """Returns for each objective 1 if more is better, -1 if less is."""
    return [1.0 if d.name == "MAXIMIZE" else -1.0 for d in study.directions]


def _given_by_hand(trial: FrozenTrial) -> bool:
    """Returns whether a trial's hyperparameters, or some of them, were enqueued."""
    return was_enqueued(trial) or bool(trial.params)
