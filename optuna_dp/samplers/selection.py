"""What RandTune and DP-HyPO share: a random number of runs, drawn within bounds of a prior."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

import numpy as np
from optuna.distributions import BaseDistribution
from optuna.study import Study

from optuna_dp.densities.prior import Prior, UniformPrior, check_space
from optuna_dp.errors import InvalidArgumentError
from optuna_dp.json_records import Record, stored
from optuna_dp.protocol import entropy
from optuna_dp.protocol.draws import Space
from optuna_dp.protocol.plan import StudyPlan
from optuna_dp.protocol.slots import Drawn, SlotSampler
from optuna_dp.trial_counts.base import TrialCount
from optuna_dp.trial_counts.negative_binomial import Geometric
from optuna_dp.validation import density_bounds as checked_density_bounds

PROCEDURE = "private_selection"
DEFAULT_TRIALS = Geometric(mean=20)
Schedule = Literal["independent", "batch", "any"]


@dataclass(frozen=True)
class SelectionSettings(Record):
    """The settings of a private selection, as the plan records them.

    Attributes:
        trials: The law of the number of runs.
        density_bounds: (c, C), bounds of each run's joint density relative to the prior.
        schedule: Which earlier runs a run's density may depend on: ``"independent"`` none,
            ``"batch"`` the completed batches before its own, ``"any"`` whatever has ended.
        batch_size: Runs per batch.
        search_space: Distributions by parameter name as Optuna's JSON; None is define-by-run.
        prior: The prior's fingerprint, which two equal priors share.
        search: How the density is made (surrogate, projection, ...), JSON values.
        startup_runs: How many runs, the first ones, are drawn from the prior whatever is known;
            None if nothing is promised (and in plans older than this field).
    """

    described_as: ClassVar[str] = "The record of the settings in the study's plan"

    trials: TrialCount
    density_bounds: tuple[float, float] = (1.0, 1.0)
    schedule: Schedule = "independent"
    batch_size: int = 1
    search_space: dict[str, Any] | None = None
    prior: dict[str, Any] = field(default_factory=lambda: {"prior": "uniform"})
    search: dict[str, Any] = field(default_factory=dict)
    startup_runs: int | None = field(default=None, metadata=stored(optional=True))

    def __post_init__(self) -> None:
        if self.startup_runs is not None and (self.startup_runs < 1 or self.schedule != "batch"):
            raise InvalidArgumentError("startup_runs", self.startup_runs, "it is not of a plan")
        if checked_density_bounds(self.density_bounds) != self.density_bounds:
            raise InvalidArgumentError(
                "density_bounds", self.density_bounds, "either both are 1 or neither is"
            )

    @property
    def policy(self) -> str:
        """Which analysis applies: what the density may depend on.

        Under ``"any"`` it depends on who finished first, hence on durations, which no event
        covers; only the analysis that lets it depend on the data directly holds then.
        """
        return "data" if self.schedule == "any" else "history"


class SelectionSampler(SlotSampler):
    """Base of the samplers whose study is a private selection; arguments as of RandTuneSampler."""

    def __init__(
        self,
        search_space: dict[str, BaseDistribution] | None,
        *,
        trials: TrialCount,
        prior: Prior | None,
        seed: int | None,
    ) -> None:
        super().__init__(search_space, seed=seed)
        if not isinstance(trials, TrialCount):
            raise InvalidArgumentError(
                "trials",
                trials,
                "it must be the law of a random number of runs",
                "For example optuna_dp.Geometric(mean=20). A fixed number has no guarantee that "
                "grows slower than the number itself.",
            )
        self._trials = trials
        self._prior: Prior = UniformPrior() if prior is None else prior
        if not isinstance(self._prior, Prior):
            raise InvalidArgumentError(
                "prior",
                prior,
                "it must be None, or have the methods sample, draw_one and fingerprint",
                "See optuna_dp.densities.",
            )
        if not isinstance(self._prior, UniformPrior) and self._search_space is None:
            raise InvalidArgumentError(
                "search_space",
                None,
                "an informed prior is a law over a search space that is known beforehand",
                "Give the distributions as search_space.",
            )
        if self._search_space is not None:
            check_space(self._search_space)
            self._prior.fingerprint(self._search_space)  # A prior refuses what it does not fit.

    _procedure = PROCEDURE

    def _in_words(self) -> dict[str, Any]:
        shown = {**super()._in_words(), "trials": self._trials}
        if not isinstance(self._prior, UniformPrior):
            shown["prior"] = type(self._prior).__name__
        return shown

    def _base_settings(self) -> dict[str, Any]:
        return {
            "trials": self._trials,
            "search_space": self._recorded_space(),
            "prior": self._prior.fingerprint(self._search_space or {}),
        }

    def _draw_slots(self, bits: entropy.Bits) -> int:
        return self._trials.sample(bits)

    def _selection_from(self) -> int | None:
        return 0

    def _draw_alone(
        self, number: int, name: str, distribution: BaseDistribution
    ) -> Callable[[], Any] | None:
        prior = self._prior
        if isinstance(prior, UniformPrior):
            return None
        rng = functools.partial(entropy.generator, self._seed, "independent", number, name)
        return lambda: prior.draw_one(name, distribution, rng())

    def _draw(self, study: Study, plan: StudyPlan, number: int, space: Space) -> Drawn:
        return self._prior.sample(space, 1, self._joint_rng(number)).params(0), {}

    def _joint_rng(self, number: int) -> np.random.Generator:
        return entropy.generator(self._seed, "joint", number)
