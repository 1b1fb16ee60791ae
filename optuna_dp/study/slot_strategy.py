"""Strategy of a sampler: what one procedure decides about the slots of its studies.

Optuna sees one class, :class:`optuna_dp.study.slots.SlotSampler`, which is the same for all
procedures. It holds a :class:`SlotStrategy` and asks it in this order:

=====================  =========================================================================
hook of Optuna         questions to the strategy
=====================  =========================================================================
``before_trial``       ``check_directions`` and ``check_admitted``; ``number_of_slots`` and
                       ``settings``, if the trial is the first and writes the plan; ``pruner_for``;
                       ``has_slot``; ``before_slot``, just before the slot is stored
``infer_relative...``  ``is_beyond``; ``when_beyond`` for a trial without a slot, ``joint_space``
                       for any other
``sample_relative``    ``is_drawn_alone``; ``joint_draw``
``sample_independent`` ``value``
``after_trial``        ``after_trial``
=====================  =========================================================================

A strategy is no sampler and calls none. What it may know of a trial is in a :class:`Slot`.
"""

from __future__ import annotations

import json
import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence

from optuna.distributions import BaseDistribution, distribution_to_json
from optuna.pruners import BasePruner
from optuna.study import Study
from optuna.trial import FrozenTrial, TrialState

from optuna_dp.core.json_entries import Entry
from optuna_dp.core.optuna_internals import is_in_optimize_loop
from optuna_dp.core.value_types import JsonObject, Params
from optuna_dp.errors import InvalidArgumentError
from optuna_dp.study import entropy
from optuna_dp.study.draws import Space, checked_space
from optuna_dp.study.entries import stored_trial
from optuna_dp.study.plan import StudyPlan
from optuna_dp.study.pruners import guarded
from optuna_dp.study.shared_plan import written_plan
from optuna_dp.study.under_way import TrialUnderWay, UnderWay

_logger = logging.getLogger("optuna_dp")

# What a plan of runs fixes, as scripts name it, and where a run says it.
_FIXED = {
    **dict.fromkeys(("batch_size", "train_batch_size", "lot_size"), "run.batch_size"),
    **dict.fromkeys(("steps", "max_steps", "num_steps", "n_steps"), "run.steps"),
    **dict.fromkeys(("epochs", "num_epochs", "n_epochs", "num_train_epochs"), "run.steps"),
    **dict.fromkeys(("noise_multiplier",), "run.noise_multiplier"),
    "sample_rate": "run.sample_rate",
    **dict.fromkeys(("epsilon", "target_epsilon", "target_delta"), "the study's plan"),
}
# A joint draw, and what the curator may want to know of it.
JointDraw = tuple[Params, JsonObject]


class Slot:
    """A trial that has a slot or asks for one, with what this process knows of it.

    Args:
        study: The trial's study.
        trial: The trial, as Optuna hands it to the sampler.
        under_way: The sampler's trials under way in this process.
        plan: The plan under which the trial runs, if it is at hand; it is looked up otherwise.
    """

    def __init__(
        self,
        study: Study,
        trial: FrozenTrial,
        under_way: UnderWay,
        plan: StudyPlan | None = None,
    ) -> None:
        self.study = study
        self.trial = trial
        self._under_way = under_way
        self._plan = plan

    @property
    def number(self) -> int:
        """The trial's number, which is the slot's."""
        return self.trial.number

    @property
    def plan(self) -> StudyPlan:
        """The plan under which the trial runs.

        Raises:
            PlanError: If the study has none.
        """
        if self._plan is None:
            entry = self.entry
            self._plan = written_plan(self.study) if entry is None else entry.plan
        return self._plan

    @property
    def entry(self) -> TrialUnderWay | None:
        """What this process knows of the trial since it began; None if it began elsewhere."""
        return self._under_way.get(self.study, self.trial)

    def stored_trial(self) -> FrozenTrial:
        """Returns the trial as its storage has it now."""
        return stored_trial(self.study, self.trial)

    def is_asked_by_this_thread(self, trial: FrozenTrial) -> bool:
        """Returns whether this thread started another trial of the study.

        Waiting for one would never end.
        """
        return self._under_way.is_of_this_thread(self.study, trial)

    def stop_loop(self) -> None:
        """Ends the loop of ``optimize`` after the running trials; quiet under ask/tell."""
        if is_in_optimize_loop(self.study):
            self.study.stop()


class SlotStrategy(ABC):
    """Decides which trials are runs, and which hyperparameters a run gets.

    Args:
        sampler_name: Class name of the sampler that holds it, for errors.
        search_space: Distributions by parameter name, or None if the objective says them.
        seed: The sampler's seed, or None.

    Attributes:
        procedure: Name of the procedure, as plans store it.
    """

    procedure: str

    def __init__(self, sampler_name: str, search_space: Space | None, seed: int | None) -> None:
        self.sampler_name = sampler_name
        self.search_space = checked_space(search_space)
        self.seed = checked_seed(seed)
        self._logged: dict[str, object] = {}

    def warn_once(self, message: str, about: str = "") -> None:
        """Logs a warning, unless this strategy has logged the same before, or one about the same.

        Args:
            message: The warning.
            about: A name for what it is about, if its words may differ; empty if they do not.
        """
        mark = object()
        # One operation: of threads that warn of the same at once, one finds its own mark.
        if self._logged.setdefault(about or message, mark) is mark:
            _logger.warning("%s", message)

    def warn_of_fixed(self, names: Iterable[str]) -> None:
        """Warns of hyperparameters with the names of what the plan fixes for every run."""
        for name in names if self.plans_runs else ():
            if name in _FIXED:
                self.warn_once(
                    f"The objective suggests {name!r}, and the plan of the study fixes it for "
                    f"every run: {_FIXED[name]} has it. So the suggested value changes nothing in "
                    "a training by the plan, and would be released as if it had. Take the "
                    "parameter out, in a new study. If it means something else, all is well."
                )

    # The plan.

    @property
    def plans_runs(self) -> bool:
        """Whether the plan fixes the noise, the steps and the batch of each run."""
        return False

    @abstractmethod
    def settings(self) -> Entry:
        """Returns the procedure's own settings, as the plan stores them."""

    @abstractmethod
    def number_of_slots(self, bits: entropy.Bits) -> int:
        """Returns the number of runs of a new study; ``bits`` are its random source."""

    def public_settings(self) -> dict[str, object]:
        """Returns what the sampler's ``repr`` shows, by argument: nothing that is secret."""
        return {} if self.search_space is None else {"search_space": list(self.search_space)}

    def recorded_space(self) -> dict[str, JsonObject] | None:
        """Returns the search space as plans store it: Optuna's JSON; None is define-by-run."""
        if self.search_space is None:
            return None
        return {name: json.loads(distribution_to_json(d)) for name, d in self.search_space.items()}

    # Who may run.

    def check_directions(self, study: Study) -> None:
        """Refuses a study with several objectives; the base refuses all of them."""
        if len(study.directions) > 1:
            raise InvalidArgumentError(
                "directions",
                [direction.name.lower() for direction in study.directions],
                problem=f"{self.sampler_name} chooses by one score and does not take "
                "multi-objective studies",
                fix="Make the study with direction=, and return one number. For several "
                "objectives use BudgetSampler(plan_budget(...), choose=<a function>).",
            )

    @abstractmethod
    def check_admitted(self, slot: Slot) -> None:
        """Refuses a trial that cannot be one of the procedure's.

        The study may have no plan yet.
        """

    @abstractmethod
    def has_slot(self, slot: Slot, check_design: Callable[[str], None]) -> bool:
        """Returns whether a trial that starts is a run; may wait for others, and end the loop.

        Args:
            slot: The trial that starts.
            check_design: Refuses a sampler with other settings than the study's plan, with a
                message that ends in the given text. Every trial that gets a slot is checked
                afterwards too. A strategy calls it for a trial that may still be given up
                without losing a run.
        """

    @abstractmethod
    def is_beyond(self, slot: Slot) -> bool:
        """Returns whether a trial was found to have no slot when it started."""

    def when_beyond(self, slot: Slot) -> None:
        """Does what is due in a trial without a slot, before it ends without parameters."""
        return

    def before_slot(self, slot: Slot) -> None:
        """Writes what a trial with a slot must have stored; just before the slot's entry.

        A worker that dies in between leaves a trial without a slot, which counts as a failed run.
        """
        return

    def pruner_for(self, pruner: BasePruner) -> BasePruner:
        """Returns what stands in for the study's pruner."""
        return guarded(pruner)

    # The hyperparameters of a run.

    def is_drawn_alone(self, number: int) -> bool:
        """Returns whether the joint parameters of a slot are drawn by :meth:`value`, too."""
        return False

    @abstractmethod
    def joint_space(self, slot: Slot) -> Space:
        """Returns the parameters that a slot draws jointly; may wait for earlier runs."""

    @abstractmethod
    def joint_draw(self, slot: Slot, space: Space) -> JointDraw:
        """Returns a value for each parameter of ``space``, and notes for the draw's entry."""

    @abstractmethod
    def value(self, slot: Slot, name: str, distribution: BaseDistribution) -> object:
        """Returns the value of one parameter that was not drawn jointly."""

    # The end of a run.

    def after_trial(self, slot: Slot, state: TrialState, values: Sequence[float] | None) -> None:
        """Judges a trial that ends in ``state``, warns of it, refuses it, or ends the loop.

        The study may have no plan.
        """
        return

    def note_failure(self, study: Study, error: Exception) -> None:
        """Notes that an objective raised an error in a run of this process."""
        return

    def value_without_score(self, number: int) -> float | None:
        """Returns what stands in for the score of a run; None if it must have a score."""
        return None


def checked_seed(seed: object) -> int | None:
    """Returns a seed if it is one, or None; refuses anything else."""
    if seed is None or (isinstance(seed, int) and not isinstance(seed, bool)):
        return seed
    raise InvalidArgumentError("seed", seed, allowed="it must be a whole number or None")
