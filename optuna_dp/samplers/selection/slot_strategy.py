"""Strategy of private selection: a random number of runs, each drawn from a prior or near it."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol

import numpy as np
import optuna
from optuna.distributions import BaseDistribution
from optuna.trial import TrialState

from optuna_dp.errors import InvalidArgumentError
from optuna_dp.evidence.run_checks import STATED_ONLY
from optuna_dp.evidence.start import OPTUNA_LOG, end_run, warn_of_failure
from optuna_dp.evidence.stated_run import StatedRun, attribute_names
from optuna_dp.priors.prior import Prior, UniformPrior
from optuna_dp.priors.space import check_space
from optuna_dp.runs.run_plan import RunPlan
from optuna_dp.samplers.selection.settings import PROCEDURE, RecordedDensity, SelectionSettings
from optuna_dp.selection.laws.base import TrialCount
from optuna_dp.selection.laws.negative_binomial import Geometric
from optuna_dp.study import entropy
from optuna_dp.study.drawn_slots import refuse_given_by_hand, value_from_prior, warn_of_seed
from optuna_dp.study.draws import Space
from optuna_dp.study.slot_strategy import JointDraw, Slot, SlotStrategy
from optuna_dp.study.trials import began

if TYPE_CHECKING:
    from dp_accounting import dp_event

DEFAULT_TRIALS = Geometric(mean=20)
_ALL_RUNS = (
    "This study begins no further run. How many there are was drawn before the first one, and "
    "must stay secret, as the table of trials must. Next: release = odp.release(study)."
)


class AdaptiveDraws(Protocol):
    """Draws of runs from a density that may depend on the scores of earlier runs.

    Attributes:
        startup_runs: How many runs, the first ones, are drawn from the prior instead.
    """

    startup_runs: int

    def public_settings(self) -> dict[str, object]:
        """Returns what the sampler's ``repr`` shows, by argument."""

    def recorded_settings(self, search_space: Space) -> RecordedDensity:
        """Returns the fields of :class:`SelectionSettings` that say what the density is."""

    def shared_space(self, slot: Slot) -> Space:
        """Returns the parameters that the runs which a slot may know of have in common."""

    def joint_draw(self, slot: Slot, space: Space, rng: np.random.Generator) -> JointDraw:
        """Returns a value for each parameter of ``space``, and notes for the draw's entry."""


class SelectionStrategy(SlotStrategy):
    """Runs drawn from a prior, a secret random number of times; arguments as of RandTuneSampler.

    Args:
        sampler_name: Class name of the sampler that holds it.
        search_space: Distributions by parameter name, or None.
        trials: The distribution of the number of runs.
        prior: None is Optuna's own uniform distribution.
        run: What each run is, or the event of one, or None.
        neighboring_relation: How an event is read.
        output_attributes: User attributes of a trial that are part of the run's private output.
        seed: Makes all draws repeatable; None for a study that may be released.
        adaptive: Draws the runs after the first few; None draws all from the prior.
    """

    procedure = PROCEDURE

    def __init__(
        self,
        sampler_name: str,
        search_space: dict[str, BaseDistribution] | None,
        *,
        trials: TrialCount,
        prior: Prior | None,
        run: RunPlan | dp_event.DpEvent | None,
        neighboring_relation: str | None,
        output_attributes: Sequence[str],
        seed: int | None,
        adaptive: AdaptiveDraws | None = None,
    ) -> None:
        super().__init__(sampler_name, search_space, seed)
        warn_of_seed(sampler_name, self.seed, stacklevel=3)  # Where the sampler is made.
        self._run = _checked_run(run, neighboring_relation)
        self._output_attributes = attribute_names(output_attributes)
        if self._output_attributes and run is None:
            raise InvalidArgumentError(
                "output_attributes",
                output_attributes,
                problem="they are charged for by the cost of a run, and run= does not say it",
                fix="Give run= too.",
            )
        if not isinstance(trials, TrialCount):
            raise InvalidArgumentError(
                "trials",
                trials,
                allowed="it must be the distribution of a random number of runs",
                fix="For example optuna_dp.Geometric(mean=20). For a fixed number of runs use "
                "BudgetSampler(plan_budget(...)).",
            )
        self._trials = trials.checked()
        self._prior = checked_prior(prior)
        self._is_uniform = type(self._prior) is UniformPrior  # A subclass may be another law.
        self.adaptive = adaptive
        if not self._is_uniform and self.search_space is None:
            raise InvalidArgumentError(
                "search_space",
                None,
                problem="an informed prior needs a search space that is known beforehand",
                fix="Give the ranges as search_space.",
            )
        if self.search_space is not None:
            check_space(self.search_space)
            mark = self._prior.fingerprint(self.search_space)  # Refuses what it does not fit.
            if not self._is_uniform and mark == UniformPrior().fingerprint({}):
                raise InvalidArgumentError(
                    "prior",
                    self._prior,
                    problem="its fingerprint is that of the uniform prior",
                    fix="Give it a fingerprint that says what it is.",
                )

    # The plan.

    @property
    def plans_runs(self) -> bool:
        """Whether ``run`` is the plan of one."""
        return isinstance(self._run, RunPlan)

    def settings(self) -> SelectionSettings:
        """Returns the distribution of T, the space, the prior, and the density near it."""
        space = self.search_space or {}
        density: RecordedDensity = {}
        if self.adaptive is not None:
            density = self.adaptive.recorded_settings(space)
        return SelectionSettings(
            trials=self._trials,
            search_space=self.recorded_space(),
            prior=self._prior.fingerprint(space),
            run=self._run,
            output_attributes=self._output_attributes,
            **density,
        )

    def number_of_slots(self, bits: entropy.Bits) -> int:
        """Draws T."""
        return self._trials.sample(bits)

    def public_settings(self) -> dict[str, object]:
        """Returns the arguments that are not the default's, and the distribution of T."""
        settings = {**super().public_settings(), "trials": self._trials}
        if not self._is_uniform:
            settings["prior"] = type(self._prior).__name__
        if self._run is not None:
            settings["run"] = self._run
        if self._output_attributes:
            settings["output_attributes"] = list(self._output_attributes)
        return settings if self.adaptive is None else settings | self.adaptive.public_settings()

    # Who may run.

    def check_admitted(self, slot: Slot) -> None:
        """Refuses hyperparameters that were given by hand."""
        refuse_given_by_hand(slot)

    def has_slot(self, slot: Slot, check_design: Callable[[str], None]) -> bool:
        """Returns whether the trial is one of the first T; the last of them ends the loop."""
        if slot.number >= slot.plan.slots - 1:
            slot.stop_loop()
        return slot.number < slot.plan.slots

    def is_beyond(self, slot: Slot) -> bool:
        """Returns whether the trial is none of the first T."""
        return slot.number >= slot.plan.slots

    # The hyperparameters of a run.

    def is_drawn_alone(self, number: int) -> bool:
        """Returns whether the uniform prior alone decides: each draw follows from the entry."""
        return self._is_uniform and self._adaptive_draws(number) is None

    def joint_space(self, slot: Slot) -> Space:
        """Returns the search space; without one, what earlier runs have in common."""
        adaptive = self._adaptive_draws(slot.number)
        if adaptive is None or self.search_space is not None:
            return self.search_space or {}
        return adaptive.shared_space(slot)

    def joint_draw(self, slot: Slot, space: Space) -> JointDraw:
        """Draws from the prior, or from the density near it."""
        rng = entropy.generator(self.seed, "joint", slot.number)
        adaptive = self._adaptive_draws(slot.number)
        if adaptive is None:
            return self._prior.sample(space, 1, rng).params(0), {}
        return adaptive.joint_draw(slot, space, rng)

    def value(self, slot: Slot, name: str, distribution: BaseDistribution) -> object:
        """Draws one parameter from the prior."""
        if self._is_uniform:
            return value_from_prior(self, slot, name, distribution)
        prior = self._prior
        rng = functools.partial(entropy.generator, self.seed, "independent", slot.number, name)
        return value_from_prior(
            self, slot, name, distribution, lambda: prior.draw_one(name, distribution, rng())
        )

    def _adaptive_draws(self, number: int) -> AdaptiveDraws | None:
        """Returns what draws the run of a slot; None is the prior."""
        adaptive = self.adaptive
        return None if adaptive is None or number < adaptive.startup_runs else adaptive

    # The end of a run.

    def after_trial(self, slot: Slot, state: TrialState, values: Sequence[float] | None) -> None:
        """Judges the run, and warns once of runs whose plan says nothing of their cost."""
        if not began(slot.trial):
            return
        end_run(self, slot, state, values)
        if self._run is not None:
            warn_of_failure(self, slot, state)
        if not isinstance(self._run, RunPlan):
            self.warn_once(STATED_ONLY)
        if slot.number == slot.plan.slots - 1:
            optuna.logging.get_logger(OPTUNA_LOG).info(_ALL_RUNS)


def _checked_run(
    run: RunPlan | dp_event.DpEvent | None, neighboring_relation: str | None
) -> RunPlan | StatedRun | None:
    """Returns what a run is, or what it costs; refuses a relation that nothing is read by."""
    if run is not None and not isinstance(run, RunPlan):
        return StatedRun.told(run, neighboring_relation)
    if neighboring_relation is not None:
        raise InvalidArgumentError(
            "neighboring_relation",
            neighboring_relation,
            problem="it says how an event is read that is given as run="
            if run is None
            else f"the plan of a run has its own, {run.neighboring_relation!r}",
            fix="Give run= an event." if run is None else "Leave it out.",
        )
    return run


def checked_prior(prior: Prior | None) -> Prior:
    """Returns a prior, the uniform one for None; refuses what is none."""
    if prior is None:
        return UniformPrior()
    if isinstance(prior, Prior):
        return prior
    raise InvalidArgumentError(
        "prior",
        prior,
        allowed="it must be None, or have the methods sample, draw_one and fingerprint",
        fix="See optuna_dp.priors.densities.",
    )
