"""The sampler of a budget: pilot runs rung by rung, then the last run.

Every run is charged for by composition, so nothing about the study is secret
(``docs/explanation/budget.md`` has the proof). The number of a trial says what it is:

=================  ============================================================================
trial number       what it is
=================  ============================================================================
first rung         a pilot that the proposer, any Optuna sampler, proposes from the outputs of
                   the completed batches before it
later rungs        a pilot that repeats one of the best of the rung below, or the first guess
from ``pilots``    the last run, with the hyperparameters that ``choose`` picks; a further one
                   only if it failed and a spare run is charged for
=================  ============================================================================
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Mapping, Sequence
from typing import Any

from optuna.distributions import BaseDistribution, json_to_distribution
from optuna.samplers import BaseSampler, RandomSampler
from optuna.study import Study
from optuna.trial import FrozenTrial, Trial, TrialState

from optuna_dp.budget.choice import Choose, Chosen, Pilot, chosen, climbers, with_outputs
from optuna_dp.budget.last_runs import (
    drop_enqueued_too_early,
    is_last_paid,
    wait_for_turn,
    warn_if_failed,
    words_on_failure,
)
from optuna_dp.budget.plan import BudgetPlan
from optuna_dp.budget.settings import PROCEDURE, BudgetSettings
from optuna_dp.errors import InvalidArgumentError, PlanError
from optuna_dp.evidence.conduct import NOT_COMPARED, is_not_compared_at_end
from optuna_dp.models.listed import Listed
from optuna_dp.models.space import check_space
from optuna_dp.optuna_internals import storage_of, trial_id_of
from optuna_dp.protocol import entropy
from optuna_dp.protocol.draws import (
    Space,
    as_stored,
    check_choices,
    draw_record,
    drawn_jointly,
    drawn_once,
    own_form,
)
from optuna_dp.protocol.plan import StudyPlan
from optuna_dp.protocol.proposals import Proposer, remember
from optuna_dp.protocol.records import (
    DRAW_KEY,
    GATE_KEY,
    began,
    trial_id_at,
    trials_of,
    was_enqueued,
)
from optuna_dp.protocol.shared_plan import check_same_design, refuse
from optuna_dp.protocol.slots import Drawn, SlotSampler
from optuna_dp.protocol.visible_runs import completed_batches
from optuna_dp.validation import whole

_logger = logging.getLogger("optuna_dp")
# Where the proposer's trial is kept while its pilot is under way.
_PROPOSAL = "proposal"


_FEWER = (
    "The plan is for a short list of candidates, and no list was given, nor are as many trials "
    "enqueued. The other pilots are charged for in any case. Their hyperparameters are proposed "
    "as in any budget, which found less than good guesses do. Give the list to the sampler, "
    "BudgetSampler(plan, candidates=[...]), or plan for fewer."
)


def _refuse_without_pilots(proposer: Any, choose: Any, pilot_batch_size: Any) -> None:
    settings = {"proposer": proposer, "choose": choose, "pilot_batch_size": pilot_batch_size}
    defaults = {"proposer": None, "choose": None, "pilot_batch_size": 1}
    for name, value in settings.items():
        if value != defaults[name]:
            raise InvalidArgumentError(
                name, value, "it needs pilots, and the plan has none", "Leave it out."
            )


def _listed(
    plan: BudgetPlan, candidates: Any, space: Space | None, proposer: Any, pilot_batch_size: Any
) -> Listed:
    """Returns the list as a proposer; refuses one that is not the plan's."""
    if plan.candidates is None:
        raise InvalidArgumentError(
            "candidates",
            candidates,
            f"the plan has {plan.pilots} pilots and is for no list",
            "Plan for it: plan_budget(..., candidates=<how many there are>).",
        )
    listed = Listed(candidates, space)
    if len(listed.points) != plan.candidates:
        raise InvalidArgumentError(
            "candidates",
            candidates,
            f"it has {len(listed.points)} candidates, and the plan charges for {plan.candidates}",
            f"Change the list, or plan for it: plan_budget(..., candidates={len(listed.points)}).",
        )
    for name, value, default in (
        ("proposer", proposer, None),
        ("pilot_batch_size", pilot_batch_size, 1),
    ):
        if value != default:
            raise InvalidArgumentError(
                name, value, "a list of candidates needs no proposal", "Leave it out."
            )
    return listed


class BudgetSampler(SlotSampler):
    """A few noisy pilot runs, then one last run with what they found, within a budget plan.

    An ordinary Optuna sampler proposes the pilots of the first rung. The best of a rung run again
    on the next, which has less noise. The last run takes the hyperparameters that ``choose``
    picks. Every run is charged for by composition, so nothing is secret: hyperparameters and
    scores may be shown while the study runs. The objective asks :func:`optuna_dp.fidelity` what
    it may spend.

    A plan without pilots is one run. Its objective usually asks for no hyperparameters, because
    they follow from public numbers; those that it asks for are drawn at random, or enqueued.

    With a plan for a short list (``plan_budget(candidates=k)``) each candidate is one pilot, and
    the last run takes the one with the best score.

    Whatever depends on the data only through the runs' private outputs is allowed: an enqueued
    trial is a pilot, and the first of them, the first guess, climbs to every rung; several
    objectives, if ``choose`` is a function. A person who has seen the pilots may enqueue the last
    run. Pruners that compare trials are silenced.

    Guarantees:
        * Trials 0 to B - 1 are the pilots, rung by rung. Then one run begins, and one more for
          each that failed as long as spare runs are charged for. No other trial begins, on any
          storage and with any number of workers.
        * A pilot's hyperparameters are a function of the outputs of the completed batches before
          its own, of those of the whole rung below from the second rung on, of fresh randomness,
          and of what was enqueued. Equal scores are ordered by uniforms drawn beforehand.
        * A last run begins when all pilots have ended. A trial that ends before its run begins (a
          worker dies while it waits, ``choose`` raises) costs nothing, and the next trial takes
          its place.

    Args:
        plan: What is charged for; see :func:`optuna_dp.plan_budget`.
        search_space: Distributions by parameter name. None (the default) finds them while the
            study runs; proposers learn more from a space that they know.
        proposer: Any Optuna sampler; None is ``TPESampler``, random for the first half of the
            first rung. Its seed is not used, except by samplers that keep it in ``reseed_rng``
            (quasi-random ones: give every worker the same ``seed``, secret or not).
        candidates: The short list, with a plan that was made for one of this length: dicts of
            parameters by name, all different. Pilot i runs ``candidates[i]``; what a candidate
            does not name is drawn at random. An enqueued trial takes the place of the candidate
            of its number. Without a list such a plan's pilots are those that are enqueued. No
            candidate may come from looking at the private data.
        choose: How the last run's hyperparameters are chosen. None (the default) is ``"best"`` for
            a short list and ``"evidence"`` otherwise. ``"best"``: those of the pilot with
            the best score on the last rung that has scores; scores of different rungs have
            different noise and are not compared. ``"evidence"``: the same, unless the
            first guess is behind it by no more than the standard deviation of the first
            rung's scores; then the first guess. A function: it is given a list of (params,
            values), ``values`` with one score per objective, of that rung's pilots, best first,
            and returns hyperparameters, one of them or others within their ranges. It must be a
            function of that list alone.
        pilot_batch_size: Pilots of the first rung per batch, at least 1. A pilot sees the
            completed batches before its own; the number of workers keeps all of them busy. The
            default proposer's random pilots and the higher rungs run side by side in any case.
        seed: Makes what is drawn here repeatable (with the default proposer). That is harmless, as
            long as the training's own noise has no seed.

    Raises:
        InvalidArgumentError: If an argument is not allowed; when called, if several objectives
            meet a ``choose`` that is no function.
        PlanError: When called, if no pilot has a score by which to choose the last run.

    Example:
        >>> import optuna, optuna_dp as odp
        >>> plan = odp.plan_budget(
        ...     epsilon=3.0, records=20_000, batch_size=256, epochs=10, pilots=(4, 2)
        ... )
        >>> study = optuna.create_study(direction="maximize", sampler=odp.BudgetSampler(plan))
        >>> def objective(trial):
        ...     run = odp.fidelity(trial)  # what it may spend
        ...     x = trial.suggest_float("x", -1, 1)  # train here; then hand in what that spent
        ...     noise, rate, steps = run.noise_multiplier, run.sample_rate, run.steps
        ...     run.spent(odp.dp_sgd(noise_multiplier=noise, sample_rate=rate, steps=steps))
        ...     return run.score([abs(x) < 0.5] * 20_000)  # one value per record; adds the noise
        >>> study.optimize(objective)  # stops by itself
        >>> release = odp.release(study)
        >>> len(release.pilots), release.params == study.trials[6].params
        (6, True)
    """

    _procedure = PROCEDURE

    def __init__(
        self,
        plan: BudgetPlan,
        *,
        search_space: dict[str, BaseDistribution] | None = None,
        proposer: BaseSampler | None = None,
        candidates: Sequence[Mapping[str, Any]] | None = None,
        choose: Choose | None = None,
        pilot_batch_size: int = 1,
        seed: int | None = None,
    ) -> None:
        super().__init__(search_space, seed=seed)
        if type(plan) is not BudgetPlan:
            raise InvalidArgumentError(
                "plan",
                plan,
                "it must be a BudgetPlan",
                "For example plan_budget(epsilon=3, records=20_000, batch_size=256, epochs=10).",
            )
        if self._search_space is not None:
            check_space(self._search_space)
        if not plan.pilots:
            _refuse_without_pilots(proposer, choose, pilot_batch_size)
        self._proposed = plan.rung_sizes[0] if plan.pilots else 0
        listed = None
        if candidates is not None:
            space = self._search_space
            listed = _listed(plan, candidates, space, proposer, pilot_batch_size)
        self._proposer = Proposer(listed or proposer, self._proposed, self._seed)
        self._pilot_batch_size = whole("pilot_batch_size", pilot_batch_size, 1)
        # Pilots that are listed, or drawn at random in any case, need not wait.
        free_pilots = self._proposer.startup if listed is None else self._proposed
        self._first_batch = max(self._pilot_batch_size, free_pilots)
        self._choose = _checked_choose(choose, plan)
        self._budget = BudgetSettings(
            plan=plan,
            first_batch=self._first_batch,
            pilot_batch_size=self._pilot_batch_size,
            proposer=self._proposer.name,
            choose=_name_of(self._choose),
            search_space=self._recorded_space(),
            candidates=None if listed is None else listed.points,
        )
        self._pilots = plan.pilots
        # A cache: a rung, the last trial below it, and who climbs to it, best first.
        self._climbers: tuple[int, FrozenTrial, list[Pilot]] | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "_climbers": None}

    # What a procedure supplies to SlotSampler.

    def _settings(self) -> BudgetSettings:
        return self._budget

    def _in_words(self) -> dict[str, Any]:
        return {"plan": self._budget.plan, **super()._in_words()}

    def _draw_slots(self, bits: entropy.Bits) -> int:
        return self._pilots + self._budget.paid

    # Who may run, and when.

    def _refuse_several_objectives(self, study: Study) -> None:
        if self._pilots and len(study.directions) > 1 and not callable(self._choose):
            raise InvalidArgumentError(
                "choose",
                self._choose,
                "with several objectives it must be a function of a list of (params, values)",
            )

    def _has_slot(self, study: Study, plan: StudyPlan, trial: FrozenTrial) -> bool:
        if began(trial):
            return True
        # Before it begins, so that nothing but a pilot's number is lost.
        check_same_design(*self.own_design(study), plan, consequence="")
        if trial.number < self._pilots:
            drop_enqueued_too_early(study, self._pilots)
            self._say_what_is_tried(trial)
            return True
        is_own = functools.partial(self._asked_by_this_thread, study)
        begins = wait_for_turn(study, trial.number, self._budget, is_own)
        if begins:
            self._ended(study, self._pilots)
        if not begins and _given_by_hand(trial):
            refuse(
                storage_of(study),
                trial,
                f"Trial {trial.number} was enqueued after the study's last run had begun. The "
                "budget has no further run. Release the study: optuna_dp.release(study). To train "
                "once more, add its cost: release.with_training(event).",
            )
        if not begins:
            warn_if_failed(trials_of(study), self._budget)
        if not begins or is_last_paid(study, trial.number, self._budget):
            self.stop(study)
        return begins

    def _say_what_is_tried(self, trial: FrozenTrial) -> None:
        """Says so if a pilot of a short list is not what the list has, or if there is none."""
        if self._budget.plan.candidates is None:
            return
        if self._budget.candidates is None and not _given_by_hand(trial):
            self._warn_once(_FEWER)
        elif self._budget.candidates is not None and _given_by_hand(trial):
            _logger.warning(
                "Trial %d was enqueued and takes the place of candidates[%d], which is not tried.",
                trial.number,
                trial.number,
            )

    def _is_beyond(self, study: Study, plan: StudyPlan, trial: FrozenTrial) -> bool:
        if trial.number < self._pilots:
            return False
        return GATE_KEY in storage_of(study).get_trial(trial_id_of(trial)).system_attrs

    def after_trial(
        self, study: Study, trial: FrozenTrial, state: TrialState, values: Any
    ) -> None:
        super().after_trial(study, trial, state, values)
        if not began(trial):
            return
        run = self._budget.fidelity_of(trial.number)
        if is_not_compared_at_end(study, trial, state, values, run):
            self._warn_once(NOT_COMPARED)
        if trial.number < self._pilots:
            drop_enqueued_too_early(study, self._pilots)
        elif state == TrialState.COMPLETE:
            self.stop(study)
        elif is_last_paid(study, trial.number, self._budget):
            record = storage_of(study).get_trial(trial_id_of(trial))
            _logger.warning("%s", words_on_failure(record, self._budget))

    def value_without_score(self, study: Study, trial: Trial) -> float | None:
        """Returns 0.0 for a run whose score is not charged for, so that it does not fail."""
        unscored = self._budget.fidelity_of(trial.number).scored_on is None
        return 0.0 if unscored else None

    # Which earlier runs a run may know.

    def _seen_before(self, number: int) -> int:
        """Returns where the batch of a first-rung pilot begins: it sees the pilots before that."""
        if number < self._first_batch:
            return 0
        return number - (number - self._first_batch) % self._pilot_batch_size

    def _ended(self, study: Study, end: int) -> list[FrozenTrial]:
        """Returns all runs of slots below ``end``; waits until they have ended."""
        return completed_batches(
            study,
            end,
            is_own=functools.partial(self._asked_by_this_thread, study),
            # A rung waits for the whole of the one below it, whatever the batches.
            batches="BudgetSampler a pilot_batch_size" if end < self._proposed else "",
            otherwise="",
        )

    # The hyperparameters of a run.

    def _mark(self, study: Study, trial: FrozenTrial) -> None:
        """Records the hyperparameters of the last run just before it begins."""
        if trial.number < self._pilots or not self._pilots:
            return
        pilot_trials = [t for t in trials_of(study) if t.number < self._pilots]
        pilots, signs = with_outputs(pilot_trials, self._budget.fidelity_of), _signs_of(study)
        choice = chosen(self._choose, pilots, signs) if pilots else None
        if choice is None and not _given_by_hand(trial):
            raise PlanError(
                "No pilot has a score, so the last run's hyperparameters cannot be chosen. The "
                "last run has not begun and is not lost. Give its hyperparameters by hand, "
                "study.enqueue_trial({...}), and continue with study.optimize."
            )
        if choice is not None:
            record = draw_record(*choice)
            storage_of(study).set_trial_system_attr(trial_id_of(trial), DRAW_KEY, record)
        if _given_by_hand(trial):
            _logger.warning(
                "Trial %d is the last run and uses the hyperparameters that were enqueued.",
                trial.number,
            )

    def _space_of(self, study: Study, plan: StudyPlan, number: int) -> Space:
        if number < self._proposed:
            return self._search_space or {}
        if number < self._pilots:
            climber = self._climber(study, number)
            return {} if climber is None else climber[1]
        record = storage_of(study).get_trial(trial_id_at(study, number)).system_attrs.get(DRAW_KEY)
        space = {} if record is None else record["space"]
        return {name: json_to_distribution(text) for name, text in space.items()}

    def _draw(self, study: Study, plan: StudyPlan, number: int, space: Space) -> Drawn:
        if number < self._proposed:
            trial = storage_of(study).get_trial(trial_id_at(study, number))
            return dict(self._ask(study, trial, space).params), {}
        climber = self._climber(study, number)
        assert climber is not None  # It has a joint space, so it has a pilot to repeat.
        return climber[0], {}

    def _climber(self, study: Study, number: int) -> Chosen | None:
        """Returns the pilot that one of a higher rung repeats, when those below have ended."""
        rung = self._budget.fidelity_of(number).rung
        start = self._budget.begins_at(rung)
        lower_pilots = self._ended(study, start)
        cache = self._climbers
        # They have ended, so they are those of before if the last is.
        if cache is None or cache[0] != rung or cache[1] is not lower_pilots[-1]:
            pilots = with_outputs(lower_pilots, self._budget.fidelity_of)
            best_pilots = climbers(pilots, rung, _signs_of(study))
            cache = self._climbers = rung, lower_pilots[-1], best_pilots
        best_pilots = cache[2]
        if not best_pilots:
            return None
        climber = best_pilots[(number - start) % len(best_pilots)]
        return climber.params, climber.distributions

    def sample_relative(
        self, study: Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        params = super().sample_relative(study, trial, search_space)
        entry = self.under_way.get(study, trial)
        proposal = None if entry is None else entry.kept.get(_PROPOSAL)
        if proposal is not None:
            remember(study, trial_id_of(trial), proposal)
        return params

    def _value_of(
        self, study: Study, trial: FrozenTrial, name: str, distribution: BaseDistribution
    ) -> Any:
        """Asks the proposer in a first-rung pilot; draws at random in other runs, and says so."""
        if trial.number < self._proposed:
            return self._proposed_value(study, trial, name, distribution)
        record = storage_of(study).get_trial(trial_id_of(trial))
        pilot_value = drawn_jointly(record, name, distribution)
        if pilot_value is not None:
            # Optuna asks again for a value that was enqueued and lies outside the range.
            return distribution.to_external_repr(pilot_value)
        if name in record.system_attrs.get(DRAW_KEY, {"space": {}})["space"]:
            _logger.warning(
                "Trial %d cannot repeat a pilot's value of %r: the objective now asks for a "
                "range without that value. The value is drawn at random instead. Do not change "
                "ranges while a study runs.",
                trial.number,
                name,
            )
        seed = entropy.bits(self._seed, "independent", trial.number, name)(32)
        uniform = RandomSampler(seed=seed)
        draw = functools.partial(uniform.sample_independent, study, trial, name, distribution)
        check_choices(name, distribution)
        return drawn_once(study, trial, name, distribution, draw)

    def _proposed_value(
        self, study: Study, trial: FrozenTrial, name: str, distribution: BaseDistribution
    ) -> Any:
        check_choices(name, distribution)

        def propose() -> Any:
            proposal = self._ask(study, trial, self._search_space or {})
            value = self._proposer.suggest(proposal, name, as_stored(distribution))
            remember(study, trial_id_of(trial), proposal)
            return own_form(distribution, value)

        return drawn_once(study, trial, name, distribution, propose)

    def _ask(self, study: Study, trial: FrozenTrial, space: dict[str, BaseDistribution]) -> Trial:
        """Returns the proposer's trial for a pilot, made once while the pilot is under way."""
        entry = self.under_way.get(study, trial)
        if entry is not None and _PROPOSAL in entry.kept:
            stored_proposal: Trial = entry.kept[_PROPOSAL]
            return stored_proposal
        number = trial.number
        visible_pilots = self._ended(study, self._seen_before(number))
        # What was added by hand, or run by another sampler, is nobody's private output.
        proposal = self._proposer.ask(
            study.directions, visible_pilots, number, space, is_shown=began
        )
        if entry is not None:
            entry.kept[_PROPOSAL] = proposal
        return proposal


def _checked_choose(choose: Any, plan: BudgetPlan) -> Choose:
    if choose is None:
        return "evidence" if plan.candidates is None else "best"
    if choose == "evidence" and plan.candidates is not None:
        raise InvalidArgumentError(
            "choose",
            choose,
            "no candidate of a short list is the first guess: its best score is taken",
            "Leave it out, or give a function of a list of (params, values).",
        )
    if choose in ("evidence", "best") or callable(choose):
        rule: Choose = choose
        return rule
    raise InvalidArgumentError(
        "choose",
        choose,
        "it must be 'evidence', 'best', or a function of a list of (params, values) that returns "
        "the last run's hyperparameters",
    )


def _name_of(choose: Choose) -> str:
    """Returns how the plan's record names a way to choose."""
    if isinstance(choose, str):
        return choose
    kind: Any = choose if hasattr(choose, "__qualname__") else type(choose)
    return f"the function {kind.__module__}.{kind.__qualname__}"


def _signs_of(study: Study) -> list[float]:
    """Returns for each objective 1 if more is better, -1 if less is."""
    return [1.0 if d.name == "MAXIMIZE" else -1.0 for d in study.directions]


def _given_by_hand(trial: FrozenTrial) -> bool:
    """Returns whether a trial's hyperparameters, or some of them, were enqueued."""
    return was_enqueued(trial) or bool(trial.params)
