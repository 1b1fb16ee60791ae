"""Slots: no more runs than planned, whatever the number of workers.

A trial's number says whether it has a slot. The procedure decides, through the strategy that the
sampler holds (:mod:`optuna_dp.study.slot_strategy`). Trial numbers are unique and consecutive
on every Optuna storage, so nothing races.

=====================  =========================================================================
hook                   what happens there
=====================  =========================================================================
``before_trial``       the trial is claimed (:mod:`optuna_dp.study.claims`). Trial 0 writes the
                       plan; others wait for it. The slot gets its tie-break. The loop is stopped
                       when the last slot has started.
``infer_relative...``  a trial without a slot ends here, before it has parameters.
``sample_relative``    the slot's joint draw, stored with the space it was drawn from.
``sample_independent`` whatever was not drawn jointly.
``after_trial``        marks a run that failed before it began, and one that was pruned.
=====================  =========================================================================
"""

from __future__ import annotations

import logging
import threading
import weakref
from collections.abc import Sequence

import optuna
from optuna.distributions import BaseDistribution
from optuna.exceptions import UpdateFinishedTrialError
from optuna.samplers import BaseSampler
from optuna.study import Study
from optuna.trial import FrozenTrial, Trial, TrialState

from optuna_dp.core.optuna_internals import storage_of, study_id_of, whole_study
from optuna_dp.errors import PlanError
from optuna_dp.study import entries, entropy
from optuna_dp.study.asking import (
    BEYOND,
    OfThisPackage,
    TakenByAnother,
    install,
    is_asked_for,
    note_beyond,
)
from optuna_dp.study.claims import claim
from optuna_dp.study.drawn_slots import NOT_DRAWN, new_draws
from optuna_dp.study.draws import (
    Space,
    as_stored,
    check_choices,
    draw_entry,
    drawn_jointly,
    is_by_index,
    value_of_run,
)
from optuna_dp.study.given_back import NOT_BEGUN, give_back
from optuna_dp.study.plan import Design, StudyPlan
from optuna_dp.study.shared_plan import check_same_design, plan_for
from optuna_dp.study.slot_strategy import Slot, SlotStrategy
from optuna_dp.study.trials import (
    TIE_BITS,
    SlotEntry,
    did_nothing,
    direction_of,
    ended,
    fail_unstarted,
    leading_trial,
    own_slot,
    refuse_constraints,
)
from optuna_dp.study.under_way import TrialUnderWay, UnderWay

_logger = logging.getLogger("optuna_dp")


class _StudySet(weakref.WeakSet):  # type: ignore[type-arg]
    """Studies of this process; empty once it is copied into another one."""

    def __reduce__(self) -> tuple[type[_StudySet], tuple[()]]:
        return _StudySet, ()


class SlotSampler(OfThisPackage, BaseSampler):
    """The sampler of every study here: the plan, the slots, the gate behind the last one.

    A public sampler is a subclass whose arguments make a strategy, and nothing else.

    Args:
        strategy: What the procedure decides: which trials are runs, and how their hyperparameters
            are drawn.

    Attributes:
        strategy: That strategy.
        under_way: The sampler's trials under way in this process.

    Guarantees:
        * No more slots are ever started than the plan has (a private selection ends with exactly
          as many), on every storage and with any number of workers; a trial without a slot ends
          before it has parameters.
        * A worker that was configured differently ends before its objective is called, and before
          it takes a run. If it began before the first worker had written the plan, it has taken
          one; the study then cannot be released.
    """

    def __init__(self, strategy: SlotStrategy) -> None:
        self.strategy = strategy
        self.under_way = UnderWay()
        self._designs: dict[str, tuple[Design, str]] = {}
        self._last_plan: tuple[object, StudyPlan] | None = None
        # Studies whose plan was found to be this sampler's: it does not change.
        self._of_same_plan = _StudySet()
        install()

    def __repr__(self) -> str:
        # A seed would reveal T to readers of a log.
        settings = {name: repr(v) for name, v in self.strategy.public_settings().items()}
        settings |= {} if self.strategy.seed is None else {"seed": "<given>"}
        words = ", ".join(f"{name}={value}" for name, value in settings.items())
        return f"{type(self).__name__}({words})"

    # Optuna's hooks.

    def reseed_rng(self) -> None:
        """Does nothing: no draw uses a state that workers could share."""

    def check_before_asking(self, study: Study) -> None:
        """See :class:`OfThisPackage`; looks once, as soon as the study has a plan."""
        if study in self._of_same_plan:
            return
        leader = leading_trial(storage_of(study), study_id_of(study))
        if leader is None or not entries.PLAN.is_in(leader):
            return
        plan = self._parsed(entries.PLAN.of(leader))
        check_same_design(*self.own_design(study), plan, consequence=" No run is lost.")
        self._of_same_plan.add(study)

    def before_trial(self, study: Study, trial: FrozenTrial) -> None:
        """Gives the trial its slot.

        Raises:
            TakenByAnother: If another worker has won the trial; ``study.ask`` takes the next.
        """
        # First of all: whatever comes later may fail the trial, which may be another worker's.
        # A trial that has begun and was not asked for is continued by its owner.
        continued = own_slot(trial) is not None and not is_asked_for()
        if not continued and not claim(study, trial):
            raise TakenByAnother("This trial is another worker's.")
        try:
            self.strategy.check_directions(study)
            self.strategy.check_admitted(self._slot(study, trial))
            self._begin(study, trial)
        except UpdateFinishedTrialError:
            raise PlanError(
                "A trial was marked as failed while this worker was starting it. It counts as a "
                "failed run. Start the worker again for the other runs."
            ) from None  # Optuna's error has the trial's number.
        except BaseException:
            # Optuna would leave the trial running, and others would wait for it for ever.
            if not ended(entries.stored_trial(study, trial)):
                fail_unstarted(study, trial)
            raise

    def _begin(self, study: Study, trial: FrozenTrial) -> None:
        # What stands under the same id and is not this trial's is gone from here on.
        trial_under_way = self.under_way.drop(study, trial)
        plan = plan_for(study, trial, lambda: self._new_plan(study), self._parsed)
        full_study = whole_study(study)
        full_study.pruner = self.strategy.pruner_for(full_study.pruner)
        slot = Slot(study, trial, self.under_way, plan)

        def check_design(consequence: str) -> None:
            check_same_design(*self.own_design(study), plan, consequence=consequence)

        if not self.strategy.has_slot(slot, check_design):
            entries.BEYOND.write(study, trial)
            note_beyond()
            return
        me = threading.get_ident()
        stored_slot = own_slot(trial)
        if stored_slot is not None:
            # Optuna makes a Trial anew from a running one, or it was given back: its slot stays.
            stored_entry = SlotEntry.from_json(stored_slot)
            if stored_entry.nonce != plan.nonce:
                raise PlanError(NOT_DRAWN)
            trial_under_way = trial_under_way or TrialUnderWay(me, plan, stored_entry)
            trial_under_way.thread = me
            self.under_way.put(study, trial, trial_under_way)
            if entries.GIVEN_BACK.of(trial):
                entries.GIVEN_BACK.write(study, trial, False)
            return
        entry = SlotEntry(
            number=trial.number,
            nonce=plan.nonce,
            fingerprint=self.own_design(study)[1],
            tie_break=entropy.bits(self.strategy.seed, "tie-break", trial.number)(TIE_BITS),
            sampler=type(full_study.sampler).__name__,
            draws=new_draws(self.strategy.seed, trial.number),
            plan=plan.digest,
        )
        self.strategy.before_slot(slot)
        entries.SLOT.write(study, trial, entry.to_json())
        check_same_design(*self.own_design(study), plan)
        self._of_same_plan.add(study)
        self.under_way.put(study, trial, TrialUnderWay(me, plan, entry))

    def infer_relative_search_space(self, study: Study, trial: FrozenTrial) -> Space:
        """Returns what is drawn jointly; ends trials that have no slot."""
        self.strategy.check_directions(study)
        slot = self._slot(study, trial)
        if self.strategy.is_beyond(slot):
            self.strategy.when_beyond(slot)
            raise optuna.TrialPruned(BEYOND)
        check_same_design(*self.own_design(study), slot.plan)
        space = self.strategy.joint_space(slot)
        return {name: as_stored(distribution) for name, distribution in space.items()}

    def sample_relative(
        self, study: Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, object]:
        """Draws the slot's joint parameters and stores the draw.

        What is drawn by its index is left out: Optuna would compare its choices with those that
        the objective names, and a storage may have changed their form. ``sample_independent``
        reads it from the entry.
        """
        self.strategy.check_directions(study)
        if not search_space:
            return {}
        self.strategy.warn_of_fixed(search_space)
        handed_on = {name: d for name, d in search_space.items() if not is_by_index(d)}
        if self.strategy.is_drawn_alone(trial.number):
            return {
                name: self.sample_independent(study, trial, name, distribution)
                for name, distribution in handed_on.items()
            }
        # A Trial object may be made again from a running trial: it is drawn once.
        entry_of_draw = entries.DRAW.of(entries.stored_trial(study, trial))
        if entry_of_draw is not None:
            return {
                name: d.to_external_repr(entry_of_draw["internal"][name])
                for name, d in handed_on.items()
                if name in entry_of_draw["internal"]
            }
        params, notes = self.strategy.joint_draw(self._slot(study, trial), search_space)
        entry = {**draw_entry(params, search_space), **notes}
        entries.DRAW.write(study, trial, entry)
        return {name: value_of_run(d, params[name]) for name, d in handed_on.items()}

    def sample_independent(
        self,
        study: Study,
        trial: FrozenTrial,
        param_name: str,
        param_distribution: BaseDistribution,
    ) -> object:
        """Draws one parameter, unless it was drawn jointly."""
        self.strategy.check_directions(study)
        self.strategy.warn_of_fixed([param_name])
        if is_by_index(param_distribution):
            check_choices(param_name, param_distribution)
            stored = entries.stored_trial(study, trial)
            index = drawn_jointly(stored, param_name, param_distribution)
            if index is not None:
                return param_distribution.to_external_repr(index)
        value = self.strategy.value(self._slot(study, trial), param_name, param_distribution)
        return value_of_run(param_distribution, value)

    def after_trial(
        self, study: Study, trial: FrozenTrial, state: TrialState, values: Sequence[float] | None
    ) -> None:
        """Forgets the trial, and marks one that never began and one that was pruned.

        Raises:
            InvalidArgumentError: If the trial has constraints, or the procedure refuses it.
        """
        trial_under_way = self.under_way.drop(study, trial)
        if state == TrialState.FAIL and not entries.SLOT.is_in(trial) and did_nothing(trial):
            # study.tell(number, state=FAIL) for a run whose worker died before it began.
            entries.UNSTARTED.write(study, trial)
        if state == TrialState.PRUNED and values is not None:
            entries.WAS_PRUNED.write(study, trial)
        if trial_under_way is not None and state == TrialState.COMPLETE:
            self._warn_of_unused(trial)
        plan = None if trial_under_way is None else trial_under_way.plan
        self.strategy.after_trial(Slot(study, trial, self.under_way, plan), state, values)
        if trial_under_way is not None and state == TrialState.COMPLETE:
            refuse_constraints(trial)

    def _warn_of_unused(self, trial: FrozenTrial) -> None:
        unused = sorted((self.strategy.search_space or {}).keys() - trial.params.keys())
        if unused:
            self.strategy.warn_once(
                f"A run did not ask for {unused} of search_space. That is right if other "
                "parameters decide which are used. If a name is a typing error, start a new study."
            )

    def note_failure(self, study: Study, error: Exception) -> None:
        """See :class:`OfThisPackage`."""
        self.strategy.note_failure(study, error)

    def gives_back(self, study: Study, trial: Trial, error: Exception) -> bool:
        """See :class:`OfThisPackage`."""
        if not give_back(study, entries.stored_trial(study, trial), error):
            return False
        _logger.warning("%s", NOT_BEGUN)
        return True

    def value_without_score(self, study: Study, trial: Trial) -> float | None:
        """See :class:`OfThisPackage`."""
        return self.strategy.value_without_score(trial.number)

    def _slot(self, study: Study, trial: FrozenTrial) -> Slot:
        return Slot(study, trial, self.under_way)

    # The plan.

    def _design(self, direction: str) -> Design:
        """Returns what all workers must agree on."""
        return Design(
            procedure=self.strategy.procedure,
            sampler=type(self).__name__,
            direction=direction,
            seeded=self.strategy.seed is not None,
            settings=self.strategy.settings().to_json(),
        )

    def __getstate__(self) -> dict[str, object]:
        return {**self.__dict__, "_last_plan": None, "_of_same_plan": _StudySet()}

    def __setstate__(self, state: dict[str, object]) -> None:
        self.__dict__.update(state)
        install()  # A worker of another process makes no sampler, it is sent one.

    def _parsed(self, entry: object) -> StudyPlan:
        """Returns the plan that an entry holds; reads the very same entry only once."""
        cache = self._last_plan
        if cache is None or cache[0] is not entry:
            cache = self._last_plan = (entry, StudyPlan.from_json(entry))
        return cache[1]

    def own_design(self, study: Study) -> tuple[Design, str]:
        """What this worker was configured with, and its fingerprint."""
        direction = direction_of(study)
        if direction not in self._designs:
            # Settings do not change once a sampler is made; three looks per trial add up.
            design = self._design(direction)
            self._designs[direction] = design, design.fingerprint
        return self._designs[direction]

    def _new_plan(self, study: Study) -> StudyPlan:
        design, _ = self.own_design(study)
        slots = self.strategy.number_of_slots(entropy.bits(self.strategy.seed, "slots"))
        return StudyPlan.drawn(design, slots)
