"""Strategy of a private choice among candidates whose utilities are computed without privacy.

=====================  =========================================================================
slot i                 candidate i; its objective reports k utilities, or returns their mean
the trial after those  waits until all have ended, makes the private choice, and has no parameters
=====================  =========================================================================
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import asdict

from optuna.distributions import BaseDistribution
from optuna.pruners import BasePruner, NopPruner
from optuna.trial import TrialState

from optuna_dp.core.validation import whole
from optuna_dp.core.value_types import Params
from optuna_dp.errors import InvalidArgumentError, WaitError
from optuna_dp.mechanisms.choice_plan import ChoicePlan
from optuna_dp.mechanisms.partitions_needed import plan_utilities
from optuna_dp.mechanisms.utility_values import MOST_PARTITIONS_OF_MEANS
from optuna_dp.priors.given_points import to_internal
from optuna_dp.priors.prior import UniformPrior
from optuna_dp.samplers.choice.candidates import candidates_of
from optuna_dp.samplers.choice.choice import make_choice
from optuna_dp.samplers.choice.reported import check_unit
from optuna_dp.samplers.choice.settings import UtilitySettings
from optuna_dp.study import entropy
from optuna_dp.study.drawn_slots import refuse_given_by_hand, value_from_prior, warn_of_seed
from optuna_dp.study.draws import Space, as_stored, check_choices, drawn_once, own_form
from optuna_dp.study.entries import TOTAL_UTILITY
from optuna_dp.study.pruners import SilencedPruner
from optuna_dp.study.slot_strategy import JointDraw, Slot, SlotStrategy
from optuna_dp.study.visible_runs import completed_batches

_logger = logging.getLogger("optuna_dp")


class UtilityPruner(SilencedPruner):
    """Never prunes: a candidate that is dropped half-way has no utility of bounded sensitivity."""

    because = (
        "whether a candidate is pruned may depend on one record, and that record would then move "
        "its utility by more than 1/k."
    )


class UtilityStrategy(SlotStrategy):
    """Candidates as slots, and a private choice after them; arguments as of NoisyMaxSampler.

    Args:
        sampler_name: Class name of the sampler that holds it.
        search_space: Distributions by parameter name, or None.
        procedure: Name of the procedure.
        plan: The mechanism that chooses.
        candidates: The list, the number of draws, or None for a grid.
        n_partitions: k, at least 2.
        resolve: Difference in averaged utility that matters.
        neighboring_relation: The relation under which the guarantee holds.
        seed: Makes the draws of candidates repeatable, or None.
    """

    def __init__(
        self,
        sampler_name: str,
        search_space: dict[str, BaseDistribution] | None,
        *,
        procedure: str,
        plan: ChoicePlan,
        candidates: Sequence[Params] | int | None,
        n_partitions: int,
        resolve: float,
        neighboring_relation: str,
        seed: int | None,
    ) -> None:
        super().__init__(sampler_name, search_space, seed)
        warn_of_seed(sampler_name, self.seed, stacklevel=3)  # Where the sampler is made.
        self.procedure = procedure
        self._plan = plan
        self._n_partitions = whole("n_partitions", n_partitions, 2)
        self._candidates, self._points = candidates_of(self.search_space, candidates)
        self._settings = UtilitySettings(
            plan=plan,
            n_partitions=self._n_partitions,
            candidates=self._candidates,
            search_space=self.recorded_space(),
            neighboring_relation=neighboring_relation,
        )
        plan_utilities(
            plan,
            n_candidates=self._candidates.count,
            n_partitions=self._n_partitions,
            resolve=resolve,
        ).warn(stacklevel=3)

    # The plan.

    def settings(self) -> UtilitySettings:
        """Returns the mechanism, the number of partitions, and where candidates come from."""
        return self._settings

    def number_of_slots(self, bits: entropy.Bits) -> int:
        """Returns the number of candidates."""
        return self._candidates.count

    def public_settings(self) -> dict[str, object]:
        """Returns the arguments, with the number of candidates for their list."""
        return {
            **super().public_settings(),
            "candidates": self._candidates.count,
            "n_partitions": self._n_partitions,
            **asdict(self._plan),
        }

    # Who may run.

    def check_admitted(self, slot: Slot) -> None:
        """Refuses hyperparameters that were given by hand."""
        refuse_given_by_hand(slot)

    def has_slot(self, slot: Slot, check_design: Callable[[str], None]) -> bool:
        """Returns whether the trial is a candidate; the one after the last ends the loop."""
        if slot.number >= slot.plan.slots:
            slot.stop_loop()
        return slot.number < slot.plan.slots

    def is_beyond(self, slot: Slot) -> bool:
        """Returns whether the trial is none of the candidates."""
        return slot.number >= slot.plan.slots

    def when_beyond(self, slot: Slot) -> None:
        """Makes the private choice."""
        try:
            completed_batches(
                slot.study,
                slot.plan.slots,
                is_own=slot.is_asked_by_this_thread,
                batches="",
                otherwise="",
            )
        except WaitError as error:
            _logger.info("The private choice is left to release(): %s", error)
            return
        make_choice(slot.study, slot.plan)

    def pruner_for(self, pruner: BasePruner) -> BasePruner:
        """Nothing prunes in these studies."""
        is_harmless = isinstance(pruner, NopPruner | UtilityPruner)
        return pruner if is_harmless else UtilityPruner(type(pruner).__name__)

    # A candidate's parameters.

    def joint_space(self, slot: Slot) -> Space:
        """Returns the search space."""
        return self.search_space or {}

    def joint_draw(self, slot: Slot, space: Space) -> JointDraw:
        """Returns the candidate of a grid or a list, or a draw."""
        if self._points is not None:
            return self._points[slot.number], {}
        rng = entropy.generator(self.seed, "joint", slot.number)
        return UniformPrior().sample(space, 1, rng).params(0), {}

    def value(self, slot: Slot, name: str, distribution: BaseDistribution) -> object:
        """Returns the candidate's value; draws it where candidates are drawn."""
        if self._points is None:
            return value_from_prior(self, slot, name, distribution)
        point = self._points[slot.number]
        if name not in point:
            raise InvalidArgumentError(
                f"candidates[{slot.number}]",
                point,
                problem=f"the objective asks for {name!r}, which it does not have",
            )
        check_choices(name, distribution)
        if to_internal(as_stored(distribution), point[name]) is None:
            raise InvalidArgumentError(
                f"candidates[{slot.number}][{name!r}]",
                point[name],
                problem=f"the objective asks for {distribution}, which does not contain this "
                "value",
            )
        value = own_form(distribution, point[name])
        return drawn_once(slot.study, slot.trial, name, distribution, lambda: value)

    # The end of a candidate.

    def after_trial(self, slot: Slot, state: TrialState, values: Sequence[float] | None) -> None:
        """Refuses a utility that cannot be used at once, not after the last candidate.

        Raises:
            InvalidArgumentError: If it is outside [0, 1], or too coarse for so many partitions.
        """
        is_candidate = slot.number < self._candidates.count
        if state != TrialState.COMPLETE or values is None or not is_candidate:
            return
        check_unit("objective value", values[0], slot.number)
        if self._n_partitions > MOST_PARTITIONS_OF_MEANS and not TOTAL_UTILITY.is_in(slot.trial):
            raise InvalidArgumentError(
                "n_partitions",
                self._n_partitions,
                problem=f"above {MOST_PARTITIONS_OF_MEANS} the rounding of a mean is not "
                "accounted for",
                fix="Return report_utilities(trial, utilities) from the objective.",
            )
