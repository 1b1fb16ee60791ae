"""Slots whose hyperparameters are drawn by the study's sampler, and by nobody else.

A private selection and a choice among utilities charge for the distribution that the draws have.
So an enqueued trial is refused, and every draw is recorded, or follows from the slot's record.
"""

from __future__ import annotations

import functools
import logging
import warnings
from collections.abc import Callable
from typing import Any

from optuna.distributions import BaseDistribution, FloatDistribution
from optuna.study import Study
from optuna.trial import FrozenTrial

from optuna_dp.errors import SeedWarning
from optuna_dp.models.prior import value_at
from optuna_dp.optuna_internals import storage_of, trial_id_of
from optuna_dp.protocol import entropy
from optuna_dp.protocol.draws import Space, check_choices, drawn_once, is_by_index
from optuna_dp.protocol.plan import StudyPlan
from optuna_dp.protocol.records import (
    SLOT_KEY,
    SlotRecord,
    own_slot,
    was_enqueued,
)
from optuna_dp.protocol.shared_plan import refuse
from optuna_dp.protocol.slots import NOT_DRAWN, SlotSampler

_logger = logging.getLogger("optuna_dp")


class DrawnSlotSampler(SlotSampler):
    """Base of the samplers whose draws are charged for; arguments as of :class:`SlotSampler`.

    Guarantees:
        * T, the tie-breaks and all draws come from the operating system unless ``seed`` is
          given; a seeded study says so in its plan and cannot be released.
        * A trial whose hyperparameters were given by hand ends before its objective is called.
    """

    def __init__(self, search_space: Space | None, *, seed: int | None) -> None:
        super().__init__(search_space, seed=seed)
        if seed is not None:
            warning = (
                f"A {type(self).__name__} with a seed is for tests and simulations: who knows the "
                "seed knows the number of runs and every draw, so release() will refuse the study."
            )
            # Scripts that silence warnings are common; the log says it all the same.
            _logger.warning(warning)
            warnings.warn(warning, SeedWarning, stacklevel=4)  # Where a sampler here is made.

    # What a procedure supplies.

    def _draw_alone(
        self, number: int, name: str, distribution: BaseDistribution
    ) -> Callable[[], Any] | None:
        """Returns how one parameter is drawn from a prior; None if the prior is uniform."""
        return None

    def _each_alone(self, study: Study, trial: FrozenTrial) -> bool:
        """Returns whether known parameters are drawn one by one from the uniform prior too."""
        return False

    def _last_to_start(self, plan: StudyPlan) -> int:
        """Returns the number of the trial that ends the loop of ``optimize`` when it starts."""
        return plan.slots - 1

    # Who may run.

    def _check_admitted(self, study: Study, trial: FrozenTrial) -> None:
        super()._check_admitted(study, trial)
        is_copy = SLOT_KEY in trial.system_attrs and own_slot(trial) is None
        if was_enqueued(trial) or is_copy or (trial.params and own_slot(trial) is None):
            refuse(storage_of(study), trial, NOT_DRAWN)

    def _has_slot(self, study: Study, plan: StudyPlan, trial: FrozenTrial) -> bool:
        if trial.number >= self._last_to_start(plan):
            self.stop(study)
        return trial.number < plan.slots

    def _is_beyond(self, study: Study, plan: StudyPlan, trial: FrozenTrial) -> bool:
        return trial.number >= plan.slots

    # Draws.

    def sample_relative(
        self, study: Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        """Draws the slot's joint parameters, together or one by one."""
        if not search_space or not self._each_alone(study, trial):
            return super().sample_relative(study, trial, search_space)
        return {
            name: self.sample_independent(study, trial, name, distribution)
            for name, distribution in search_space.items()
            if not is_by_index(distribution)  # It is asked for when the objective does.
        }

    def _value_of(
        self, study: Study, trial: FrozenTrial, name: str, distribution: BaseDistribution
    ) -> Any:
        """Draws one parameter from the prior.

        A parameter drawn from the uniform prior is a function of the slot's record, which is
        there already. So nothing is written, unless it has a few values only: another sampler
        may have chosen the same.
        """
        check_choices(name, distribution)
        if self._search_space is not None and name not in self._search_space:
            self._warn_once(
                f"The objective asks for {name!r}, which is not in search_space. It is drawn "
                "from the prior, and the sampler learns nothing about it. If the name is a "
                "typing error, start a new study."
            )
        draw = self._draw_alone(trial.number, name, distribution)
        if draw is None:
            key = self._draws_of(study, trial)
            draw = functools.partial(draw_alone, key, name, distribution)
            if not may_agree(distribution):
                return draw()
        return drawn_once(study, trial, name, distribution, draw)

    def _draws_of(self, study: Study, trial: FrozenTrial) -> int:
        """Returns what fixes the draws of a trial that another process has begun, say."""
        entry = self.under_way.get(study, trial)
        if entry is not None:
            return entry.record.draws
        record = storage_of(study).get_trial(trial_id_of(trial)).system_attrs.get(SLOT_KEY)
        if record is not None:
            return SlotRecord.from_json(record).draws
        # No sampler of ours has begun it. It is drawn all the same, and never released.
        return self._new_draws(trial.number)


def draw_alone(draws: int, name: str, distribution: BaseDistribution) -> Any:
    """Returns a run's one draw of a parameter from the uniform prior, a plain Python value.

    ``draws`` is the number of that name in the run's :class:`SlotRecord`.
    """
    return value_at(distribution, entropy.unit(draws, name))


def may_agree(distribution: BaseDistribution) -> bool:
    """Returns whether two independent draws may be equal, or equal up to rounding.

    Then equality does not show who drew a value, so the draw needs a record of its own.
    """
    if not isinstance(distribution, FloatDistribution) or distribution.step is not None:
        return True
    width = distribution.high - distribution.low
    return width < 1e-300 or width < 1e-6 * max(abs(distribution.low), abs(distribution.high))
