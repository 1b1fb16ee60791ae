"""Propose-test tuning: the doubling loop over averaged utilities, or over proposed batches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import optuna
from optuna.distributions import BaseDistribution, json_to_distribution
from optuna.samplers import BaseSampler
from optuna.study import Study, StudyDirection
from optuna.trial import FrozenTrial, TrialState

from optuna_dp.errors import InvalidArgumentError, PlanError
from optuna_dp.models.space import check_space
from optuna_dp.optuna_internals import storage_of, trial_id_of
from optuna_dp.polling import poll
from optuna_dp.protocol.draws import Space
from optuna_dp.protocol.plan import StudyPlan
from optuna_dp.protocol.proposals import Proposer, remember
from optuna_dp.protocol.records import (
    DRAW_KEY,
    GATE_KEY,
    PROPOSER_KEY,
    ended,
    trial_id_at,
    trials_of,
)
from optuna_dp.protocol.slots import Drawn
from optuna_dp.protocol.waiting import Waiting
from optuna_dp.utilities.choice import (
    Choice,
    candidates_among,
    choice_after,
    choices,
    final_choice,
    settle,
)
from optuna_dp.utilities.doubling import DoublingPlan, Variant
from optuna_dp.utilities.second_evaluations import WAITS_KEY
from optuna_dp.utilities.settings import PROPOSE_TEST, CandidateSource, UtilitySettings
from optuna_dp.utilities.trials import UtilitySampler
from optuna_dp.validation import whole


class ProposeTestSampler(UtilitySampler):
    """Tests candidates without privacy on k partitions; chooses by the propose-test loop.

    .. warning::
       ``epsilon`` is the privacy of ONE ITERATION of the loop, as in the papers. The guarantee
       of the whole is ``release(study).guarantee``: at most m iterations, composed optimally.
       With ``granularity=0.01`` and the default variant m is 199, and ``epsilon=0.1`` costs 6.48
       in all at delta = 1e-5.

    Ding & Wu, arXiv:2211.01852 ("Revisiting", Algorithm 1, and "Constant-overhead", Algorithm 1
    and Section 4.1). The objective trains a candidate on each of k disjoint partitions of the data
    (:func:`optuna_dp.partition`) and returns ``report_utilities(trial, scores)``. After the last
    candidate the loop runs and the study stops; ``release(study)`` gives the choice. No score is
    released. The final training is composed on top: ``release(study).with_training(event)``.

    If the candidates can be listed beforehand, :class:`optuna_dp.NoisyMaxSampler` chooses better
    at the same total epsilon. This sampler has its place with ``proposer``: batches of candidates
    that depend on the answers so far.

    Guarantees:
        * The choice satisfies ``release(study).guarantee``, a function of ``epsilon``,
          ``granularity``, ``lower_bound``, ``variant`` and ``max_iterations`` alone.
        * Without a proposer exactly one trial per candidate, on every storage and with any number
          of workers. With one, the number of trials is a function of the private answers.
        * A proposer is given hyperparameters it has proposed itself, and the private answers (an
          index or none per iteration): no utility, time, state or attribute of a trial.
        * Every answer is drawn once; a second release gives the same.
        * A candidate whose trial failed (its worker's death before the objective excepted)
          blocks the choice: its absence may tell a record.

    Args:
        search_space: Distributions by parameter name; None with a list of candidates, or with a
            number of them, lets the objective say what it needs (define-by-run).
        candidates: A list of dicts of parameters; or a number of independent draws from the
            search space; or None, every point of a finite search space. Fix them without looking
            at the data. Not with ``proposer``.
        n_partitions: k, at least 2.
        epsilon: Privacy of one iteration; positive. See the warning above.
        granularity: Smallest step of the threshold, in (0, 1).
        lower_bound: Where the threshold starts, in [0, 1).
        variant: ``"bounded"`` stops when the threshold has been pushed to 1, after at most
            ``2n - 1`` iterations, ``n = ceil((1 - lower_bound) / granularity)``; ``"capped"``
            stops at ``max_iterations`` (default ``ceil(5 log2(n + 1))``).
        max_iterations: Cap on the iterations, fixed beforehand.
        proposer: Any Optuna sampler (TPE, CMA-ES, Gaussian process); needs ``search_space``.
            In its eyes the accepted candidate of an iteration has the threshold it reached as
            its value, those tested before it have 0, and those after it have failed.
        batch_size: Candidates per iteration, with ``proposer``; at least the number of workers.
        resolve: Difference in averaged utility that matters to you. A
            :class:`~optuna_dp.utilities.NoiseWarning` says at once when the noise hides it.
        seed: Makes the draws of candidates repeatable (without a proposer), for simulations;
            never the choice. The study cannot be released then.

    Raises:
        InvalidArgumentError: If an argument is not allowed.

    Example:
        >>> import optuna, optuna_dp as odp
        >>> space = {"x": optuna.distributions.FloatDistribution(0, 1, step=0.1)}
        >>> sampler = odp.ProposeTestSampler(
        ...     space, n_partitions=30_000, epsilon=0.1, granularity=0.05, resolve=0.1
        ... )
        >>> study = optuna.create_study(direction="maximize", sampler=sampler)
        >>> study.optimize(lambda trial: trial.suggest_float("x", 0, 1, step=0.1))
        >>> round(odp.release(study).guarantee.epsilon(delta=1e-5), 2)  # 39 iterations
        2.46
    """

    _procedure = PROPOSE_TEST

    def __init__(
        self,
        search_space: dict[str, BaseDistribution] | None = None,
        *,
        candidates: Sequence[Mapping[str, Any]] | int | None = None,
        n_partitions: int,
        epsilon: float,
        granularity: float = 0.01,
        lower_bound: float = 0.0,
        variant: Variant = "bounded",
        max_iterations: int | None = None,
        proposer: BaseSampler | None = None,
        batch_size: int | None = None,
        resolve: float = 0.05,
        seed: int | None = None,
    ) -> None:
        plan = DoublingPlan(epsilon, granularity, lower_bound, variant, max_iterations)
        if proposer is None and batch_size is not None:
            raise InvalidArgumentError(
                "batch_size", batch_size, "it needs a proposer: fixed candidates are one batch"
            )
        if proposer is not None:
            if search_space is None or candidates is not None:
                raise InvalidArgumentError(
                    "proposer",
                    type(proposer).__name__,
                    "it needs search_space and no candidates, because it proposes them",
                )
            check_space(search_space)
            candidates = whole("batch_size", 10 if batch_size is None else batch_size, 1)
        super().__init__(
            search_space,
            plan=plan,
            candidates=candidates,
            n_partitions=n_partitions,
            resolve=resolve,
            seed=seed,
        )
        self._proposer = None
        if proposer is not None:
            self._proposer = Proposer(proposer, self._candidates.count, seed)
            self._candidates = CandidateSource("proposed", self._candidates.count)

    def _in_words(self) -> dict[str, Any]:
        settings = super()._in_words()
        return (
            settings if self._proposer is None else {**settings, "proposer": self._proposer.name}
        )

    def _settings(self) -> UtilitySettings:
        proposer = None if self._proposer is None else self._proposer.name
        return replace(super()._settings(), proposer=proposer)

    # Batches.

    def before_trial(self, study: Study, trial: FrozenTrial) -> None:
        super().before_trial(study, trial)
        plan = self._plan_of(study, trial)
        if self._proposer is not None and final_choice(trials_of(study), plan) is not None:
            storage_of(study).set_trial_system_attr(trial_id_of(trial), GATE_KEY, True)
            self.stop(study)

    def _space_of(self, study: Study, plan: StudyPlan, number: int) -> Space:
        if self._proposer is not None:
            self._await_answer(study, plan, number)
        return super()._space_of(study, plan, number)

    def _draw(self, study: Study, plan: StudyPlan, number: int, space: Space) -> Drawn:
        if self._proposer is None:
            return super()._draw(study, plan, number, space)
        settings = self._settings()
        stage = settings.stage_of(number)
        visible = known_to_proposer(study, plan, stage)
        position = number - settings.first(stage)
        proposal = self._proposer.ask(
            [StudyDirection.MAXIMIZE], visible, len(visible) + position, space
        )
        remember(study, trial_id_at(study, number), proposal)
        return dict(proposal.params), {}

    def _await_answer(self, study: Study, plan: StudyPlan, number: int) -> None:
        """Returns when the stage before this one has been answered; ends the trial if it was
        the last. The open trial with the lowest number makes the answer. Two would do no harm,
        but each takes a number."""
        settings = self._settings()
        stage = settings.stage_of(number)
        if stage == 0:
            return
        storage, trial_id = storage_of(study), trial_id_at(study, number)
        storage.set_trial_system_attr(trial_id, WAITS_KEY, True)
        start = settings.first(stage)
        self._ended(study, start)

        def read() -> Choice | None:
            choice = choice_after(trials_of(study), plan, stage - 1)
            if choice is not None:
                return choice
            batch = [t for t in trials_of(study) if start <= t.number < number]
            if all(ended(t) or self._asked_by_this_thread(study, t) for t in batch):
                return settle(study, plan, stage - 1)
            return None

        waiting = Waiting(study, "for the answer to the previous batch", below=number)
        choice = poll(read, waiting.pause)
        if choice.finished:
            storage.set_trial_system_attr(trial_id, GATE_KEY, True)
            self.stop(study)
            raise optuna.TrialPruned(
                "It is not a candidate, because the study's choice has already been made."
            )
        storage.set_trial_system_attr(trial_id, WAITS_KEY, False)


def known_to_proposer(study: Study, plan: StudyPlan, stage: int) -> list[FrozenTrial]:
    """Returns what a proposer may know before ``stage``: its own proposals, and the answers.

    Made of the recorded draws and the recorded answers alone. A draw, not what the objective asked
    for: that may depend on the data.
    """
    settings = UtilitySettings.from_json(plan.design.settings)
    assert isinstance(settings.plan, DoublingPlan)
    choice_of_stage = choices(trials_of(study), plan)
    trials = trials_of(study)
    proposals: list[FrozenTrial] = []
    previous_answers: tuple[int | None, ...] = ()
    for past in range(stage):
        answers = choice_of_stage[past].answers
        candidates = candidates_among(trials, settings, past)
        if len(answers) > len(previous_answers):
            reached = float(settings.plan.states(answers)[-1].utility)
            for index, trial in enumerate(candidates):
                proposals.append(_as_answered(trial, outcome_of(index, answers[-1], reached)))
        previous_answers = answers
    return proposals


def outcome_of(index: int, answer: int | None, reached: float) -> float | None:
    """A candidate's value in the proposer's eyes, a function of the private answer."""
    if answer is None or index < answer:
        return 0.0
    return reached if index == answer else None


def _as_answered(trial: FrozenTrial, value: float | None) -> FrozenTrial:
    draw = trial.system_attrs.get(DRAW_KEY)
    if draw is None:  # Passing over it would tell the proposer what the objective did.
        raise PlanError(f"Trial {trial.number} has ended without asking for its parameters.")
    space = {name: json_to_distribution(text) for name, text in draw["space"].items()}
    remembered = trial.system_attrs.get(PROPOSER_KEY)
    return optuna.trial.create_trial(
        state=TrialState.FAIL if value is None else TrialState.COMPLETE,
        value=value,
        params={name: d.to_external_repr(draw["internal"][name]) for name, d in space.items()},
        distributions=space,
        system_attrs={} if remembered is None else {PROPOSER_KEY: remembered},
    )
