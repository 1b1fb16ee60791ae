"""Pilot runs in the open, and then one run; or a private selection.

With a plan (docs/explanation/budget.md) pilots run rung by rung and one run follows, all of it
paid for and nothing of it secret: :mod:`optuna_dp.samplers.budgeted_pilots`.

Without (docs/explanation/pilots.md) trials 0 to B - 1 are pilots; then T selection runs are drawn
from one prior that was frozen when the last pilot had ended.

=====================  ========================================================================
slots 0 .. B-1         proposed by any Optuna sampler from earlier pilots' private outputs
slot B + k             waits for all pilots; fits the prior to their outputs; draws from it
=====================  ========================================================================
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from optuna.distributions import BaseDistribution
from optuna.samplers import BaseSampler
from optuna.search_space import intersection_search_space
from optuna.study import Study
from optuna.trial import FrozenTrial, Trial

from optuna_dp.densities.adaptive_density import AdaptiveDensity, search_bounds
from optuna_dp.densities.frozen_prior import FrozenPrior, FrozenPriorSettings
from optuna_dp.densities.surrogate import GaussianProcess, ScoreModel
from optuna_dp.errors import InvalidArgumentError
from optuna_dp.planning.budget_plan import BudgetPlan
from optuna_dp.protocol.draws import Space
from optuna_dp.protocol.pilot_keys import FROZEN_KEY, PILOT_KEY
from optuna_dp.protocol.plan import StudyPlan
from optuna_dp.protocol.records import trial_id_of
from optuna_dp.protocol.slots import Drawn, checked_seed
from optuna_dp.protocol.visible_runs import outcomes
from optuna_dp.samplers.budget_choice import Choose
from optuna_dp.samplers.budget_settings import PROCEDURE as BUDGETED
from optuna_dp.samplers.budget_settings import BudgetSettings
from optuna_dp.samplers.budgeted_pilots import BudgetedPilots
from optuna_dp.samplers.pilot_settings import PROCEDURE, PilotSettings, outputs_digest
from optuna_dp.samplers.proposals import Proposer
from optuna_dp.samplers.selection import DEFAULT_TRIALS, SelectionSettings
from optuna_dp.trial_counts.base import TrialCount
from optuna_dp.trial_counts.once import Once
from optuna_dp.validation import positive, whole

if TYPE_CHECKING:
    from dp_accounting import dp_event

_DEFAULTS = FrozenPriorSettings()
# Candidates of the frozen prior among which DP-HyPO chooses; each is the choice among its own.
_AROUND = 128


def is_pilot(trial: Trial | FrozenTrial | Any) -> bool:
    """Returns whether a trial is a pilot run, for the objective to train cheaper or noisier.

    False for selection runs, for trials of other samplers and for ``FixedTrial``.

    Args:
        trial: The trial that the objective was given.

    Example:
        >>> import optuna, optuna_dp as odp
        >>> def objective(trial):
        ...     noise = 4.0 if odp.is_pilot(trial) else 1.0
        ...     return trial.suggest_float("x", 0, 1)
    """
    if isinstance(trial, Trial):
        attrs = trial.storage.get_trial_system_attrs(trial._trial_id)
    else:
        attrs = getattr(trial, "system_attrs", {})
    return bool(attrs.get(PILOT_KEY, False))


class PilotSampler(BudgetedPilots):
    """A few cheap, private pilot runs in the open; then one run with what they found.

    With a plan (:func:`optuna_dp.plan_budget`), and that is the usual way: the first rung's
    pilots are proposed by an ordinary Optuna sampler, the best of a rung run again on the next,
    which has less noise, and the last run takes the hyperparameters that were chosen. Every run
    is paid for by composition, so nothing is secret: hyperparameters and scores may be shown
    while the study runs. The objective asks :func:`optuna_dp.fidelity` what it may spend.
    ``docs/explanation/budget.md`` has the proof.

    What knows the private outputs of earlier runs, and nothing else of the data, is welcome:
    enqueued trials are pilots; pruners may compare pilots of the first rung (what they are shown
    has to be part of the pilots' output); several objectives, if ``choose`` is a function. A
    person who has looked at the pilots may enqueue the last run. The last run is never pruned by
    comparing it with others.

    Without a plan: pilots that each cost ``pilot_run`` teach a prior, and the best of a random
    number of draws from it is released. The number of runs is secret then, and so are the
    selection runs: ``docs/explanation/pilots.md``. The objective asks
    :func:`optuna_dp.is_pilot` and adds the noise that it stated in ``pilot_run``; a selection
    run is what the callback's ``run`` (or ``release(study, run)``) says.

    Guarantees:
        With a plan:

        * Trials 0 to B - 1 are the pilots, rung by rung. Then one run begins, and one more for
          each that failed as long as spare runs are paid for. No other trial begins, on any
          storage and with any number of workers.
        * A pilot's hyperparameters are a function of the outputs of the completed batches before
          its own, of those of the whole rung below from the second rung on, of fresh randomness,
          and of what was enqueued. Equal scores are ordered by uniforms drawn beforehand.
        * A last run begins when all pilots have ended. What is lost before it begins (a worker
          dies while it waits, ``choose`` raises) costs nothing, and the next trial takes its
          place.

        Without:

        * Trials 0 to B - 1 are pilots and exactly T selection runs follow, T drawn once per study
          from ``trials``. Failed pilots count and cost like others.
        * A pilot's hyperparameters are a function of the outputs (hyperparameters, scores,
          failures) of the completed batches of pilots before its own, and of fresh randomness:
          what the proposer is given holds nothing else.
        * No selection run is drawn before all pilots have ended. All are drawn from one law,
          fitted to the pilots' outputs; every run records which outputs, and a study whose runs
          disagree is not released.
        * With ``density_bounds``, the joint density of a selection run relative to that law is
          within them, and a function of private outputs of completed batches.

    Args:
        search_space: Distributions by parameter name. None (the default) finds them while the
            study runs; proposers learn more from a space that they know.
        plan: What is paid for. The arguments from ``pilots`` on that belong to a selection are
            refused then.
        choose: With a plan, who chooses the last run's hyperparameters. ``"best"`` (the default):
            the pilot with the best score on the last rung that has scores; scores of different
            rungs come of different noise and are not compared. ``"model"``: the pilot of which
            ``surrogate``, fitted to all pilots with their rungs, expects most on the last rung. A
            function: it is given a list of (params, values), ``values`` with one score per
            objective, of that rung's pilots, best first, and returns hyperparameters, one of them
            or others within their ranges. It has to be a function of that list alone.
        pilots: Without a plan, B, at least 1; 10 unless given. Fixed before the first pilot, like
            everything here.
        pilot_run: Without a plan, the event of one pilot, training and score; see
            :func:`optuna_dp.dp_sgd`.
        proposer: Any Optuna sampler; None is ``TPESampler``, random for the first half of the
            (first rung's) pilots. Its seed is not used, except by samplers that keep it in
            ``reseed_rng`` (quasi-random ones: give every worker the same ``seed``, secret or
            not).
        pilot_batch_size: Pilots per batch, at least 1; the number of workers keeps all busy. With
            a plan it counts where the proposer learns: not among the default proposer's random
            pilots, nor on higher rungs, whose pilots run side by side in any case.
        trials: The law of the number of selection runs; ``Geometric(mean=20)`` unless given. With
            a plan ``Once()``, and no other: a plan pays for one run.
        sharpness: Inverse temperature of the frozen prior, in units of the spread of the pilots'
            scores; at least 0. 0 is the uniform prior, 100 is greedy. It costs no privacy.
        uniform_share: Probability that a selection run is drawn uniformly all the same, in case
            the pilots mislead; in [0, 1].
        candidates: Fresh candidates per draw from the frozen prior, at least 1.
        surrogate: Any :class:`optuna_dp.densities.surrogate.ScoreModel`; default a Gaussian
            process.
        density_bounds: (c, C). (1, 1), the default, draws every selection run from the frozen
            prior. Others adapt within [c, C] of it (DP-HyPO), which is charged for.
        batch_size: Selection runs per batch, at least 1; of use with density bounds only.
        release_pilots: Whether ``release`` also shows the pilots' hyperparameters and scores, as
            attribute ``"pilots"``. They are paid for in any case. With a plan it always does.
        timeout: Seconds, positive, that a worker waits for runs of others. None, the default,
            waits as long as it takes and says in the log for what. A worker that gives up makes
            the study impossible to release, because its run failed for how long others took; a
            last run with a plan has not begun then, and may be tried again.
        seed: Makes what is drawn here repeatable (with the default proposer). With a plan that is
            harmless, as long as the training's own noise has no seed. Without one it is for
            simulations, and the study cannot be released.

    Raises:
        InvalidArgumentError: If an argument is not allowed, or does not go with a plan (or
            without one); when called, if several objectives meet a ``choose`` that is no
            function.
        UnsupportedEventError: If no accountant supports ``pilot_run``.
        PlanError: When called, if no pilot has a score by which to choose the last run.

    Example:
        >>> import optuna, optuna_dp as odp
        >>> plan = odp.plan_budget(
        ...     epsilon=3.0, records=20_000, batch_size=256, epochs=10, pilots=(4, 2)
        ... )
        >>> study = optuna.create_study(sampler=odp.PilotSampler(plan=plan))
        >>> def objective(trial):
        ...     run = odp.fidelity(trial)  # train with run.noise_multiplier for run.steps
        ...     return trial.suggest_float("x", -1, 1) ** 2
        >>> study.optimize(objective)  # stops by itself
        >>> release = odp.release(study)
        >>> len(release.pilots), release.params == study.trials[6].params
        (6, True)
    """

    def __init__(
        self,
        search_space: dict[str, BaseDistribution] | None = None,
        *,
        plan: BudgetPlan | None = None,
        choose: Choose | None = None,
        pilots: int | None = None,
        pilot_run: dp_event.DpEvent | None = None,
        proposer: BaseSampler | None = None,
        pilot_batch_size: int = 1,
        trials: TrialCount | None = None,
        sharpness: float | None = None,
        uniform_share: float | None = None,
        candidates: int | None = None,
        surrogate: ScoreModel | None = None,
        density_bounds: tuple[float, float] | None = None,
        batch_size: int | None = None,
        release_pilots: bool | None = None,
        timeout: float | None = None,
        seed: int | None = None,
    ) -> None:
        for_selection = {
            "pilots": pilots,
            "pilot_run": pilot_run,
            "sharpness": sharpness,
            "uniform_share": uniform_share,
            "candidates": candidates,
            "density_bounds": density_bounds,
            "batch_size": batch_size,
            "release_pilots": release_pilots,
        }
        if plan is None:
            law = DEFAULT_TRIALS if trials is None else trials
            super().__init__(search_space, trials=law, prior=None, seed=seed)
            if choose is not None:
                raise InvalidArgumentError("choose", choose, "it goes with a plan, plan=")
            self._prepare_selection(surrogate, for_selection)
        else:
            _refuse_with_a_plan(for_selection, trials)
            super().__init__(search_space, trials=Once(), prior=None, seed=None)
            self._prepare_budget(plan, seed)
        self._procedure = PROCEDURE if plan is None else BUDGETED
        self._proposer = Proposer(proposer, self._proposed, self._seed)
        self._timeout = None if timeout is None else positive("timeout", timeout)
        self._pilot_batch_size = self._first_batch = whole("pilot_batch_size", pilot_batch_size, 1)
        if plan is not None:
            # What is drawn at random in any case need not wait.
            self._first_batch = max(self._pilot_batch_size, self._proposer.startup)
        how = "best" if choose is None else choose
        self._budget = None if plan is None else self._budget_of(plan, how, surrogate)

    def _prepare_selection(self, surrogate: ScoreModel | None, given: dict[str, Any]) -> None:
        """Checks the arguments that go with a selection; None stands for a default."""

        def of(name: str, default: Any) -> Any:
            return default if given[name] is None else given[name]

        self._pilots = self._proposed = whole("pilots", of("pilots", 10), 1)
        self._pilot_run = _event_json(given["pilot_run"])
        self._frozen = FrozenPriorSettings(
            sharpness=of("sharpness", _DEFAULTS.sharpness),
            uniform_share=of("uniform_share", _DEFAULTS.uniform_share),
            candidates=of("candidates", _DEFAULTS.candidates),
            surrogate=GaussianProcess() if surrogate is None else surrogate,
        )
        self._bounds = search_bounds(of("density_bounds", (1.0, 1.0)))
        self._batch_size = whole("batch_size", of("batch_size", 1), 1)
        self._release_pilots = of("release_pilots", False)
        if not isinstance(self._release_pilots, bool):
            raise InvalidArgumentError("release_pilots", self._release_pilots, "it must be a bool")

    def _prepare_budget(self, plan: Any, seed: int | None) -> None:
        """Checks a plan. Its seed is harmless: nothing here has to be secret."""
        self._seed = checked_seed(seed)
        if not isinstance(plan, BudgetPlan):
            raise InvalidArgumentError(
                "plan", plan, "it must be a BudgetPlan", "Make one with optuna_dp.plan_budget."
            )
        self._pilots, self._proposed = plan.pilots, plan.rung_sizes[0]

    def _in_words(self) -> dict[str, Any]:
        # Start-up time: dp-accounting is slow to load.
        from optuna_dp.accounting.event_json import event_from_json

        if self._budget is not None:
            shown = super()._in_words()
            del shown["trials"]
            return {**shown, "plan": self._budget.settings.plan}
        return {
            **super()._in_words(),
            "pilots": self._pilots,
            "pilot_run": event_from_json(self._pilot_run),
            "density_bounds": self._bounds,
        }

    # The plan.

    def _settings(self) -> BudgetSettings | PilotSettings:
        if self._budget is not None:
            return self._budget.settings
        return PilotSettings(
            pilots=self._pilots,
            batch_size=self._pilot_batch_size,
            run=self._pilot_run,
            proposer=self._proposer.name,
            release_pilots=self._release_pilots,
            selection=self._selection(),
        )

    def _selection(self) -> SelectionSettings:
        space = self._search_space or {}
        adaptive = self._bounds != (1.0, 1.0)
        search: dict[str, Any] = {}
        if adaptive:
            described = AdaptiveDensity(
                bounds=self._bounds, surrogate=self._frozen.surrogate, candidates=_AROUND
            ).describe(space)
            search = {name: described[name] for name in described.keys() - {"bounds", "prior"}}
        return SelectionSettings(
            **{**self._base_settings(), "prior": self._frozen.describe(space)},
            density_bounds=self._bounds,
            schedule="batch" if adaptive else "independent",
            batch_size=self._batch_size,
            search=search,
        )

    def _selection_from(self) -> int | None:
        return self._pilots if self._budget is None else None

    # Draws.

    def _space_of(self, study: Study, plan: StudyPlan, number: int) -> Space:
        if self._budget is not None or number < self._pilots:
            return super()._space_of(study, plan, number)
        pilots = self._ended(study, number, self._pilots)
        # Written before anything is drawn: which outputs the prior of this run is made of.
        study._storage.set_trial_system_attr(
            trial_id_of(study, number), FROZEN_KEY, outputs_digest(pilots)
        )
        if self._search_space is not None:
            return self._search_space
        return intersection_search_space(pilots)

    def _draw(self, study: Study, plan: StudyPlan, number: int, space: Space) -> Drawn:
        if self._budget is not None or number < self._pilots:
            return super()._draw(study, plan, number, space)
        direction = plan.design.direction
        pilots = self._ended(study, number, self._pilots)
        prior = FrozenPrior(self._frozen, outcomes(pilots), space, direction)
        adaptive = AdaptiveDensity(
            bounds=self._bounds,
            prior=prior,
            surrogate=self._frozen.surrogate,
            candidates=_AROUND,
        )
        proposal = adaptive.propose(
            outcomes(self._seen(study, number)), space, self._joint_rng(number), direction
        )
        return proposal.params, {"density_ratio": proposal.ratio, "probes": prior.probes()}

    def _seen(self, study: Study, number: int) -> list[FrozenTrial]:
        """The selection runs that this one's density may depend on, by slot."""
        if self._bounds == (1.0, 1.0):
            return []
        before = number - (number - self._pilots) % self._batch_size
        return self._ended(study, number, before)[self._pilots :]


def _refuse_with_a_plan(given: dict[str, Any], trials: Any) -> None:
    """Refuses arguments that a plan leaves nothing to say for."""
    for name, value in given.items():
        if value is not None:
            raise InvalidArgumentError(
                name,
                value,
                "with a plan it has no meaning: the plan says how many pilots there are and what "
                "they cost, their outputs are released, and nothing is selected afterwards",
                "Leave it out.",
            )
    if trials is not None and trials != Once():
        raise InvalidArgumentError(
            "trials",
            trials,
            "a plan pays for one last run, not for a selection among a random number of them",
            "Leave it out, or take a selection after pilots: PilotSampler(pilots=..., "
            "pilot_run=..., trials=...) without a plan, whose cost optuna_dp.selection_plan "
            "shows.",
        )


def _event_json(pilot_run: Any) -> dict[str, Any]:
    """Returns the event as the plan records it; refuses what no accountant judges."""
    # Start-up time: dp-accounting is slow to load.
    from dp_accounting.dp_event import DpEvent

    from optuna_dp.accounting.event_json import event_to_json
    from optuna_dp.accounting.guarantee import Guarantee

    if not isinstance(pilot_run, DpEvent):
        raise InvalidArgumentError(
            "pilot_run",
            pilot_run,
            "it must be a DpEvent, what one pilot costs",
            "Make one with optuna_dp.dp_sgd(...), optuna_dp.gaussian(...), "
            "optuna_dp.compose(...) or dp_accounting.",
        )
    Guarantee(pilot_run)
    recorded: dict[str, Any] = event_to_json(pilot_run)
    return recorded
