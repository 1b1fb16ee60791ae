"""Slots: no more runs than planned, whatever the number of workers.

A trial's number says whether it has a slot: the procedure decides (:meth:`SlotSampler._has_slot`).
Trial numbers are unique and consecutive on every Optuna storage, so nothing races.

=====================  =========================================================================
hook                   what happens there
=====================  =========================================================================
``before_trial``       the trial is claimed (:mod:`optuna_dp.protocol.claims`). Trial 0 writes the
                       plan; others wait for it. The slot gets its tie-break. The loop is stopped
                       when the last slot has started.
``infer_relative...``  a trial without a slot ends here, before it has parameters.
``sample_relative``    the slot's joint draw, recorded with the space it was drawn from.
``sample_independent`` whatever was not drawn jointly.
``after_trial``        marks a run that failed before it began, and one that was pruned.
=====================  =========================================================================
"""

from __future__ import annotations

import json
import logging
import threading
import weakref
from abc import abstractmethod
from typing import Any

import optuna
from optuna.distributions import BaseDistribution, distribution_to_json
from optuna.exceptions import UpdateFinishedTrialError
from optuna.pruners import BasePruner
from optuna.samplers import BaseSampler
from optuna.study import Study
from optuna.trial import FrozenTrial, TrialState

from optuna_dp.errors import InvalidArgumentError, PlanError
from optuna_dp.json_records import Record
from optuna_dp.optuna_internals import (
    is_in_optimize_loop,
    storage_of,
    study_id_of,
    trial_id_of,
    whole_study,
)
from optuna_dp.protocol import entropy
from optuna_dp.protocol.asking import (
    BEYOND,
    OfThisPackage,
    TakenByAnother,
    is_asked_for,
    is_beyond,
)
from optuna_dp.protocol.claims import claim
from optuna_dp.protocol.draws import (
    Space,
    as_stored,
    check_choices,
    checked_space,
    draw_record,
    drawn_jointly,
    is_by_index,
)
from optuna_dp.protocol.plan import PLAN_KEY, Design, StudyPlan
from optuna_dp.protocol.pruners import guarded
from optuna_dp.protocol.records import (
    DRAW_KEY,
    GATE_KEY,
    SLOT_KEY,
    TIE_BITS,
    UNSTARTED_KEY,
    WAS_PRUNED_KEY,
    SlotRecord,
    did_nothing,
    direction_of,
    fail_unstarted,
    leading_trial,
    own_slot,
)
from optuna_dp.protocol.retries import keep_from
from optuna_dp.protocol.shared_plan import check_same_design, plan_for, written_plan
from optuna_dp.protocol.under_way import Known, UnderWay

_logger = logging.getLogger("optuna_dp")

# Said of a trial whose hyperparameters were given by hand. Without its number: beyond the last
# run that is T.
NOT_DRAWN = (
    "A trial was enqueued or copied, by hand or by a callback that retries failed trials. Its "
    "parameters were not drawn by the sampler, so it is not run. Unless all runs had started "
    "before, the study has no privacy guarantee. Start a new study without enqueued trials, or "
    "use BudgetSampler(plan_budget(...)), which allows them."
)
# A joint draw, and what the curator may want to know of it.
Drawn = tuple[dict[str, Any], dict[str, Any]]


class _StudySet(weakref.WeakSet):  # type: ignore[type-arg]
    """Studies of this process; empty once it is copied into another one."""

    def __reduce__(self) -> Any:
        return _StudySet, ()


class SlotSampler(OfThisPackage, BaseSampler):
    """Base of all samplers here: the plan, the slots, the gate behind the last one.

    Guarantees:
        * No more slots are ever started than the plan has (a private selection ends with exactly
          as many), on every storage and with any number of workers; a trial without a slot ends
          before it has parameters.
        * A worker that was configured differently ends before its objective is called, and before
          it takes a run. If it began before the first worker had written the plan, it has taken
          one; the study then cannot be released.
    """

    def __init__(self, search_space: Space | None, *, seed: int | None) -> None:
        self._search_space = checked_space(search_space)
        self._seed = checked_seed(seed)
        self.under_way = UnderWay()
        self._designs: dict[str, tuple[Design, str]] = {}
        self._told: set[str] = set()
        self._last_plan: tuple[Any, StudyPlan] | None = None
        # Studies whose plan was found to be this sampler's: it does not change.
        self._of_same_plan = _StudySet()

    # What a procedure supplies.

    _procedure: str  # The procedure of the study.

    @abstractmethod
    def _settings(self) -> Record:
        """Returns the procedure's own settings, as the plan records them."""

    @abstractmethod
    def _draw_slots(self, bits: entropy.Bits) -> int:
        """Returns the number of runs of a new study."""

    def _space_of(self, study: Study, plan: StudyPlan, number: int) -> Space:
        """Returns the parameters that this slot draws jointly."""
        return self._search_space or {}

    @abstractmethod
    def _draw(self, study: Study, plan: StudyPlan, number: int, space: Space) -> Drawn:
        """Returns the slot's joint draw."""

    def _in_words(self) -> dict[str, Any]:
        """What :meth:`__repr__` shows, by argument: public settings only."""
        settings: dict[str, Any] = {}
        if self._search_space is not None:
            settings["search_space"] = list(self._search_space)
        return settings

    def __repr__(self) -> str:
        # A seed would reveal T to readers of a log.
        settings = {name: repr(value) for name, value in self._in_words().items()}
        settings |= {} if self._seed is None else {"seed": "<given>"}
        words = ", ".join(f"{name}={value}" for name, value in settings.items())
        return f"{type(self).__name__}({words})"

    def _check_admitted(self, study: Study, trial: FrozenTrial) -> None:
        """Refuses a study, or a trial, that cannot be one of the procedure's."""
        self._refuse_several_objectives(study)

    @abstractmethod
    def _has_slot(self, study: Study, plan: StudyPlan, trial: FrozenTrial) -> bool:
        """Returns whether a trial that starts is a run; may wait for others, and end the loop."""

    @abstractmethod
    def _is_beyond(self, study: Study, plan: StudyPlan, trial: FrozenTrial) -> bool:
        """Returns whether a trial was found to have no slot when it started."""

    @abstractmethod
    def _value_of(
        self, study: Study, trial: FrozenTrial, name: str, distribution: BaseDistribution
    ) -> Any:
        """Returns the value of one parameter that was not drawn jointly."""

    @staticmethod
    def stop(study: Study) -> None:
        """Ends the loop of ``optimize`` after the running trials; quiet under ask/tell."""
        if is_in_optimize_loop(study):
            study.stop()

    def _guarded(self, pruner: BasePruner) -> BasePruner:
        """Returns what stands in for the study's pruner."""
        return guarded(pruner)

    # Optuna's hooks.

    def _refuse_several_objectives(self, study: Study) -> None:
        if len(study.directions) > 1:
            raise InvalidArgumentError(
                "directions",
                [direction.name.lower() for direction in study.directions],
                f"{type(self).__name__} chooses by one score and does not take multi-objective "
                "studies",
                "Make the study with direction=, and return one number. For several objectives "
                "use BudgetSampler(plan_budget(...), choose=<a function>).",
            )

    def reseed_rng(self) -> None:
        """Does nothing: no draw uses a state that workers could share."""

    def check_before_asking(self, study: Study) -> None:
        """See :class:`OfThisPackage`; looks once, as soon as the study has a plan."""
        if study in self._of_same_plan:
            return
        leader = leading_trial(storage_of(study), study_id_of(study))
        if leader is None or PLAN_KEY not in leader.system_attrs:
            return
        plan = self._parsed(leader.system_attrs[PLAN_KEY])
        check_same_design(*self.own_design(study), plan, consequence=" No run is lost.")
        self._of_same_plan.add(study)

    def before_trial(self, study: Study, trial: FrozenTrial) -> None:
        """Gives the trial its slot.

        Raises:
            TakenByAnother: If another worker has won the trial; ``study.ask`` takes the next.
        """
        storage = storage_of(study)
        # First of all: whatever comes later may fail the trial, which may be another worker's.
        # A trial that has begun and was not asked for is continued by its owner.
        continued = own_slot(trial) is not None and not is_asked_for()
        if not continued and not claim(study, trial):
            raise TakenByAnother("This trial is another worker's.")
        try:
            self._check_admitted(study, trial)
            self._begin(study, trial)
        except UpdateFinishedTrialError:
            raise PlanError(
                "A trial was marked as failed while this worker was starting it. It counts as a "
                "failed run. Start the worker again for the other runs."
            ) from None  # Optuna's error has the trial's number.
        except BaseException:
            # Optuna would leave the trial running, and others would wait for it for ever.
            if not storage.get_trial(trial_id_of(trial)).state.is_finished():
                fail_unstarted(storage, trial_id_of(trial))
            raise

    def _begin(self, study: Study, trial: FrozenTrial) -> None:
        storage = storage_of(study)
        # What stands under the same id and is not this trial's is gone from here on.
        entry = self.under_way.drop(study, trial)
        plan = plan_for(study, trial, lambda: self._new_plan(study), self._parsed)
        full_study = whole_study(study)
        full_study.pruner = self._guarded(full_study.pruner)
        if not self._has_slot(study, plan, trial):
            storage.set_trial_system_attr(trial_id_of(trial), GATE_KEY, True)
            is_beyond()
            return
        me = threading.get_ident()
        stored_slot = own_slot(trial)
        if stored_slot is not None:
            # Optuna makes a Trial anew from a running one: its slot stays as it is.
            stored_record = SlotRecord.from_json(stored_slot)
            if stored_record.nonce != plan.nonce:
                raise PlanError(NOT_DRAWN)
            entry = entry or Known(me, plan, stored_record)
            entry.thread = me
            self.under_way.put(study, trial, entry)
            return
        record = SlotRecord(
            number=trial.number,
            nonce=plan.nonce,
            fingerprint=self.own_design(study)[1],
            tie_break=entropy.bits(self._seed, "tie-break", trial.number)(TIE_BITS),
            sampler=type(full_study.sampler).__name__,
            draws=self._new_draws(trial.number),
            plan=plan.digest,
        )
        self._mark(study, trial)
        storage.set_trial_system_attr(trial_id_of(trial), SLOT_KEY, record.to_json())
        check_same_design(*self.own_design(study), plan)
        self._of_same_plan.add(study)
        self.under_way.put(study, trial, Known(me, plan, record))

    def _mark(self, study: Study, trial: FrozenTrial) -> None:
        """Writes what a trial with a slot must have on record; just before the slot's record.

        A worker that dies in between leaves a trial without a slot, which counts as a failed run.
        """

    def infer_relative_search_space(self, study: Study, trial: FrozenTrial) -> Space:
        """Returns what is drawn jointly; ends trials that have no slot."""
        self._refuse_several_objectives(study)
        plan = self._plan_of(study, trial)
        if self._is_beyond(study, plan, trial):
            raise optuna.TrialPruned(BEYOND)
        check_same_design(*self.own_design(study), plan)
        space = self._space_of(study, plan, trial.number)
        return {name: as_stored(distribution) for name, distribution in space.items()}

    def sample_relative(
        self, study: Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        """Draws the slot's joint parameters and records the draw.

        What is drawn by its index is left out: Optuna would compare its choices with those that
        the objective names, and a storage may have changed their form. ``sample_independent``
        reads it from the record.
        """
        self._refuse_several_objectives(study)
        if not search_space:
            return {}
        handed_on = {name: d for name, d in search_space.items() if not is_by_index(d)}
        # A Trial object may be made again from a running trial: it is drawn once.
        record_of_draw = storage_of(study).get_trial(trial_id_of(trial)).system_attrs.get(DRAW_KEY)
        if record_of_draw is not None:
            return {
                name: d.to_external_repr(record_of_draw["internal"][name])
                for name, d in handed_on.items()
                if name in record_of_draw["internal"]
            }
        plan = self._plan_of(study, trial)
        params, notes = self._draw(study, plan, trial.number, search_space)
        record = {**draw_record(params, search_space), **notes}
        storage_of(study).set_trial_system_attr(trial_id_of(trial), DRAW_KEY, record)
        return {name: params[name] for name in handed_on}

    def sample_independent(
        self,
        study: Study,
        trial: FrozenTrial,
        param_name: str,
        param_distribution: BaseDistribution,
    ) -> Any:
        """Draws one parameter, unless it was drawn jointly."""
        self._refuse_several_objectives(study)
        if is_by_index(param_distribution):
            check_choices(param_name, param_distribution)
            record = storage_of(study).get_trial(trial_id_of(trial))
            index = drawn_jointly(record, param_name, param_distribution)
            if index is not None:
                return param_distribution.to_external_repr(index)
        return self._value_of(study, trial, param_name, param_distribution)

    def after_trial(
        self, study: Study, trial: FrozenTrial, state: TrialState, values: Any
    ) -> None:
        """Forgets the trial, and marks one that never began and one that was pruned."""
        entry = self.under_way.drop(study, trial)
        if state == TrialState.FAIL and SLOT_KEY not in trial.system_attrs and did_nothing(trial):
            # study.tell(number, state=FAIL) for a run whose worker died before it began.
            storage_of(study).set_trial_system_attr(trial_id_of(trial), UNSTARTED_KEY, True)
        if state == TrialState.PRUNED and values is not None:
            storage_of(study).set_trial_system_attr(trial_id_of(trial), WAS_PRUNED_KEY, True)
        if entry is None:
            return
        unused = sorted((self._search_space or {}).keys() - trial.params.keys())
        if unused and state == TrialState.COMPLETE:
            self._warn_once(
                f"A run did not ask for {unused} of search_space. That is right if other "
                "parameters decide which are used. If a name is a typing error, start a new study."
            )

    def _warn_once(self, message: str) -> None:
        if message not in self._told:
            self._told.add(message)
            _logger.warning(message)

    def _new_draws(self, number: int) -> int:
        return entropy.bits(self._seed, "draws", number)(entropy.KEY_BITS)

    # The plan.

    def _design(self, direction: str) -> Design:
        """Returns what all workers must agree on."""
        return Design(
            procedure=self._procedure,
            sampler=type(self).__name__,
            direction=direction,
            seeded=self._seed is not None,
            settings=self._settings().to_json(),
        )

    def _plan_of(self, study: Study, trial: FrozenTrial) -> StudyPlan:
        """Returns the plan under which a trial runs."""
        entry = self.under_way.get(study, trial)
        if entry is not None:
            return entry.plan
        return written_plan(study)

    def _asked_by_this_thread(self, study: Study, trial: FrozenTrial) -> bool:
        entry = self.under_way.get(study, trial)
        return entry is not None and entry.thread == threading.get_ident()

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_last_plan": None, "_of_same_plan": _StudySet()}

    def _parsed(self, record: Any) -> StudyPlan:
        """Returns the plan that a record holds; reads the very same record only once."""
        cache = self._last_plan
        if cache is None or cache[0] is not record:
            cache = self._last_plan = (record, StudyPlan.from_json(record))
        return cache[1]

    def _recorded_space(self) -> dict[str, Any] | None:
        """The search space as plans record it: Optuna's JSON; None is define-by-run."""
        space = self._search_space
        if space is None:
            return None
        return {name: json.loads(distribution_to_json(d)) for name, d in space.items()}

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
        slots = self._draw_slots(entropy.bits(self._seed, "slots"))
        return StudyPlan.drawn(design, slots)


# A retried run is refused at release; without retries the study is not lost to one.
keep_from(SlotSampler)


def checked_seed(seed: Any) -> int | None:
    """Returns a seed if it is one, or None; refuses anything else."""
    if seed is None or (isinstance(seed, int) and not isinstance(seed, bool)):
        return seed
    raise InvalidArgumentError("seed", seed, "it must be a whole number or None")
