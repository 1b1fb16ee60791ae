"""Base of RandTune and DP-HyPO: a random number of runs, drawn within bounds of a prior."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
from optuna.distributions import BaseDistribution
from optuna.study import Study
from optuna.trial import FrozenTrial, TrialState

from optuna_dp.errors import InvalidArgumentError
from optuna_dp.evidence.conduct import NOT_COMPARED, STATED_ONLY, is_not_compared_at_end
from optuna_dp.models.prior import Prior, UniformPrior
from optuna_dp.models.space import check_space
from optuna_dp.private_selection.settings import PROCEDURE
from optuna_dp.private_selection.trial_counts.base import TrialCount
from optuna_dp.private_selection.trial_counts.negative_binomial import Geometric
from optuna_dp.protocol import entropy
from optuna_dp.protocol.drawn_slots import DrawnSlotSampler
from optuna_dp.protocol.draws import Space
from optuna_dp.protocol.plan import StudyPlan
from optuna_dp.protocol.records import own_slot
from optuna_dp.protocol.slots import Drawn
from optuna_dp.training.run_plan import RunPlan

DEFAULT_TRIALS = Geometric(mean=20)


class SelectionSampler(DrawnSlotSampler):
    """Base of the samplers whose study is a private selection; arguments as of RandTuneSampler."""

    def __init__(
        self,
        search_space: dict[str, BaseDistribution] | None,
        *,
        trials: TrialCount,
        prior: Prior | None,
        run: RunPlan | None,
        seed: int | None,
    ) -> None:
        super().__init__(search_space, seed=seed)
        if run is not None and type(run) is not RunPlan:
            raise InvalidArgumentError(
                "run",
                run,
                "it must be the plan of one run",
                "For example optuna_dp.RunPlan(records=20_000, batch_size=256, steps=150, "
                "noise_multiplier=2.0, score_noise_multiplier=20.0). An event is given to "
                "PrivacyCallback(event).",
            )
        self._run = run
        if not isinstance(trials, TrialCount):
            raise InvalidArgumentError(
                "trials",
                trials,
                "it must be the distribution of a random number of runs",
                "For example optuna_dp.Geometric(mean=20). For a fixed number of runs use "
                "BudgetSampler(plan_budget(...)).",
            )
        self._trials = trials.checked()
        self._prior: Prior = UniformPrior() if prior is None else prior
        if not isinstance(self._prior, Prior):
            raise InvalidArgumentError(
                "prior",
                prior,
                "it must be None, or have the methods sample, draw_one and fingerprint",
                "See optuna_dp.adaptive_selection.densities.",
            )
        self._is_uniform = type(self._prior) is UniformPrior  # A subclass may be another law.
        if not self._is_uniform and self._search_space is None:
            raise InvalidArgumentError(
                "search_space",
                None,
                "an informed prior needs a search space that is known beforehand",
                "Give the ranges as search_space.",
            )
        if self._search_space is not None:
            check_space(self._search_space)
            mark = self._prior.fingerprint(self._search_space)  # Refuses what it does not fit.
            if not self._is_uniform and mark == UniformPrior().fingerprint({}):
                raise InvalidArgumentError(
                    "prior",
                    type(self._prior).__name__,
                    "its fingerprint is that of the uniform prior",
                    "Give it a fingerprint that says what it is.",
                )

    _procedure = PROCEDURE

    def _in_words(self) -> dict[str, Any]:
        settings = {**super()._in_words(), "trials": self._trials}
        if not self._is_uniform:
            settings["prior"] = type(self._prior).__name__
        if self._run is not None:
            settings["run"] = self._run
        return settings

    def _base_settings(self) -> dict[str, Any]:
        return {
            "trials": self._trials,
            "search_space": self._recorded_space(),
            "prior": self._prior.fingerprint(self._search_space or {}),
            "run": self._run,
        }

    def after_trial(
        self, study: Study, trial: FrozenTrial, state: TrialState, values: Any
    ) -> None:
        super().after_trial(study, trial, state, values)
        run = None if self._run is None or own_slot(trial) is None else self._run.fidelity
        if is_not_compared_at_end(study, trial, state, values, run):
            self._warn_once(NOT_COMPARED)
        if self._run is None and own_slot(trial) is not None:
            self._warn_once(STATED_ONLY)

    def _draw_slots(self, bits: entropy.Bits) -> int:
        return self._trials.sample(bits)

    def _draw_alone(
        self, number: int, name: str, distribution: BaseDistribution
    ) -> Callable[[], Any] | None:
        prior = self._prior
        if self._is_uniform:
            return None
        rng = functools.partial(entropy.generator, self._seed, "independent", number, name)
        return lambda: prior.draw_one(name, distribution, rng())

    def _draw(self, study: Study, plan: StudyPlan, number: int, space: Space) -> Drawn:
        return self._prior.sample(space, 1, self._joint_rng(number)).params(0), {}

    def _joint_rng(self, number: int) -> np.random.Generator:
        return entropy.generator(self._seed, "joint", number)
