"""Pilot runs before a private selection: adaptivity that ordinary composition pays for.

Proof: docs/explanation/pilots.md. Trials 0 to B - 1 are pilots; then T selection runs are drawn
from one prior that was frozen when the last pilot had ended.

=====================  ========================================================================
slots 0 .. B-1         proposed by any Optuna sampler from earlier pilots' private outputs
slot B + k             waits for all pilots; fits the prior to their outputs; draws from it
=====================  ========================================================================
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from optuna.distributions import BaseDistribution
from optuna.samplers import BaseSampler
from optuna.search_space import intersection_search_space
from optuna.trial import FrozenTrial, Trial

from optuna_dp.densities.frozen_prior import FrozenPrior, FrozenPriorSettings
from optuna_dp.densities.policy import Policy
from optuna_dp.densities.surrogate import GaussianProcess, ScoreModel
from optuna_dp.errors import InvalidArgumentError, WaitError
from optuna_dp.protocol import entropy
from optuna_dp.protocol.draws import check_choices, drawn_once
from optuna_dp.protocol.plan import Design
from optuna_dp.protocol.records import FROZEN_KEY, GAVE_UP_KEY, PILOT_KEY, PROPOSER_KEY
from optuna_dp.protocol.visible_runs import completed_batches, outcomes
from optuna_dp.samplers.pilot_settings import PROCEDURE, PilotSettings, outputs_digest
from optuna_dp.samplers.proposals import Proposer, memory
from optuna_dp.samplers.selection import DEFAULT_TRIALS, SelectionSampler, SelectionSettings
from optuna_dp.trial_counts import TrialCount
from optuna_dp.validation import positive, search_bounds, whole

if TYPE_CHECKING:
    from dp_accounting import dp_event
    from optuna.study import Study

    from optuna_dp.protocol.plan import Plan

_DEFAULTS = FrozenPriorSettings()
# What a pilot under way keeps: the trial of the proposer's own study.
_PROPOSAL = "proposal"
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


class PilotSampler(SelectionSampler):
    """A few cheap pilot runs teach a prior; the best of a random number of draws from it is taken.

    Each pilot is charged in full, by composition. In return, pilots may be proposed by any method
    that sees their private outputs, and the prior they teach may be as sharp as one likes:
    ``docs/explanation/pilots.md``. Ten pilots at four times the noise of the selection's runs
    add 0.14 to 0.18 to an epsilon between 1.6 and 4; that table is there.

    The objective asks :func:`optuna_dp.is_pilot` and adds the noise that it stated in
    ``pilot_run``; a selection run is what the callback's ``run`` (or ``release(study, run)``)
    says.

    Guarantees:
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
        search_space: Distributions by parameter name. None (the default) draws jointly what all
            completed pilots share, and the rest from the uniform prior.
        pilots: B, at least 1. Fixed before the first pilot, like everything here.
        pilot_run: The event of one pilot, training and score; see :func:`optuna_dp.dp_sgd`.
        proposer: Any Optuna sampler; None is ``TPESampler``, random for the first half of the
            pilots. Its seed is not used, except by samplers that keep it in
            ``reseed_rng`` (quasi-random ones: give every worker the same ``seed``, secret or
            not).
        pilot_batch_size: Pilots per batch, at least 1; the number of workers keeps all busy.
        trials: The law of the number of selection runs.
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
            attribute ``"pilots"``. They are paid for in any case.
        timeout: Seconds, positive, that a worker waits for runs of others. None, the default,
            waits as long as it takes and says in the log for what. A worker that gives up makes
            the study impossible to release, because its run failed for how long others took.
        seed: Makes the study repeatable (with the default proposer), for simulations. It cannot
            be released then.

    Raises:
        InvalidArgumentError: If an argument is not allowed.
        UnsupportedEventError: If no accountant supports ``pilot_run``.

    Example:
        >>> import optuna, optuna_dp as odp
        >>> sampler = odp.PilotSampler(
        ...     pilots=3, pilot_run=odp.gaussian(16.0), trials=odp.Geometric(mean=3)
        ... )
        >>> study = optuna.create_study(sampler=sampler)
        >>> study.optimize(lambda trial: trial.suggest_float("x", -1, 1) ** 2)  # stops by itself
    """

    def __init__(
        self,
        search_space: dict[str, BaseDistribution] | None = None,
        *,
        pilots: int = 10,
        pilot_run: dp_event.DpEvent,
        proposer: BaseSampler | None = None,
        pilot_batch_size: int = 1,
        trials: TrialCount = DEFAULT_TRIALS,
        sharpness: float = _DEFAULTS.sharpness,
        uniform_share: float = _DEFAULTS.uniform_share,
        candidates: int = _DEFAULTS.candidates,
        surrogate: ScoreModel | None = None,
        density_bounds: tuple[float, float] = (1.0, 1.0),
        batch_size: int = 1,
        release_pilots: bool = False,
        timeout: float | None = None,
        seed: int | None = None,
    ) -> None:
        super().__init__(search_space, trials=trials, prior=None, seed=seed)
        self._pilots = whole("pilots", pilots, 1)
        self._pilot_run = _event_json(pilot_run)
        self._proposer = Proposer(proposer, self._pilots, seed)
        self._pilot_batch_size = whole("pilot_batch_size", pilot_batch_size, 1)
        self._frozen = FrozenPriorSettings(
            sharpness=sharpness,
            uniform_share=uniform_share,
            candidates=candidates,
            surrogate=GaussianProcess() if surrogate is None else surrogate,
        )
        self._bounds = search_bounds(density_bounds)
        self._batch_size = whole("batch_size", batch_size, 1)
        if not isinstance(release_pilots, bool):
            raise InvalidArgumentError("release_pilots", release_pilots, "it must be a bool")
        self._release_pilots = release_pilots
        self._timeout = None if timeout is None else positive("timeout", timeout)

    def _in_words(self) -> dict[str, Any]:
        from optuna_dp.accounting.event_json import event_from_json

        return {
            **super()._in_words(),
            "pilots": self._pilots,
            "pilot_run": event_from_json(self._pilot_run),
            "density_bounds": self._bounds,
        }

    # The plan.

    def _settings(self) -> SelectionSettings:
        space = self._search_space or {}
        adaptive = self._bounds != (1.0, 1.0)
        search: dict[str, Any] = {}
        if adaptive:
            described = Policy(
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

    def _design(self, direction: str) -> Design:
        settings = PilotSettings(
            pilots=self._pilots,
            batch_size=self._pilot_batch_size,
            run=self._pilot_run,
            proposer=self._proposer.name,
            release_pilots=self._release_pilots,
            selection=self._settings(),
        )
        return Design(
            procedure=PROCEDURE,
            sampler=type(self).__name__,
            direction=direction,
            seeded=self._seed is not None,
            settings=settings.to_json(),
        )

    def _draw_slots(self, bits: entropy.Bits) -> int:
        return self._pilots + super()._draw_slots(bits)

    def _selection_from(self) -> int | None:
        return self._pilots

    # Optuna's hooks, where they differ.

    def _mark(self, study: Study, trial: FrozenTrial) -> None:
        """Marks pilots for :func:`is_pilot`."""
        if trial.number < self._pilots:
            study._storage.set_trial_system_attr(trial._trial_id, PILOT_KEY, True)

    def sample_independent(
        self,
        study: Study,
        trial: FrozenTrial,
        param_name: str,
        param_distribution: BaseDistribution,
    ) -> Any:
        """Asks the proposer in a pilot, draws from the uniform prior in a selection run."""
        if trial.number >= self._pilots:
            return super().sample_independent(study, trial, param_name, param_distribution)
        self._raise_error_if_multi_objective(study)
        check_choices(param_name, param_distribution)

        def propose() -> Any:
            asked = self._ask(study, trial, self._search_space or {})
            value = asked._suggest(param_name, param_distribution)
            self._remember(study, trial, asked)
            return value

        return drawn_once(study, trial, param_name, param_distribution, propose)

    def sample_relative(
        self, study: Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        """Asks the proposer in a pilot, draws from the frozen prior in a selection run."""
        params = super().sample_relative(study, trial, search_space)
        known = self._under_way.get(study, trial)
        asked = None if known is None else known.kept.get(_PROPOSAL)
        if asked is not None:
            self._remember(study, trial, asked)
        return params

    # Draws.

    def _space_of(self, study: Study, plan: Plan, number: int) -> dict[str, BaseDistribution]:
        if number < self._pilots:
            return self._search_space or {}
        pilots = self._ended(study, number, self._pilots)
        # Written before anything is drawn: which outputs the prior of this run is made of.
        study._storage.set_trial_system_attr(
            self._trial_id(study, number), FROZEN_KEY, outputs_digest(pilots)
        )
        if self._search_space is not None:
            return self._search_space
        return intersection_search_space(pilots)

    def _draw(
        self, study: Study, plan: Plan, number: int, space: dict[str, BaseDistribution]
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        if number < self._pilots:
            trial = study._storage.get_trial(self._trial_id(study, number))
            return dict(self._ask(study, trial, space).params), {}
        direction: Literal["maximize", "minimize"] = (
            "maximize" if plan.design.direction == "maximize" else "minimize"
        )
        pilots = self._ended(study, number, self._pilots)
        prior = FrozenPrior(self._frozen, outcomes(pilots), space, direction)
        policy = Policy(
            bounds=self._bounds,
            prior=prior,
            surrogate=self._frozen.surrogate,
            candidates=_AROUND,
        )
        proposal = policy.propose(
            outcomes(self._seen(study, number)), space, self._joint_rng(number), direction
        )
        return proposal.params, {"density_ratio": proposal.ratio, "probes": prior.probes()}

    def _seen(self, study: Study, number: int) -> list[FrozenTrial]:
        """The selection runs that this one's density may depend on, by slot."""
        if self._bounds == (1.0, 1.0):
            return []
        before = number - (number - self._pilots) % self._batch_size
        return self._ended(study, number, before)[self._pilots :]

    def _ask(self, study: Study, trial: FrozenTrial, space: dict[str, BaseDistribution]) -> Trial:
        """The proposer's trial for a pilot, made once while the pilot is under way here."""
        known = self._under_way.get(study, trial)
        if known is not None and _PROPOSAL in known.kept:
            kept: Trial = known.kept[_PROPOSAL]
            return kept
        number = trial.number
        visible = self._ended(study, number, number - number % self._pilot_batch_size)
        asked = self._proposer.ask(study.direction, visible, number, space)
        if known is not None:
            known.kept[_PROPOSAL] = asked
        return asked

    def _remember(self, study: Study, trial: FrozenTrial, asked: Trial) -> None:
        found = memory(asked)
        if found is not None:
            study._storage.set_trial_system_attr(trial._trial_id, PROPOSER_KEY, found)

    def _ended(self, study: Study, number: int, before: int) -> list[FrozenTrial]:
        """All runs of slots below ``before``; waits until they have ended."""
        size = "pilot_batch_size" if before < self._pilots else "batch_size"
        found = completed_batches(
            study,
            before,
            own=lambda trial: self._asked_by_this_thread(study, trial),
            batches=f"PilotSampler a {size}",
            otherwise="",
            timeout=self._timeout,
        )
        if found is not None:
            return found
        study._storage.set_trial_system_attr(self._trial_id(study, number), GAVE_UP_KEY, True)
        raise WaitError(
            f"Waited {self._timeout:g} seconds (timeout) for earlier runs and gave up this one. "
            "Its failure depends on how long other runs took, which no "
            "guarantee covers, so this study cannot be released. The pilots that have ended are "
            "paid for all the same: compose their event if you start again."
        )

    @staticmethod
    def _trial_id(study: Study, number: int) -> int:
        return study._storage.get_trial_id_from_study_id_trial_number(study._study_id, number)


def _event_json(pilot_run: Any) -> dict[str, Any]:
    """Returns the event as the plan records it; refuses what no accountant judges."""
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
