"""Draws of DP-HyPO's runs: from a density that learns, within bounds of the prior."""

from __future__ import annotations

from typing import Literal

import numpy as np
from optuna.trial import FrozenTrial

from optuna_dp.core.validation import whole
from optuna_dp.errors import InvalidArgumentError
from optuna_dp.priors.densities.adaptive_density import AdaptiveDensity
from optuna_dp.priors.history import GrowingHistory, SharedSpace
from optuna_dp.priors.scores import RunOutcome
from optuna_dp.samplers.selection.settings import RecordedDensity
from optuna_dp.study.draws import Space, stored_form
from optuna_dp.study.entries import BEYOND, NOT_PROPOSED
from optuna_dp.study.slot_strategy import JointDraw, Slot
from optuna_dp.study.trials import ended, score, trials_of
from optuna_dp.study.visible_runs import completed_batches


class BoundedDraws:
    """Draws each run from a density made of the earlier runs that it may know of.

    Args:
        density: How the density is made of earlier runs.
        schedule: ``"batch"`` or ``"any"``, as of :class:`~optuna_dp.DPHyPOSampler`.
        batch_size: Runs per batch, at least 1.
        startup_runs: How many runs, the first ones, are drawn from the prior; None is the least
            that the schedule allows.

    Raises:
        InvalidArgumentError: If the schedule is unknown, or a number is not allowed.
    """

    def __init__(
        self,
        density: AdaptiveDensity,
        *,
        schedule: Literal["batch", "any"],
        batch_size: int,
        startup_runs: int | None,
    ) -> None:
        if schedule not in ("batch", "any"):
            raise InvalidArgumentError("schedule", schedule, allowed="it must be 'batch' or 'any'")
        self.density = density
        self.schedule = schedule
        self.batch_size = whole("batch_size", batch_size, 1)
        self.startup_runs = self._promised(startup_runs)
        self._history = GrowingHistory(outcome_of)
        self._shared_space = SharedSpace()

    def _promised(self, startup_runs: int | None) -> int:
        """Returns how many runs are promised to come from the prior."""
        count = None if startup_runs is None else whole("startup_runs", startup_runs, 0)
        if self.schedule == "any":
            if count:
                raise InvalidArgumentError(
                    "startup_runs",
                    startup_runs,
                    allowed='it must be None or 0 under schedule="any"',
                    fix='Runs from the prior lower the cost with schedule="batch" only.',
                )
            return 0
        return 0 if count == 0 else max(count or 0, self.batch_size)

    def public_settings(self) -> dict[str, object]:
        """Returns the bounds and the schedule, for the sampler's ``repr``."""
        return {
            "density_bounds": self.density.bounds,
            "schedule": self.schedule,
            "batch_size": self.batch_size,
            **({"startup_runs": self.startup_runs} if self.startup_runs else {}),
        }

    def recorded_settings(self, search_space: Space) -> RecordedDensity:
        """Returns the fields of the plan's settings that say what the density is."""
        search = self.density.describe(search_space)
        return {
            "density_bounds": self.density.bounds,
            "schedule": self.schedule,
            "batch_size": self.batch_size,
            "search": {name: search[name] for name in search.keys() - {"bounds", "prior"}},
            "startup_runs": self.startup_runs or None,
        }

    def shared_space(self, slot: Slot) -> Space:
        """Returns the parameters that the runs which a slot may know of have in common."""
        return self._shared_space.of(self._visible_runs(slot))

    def joint_draw(self, slot: Slot, space: Space, rng: np.random.Generator) -> JointDraw:
        """Draws from the density of a slot.

        The density is not told durations, orders of arrival, reported values or attributes.
        """
        history = self._history.of(self._visible_runs(slot), space)
        try:
            proposal = self.density.propose(history, space, rng, slot.plan.design.direction)
        except Exception:
            # A score model or a solver failed, and the scores of earlier runs may be why. If this
            # counted as a failed run, the law of a run would leave the density bounds.
            NOT_PROPOSED.write(slot.study, slot.trial)
            raise
        return proposal.params, {"density_ratio": proposal.ratio}

    def _visible_runs(self, slot: Slot) -> list[FrozenTrial]:
        """Returns the runs that a slot's density may depend on, by slot."""
        if self.schedule == "any":
            return [
                trial
                for trial in trials_of(slot.study)
                if ended(trial) and trial.number != slot.number and not BEYOND.is_in(trial)
            ]
        return completed_batches(
            slot.study,
            slot.number - slot.number % self.batch_size,
            is_own=slot.is_asked_by_this_thread,
        )


def outcome_of(trial: FrozenTrial) -> RunOutcome:
    """Returns all that a density may know of a run that has ended."""
    return RunOutcome(stored_form(trial)[0], score(trial))
