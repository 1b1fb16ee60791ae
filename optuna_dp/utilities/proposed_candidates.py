"""Batches of candidates from an Optuna sampler, which sees the private answers so far."""

from __future__ import annotations

import optuna
from optuna.distributions import json_to_distribution
from optuna.samplers import BaseSampler
from optuna.study import Study, StudyDirection
from optuna.trial import FrozenTrial, TrialState

from optuna_dp.errors import PlanError
from optuna_dp.polling import poll
from optuna_dp.protocol.draws import Space
from optuna_dp.protocol.plan import StudyPlan
from optuna_dp.protocol.proposals import Proposer, remember
from optuna_dp.protocol.records import DRAW_KEY, GATE_KEY, PROPOSER_KEY, ended, trials_of
from optuna_dp.protocol.slot_strategy import JointDraw, Slot
from optuna_dp.protocol.visible_runs import completed_batches
from optuna_dp.protocol.waiting import Waiting
from optuna_dp.utilities.choice import (
    Choice,
    candidates_among,
    choice_after,
    choices,
    final_choice,
    settle,
)
from optuna_dp.utilities.doubling import DoublingPlan
from optuna_dp.utilities.second_evaluations import WAITS_KEY
from optuna_dp.utilities.settings import UtilitySettings


class ProposedCandidates:
    """Proposes each batch of candidates from the answers to the batches before it.

    Args:
        proposer: Any Optuna sampler.
        batch_size: Candidates per batch, at least 1.
        sampler_name: Class name of the study's sampler, for messages.
        seed: As of :class:`~optuna_dp.protocol.proposals.Proposer`.

    Raises:
        InvalidArgumentError: If ``proposer`` is no Optuna sampler.
    """

    def __init__(
        self, proposer: BaseSampler, batch_size: int, sampler_name: str, seed: int | None
    ) -> None:
        self._proposer = Proposer(proposer, batch_size, seed)
        self._sampler_name = sampler_name
        self.batch_size = batch_size

    @property
    def name(self) -> str:
        """Class name of the proposer."""
        return self._proposer.name

    def end_if_chosen(self, slot: Slot) -> None:
        """Ends the loop, and marks the trial as none of the candidates, if the choice is made."""
        if final_choice(trials_of(slot.study), slot.plan) is not None:
            slot.storage.set_trial_system_attr(slot.trial_id, GATE_KEY, True)
            slot.stop_loop()

    def await_answer(self, slot: Slot, settings: UtilitySettings) -> None:
        """Returns when the stage before a slot's own has been answered.

        The open trial with the lowest number makes the answer. Two would do no harm, but each
        takes a number.

        Raises:
            TrialPruned: If that answer was the last.
        """
        study, plan = slot.study, slot.plan
        stage = settings.stage_of(slot.number)
        if stage == 0:
            return
        slot.storage.set_trial_system_attr(slot.trial_id, WAITS_KEY, True)
        start = settings.first(stage)
        completed_batches(
            study,
            start,
            is_own=slot.is_asked_by_this_thread,
            batches=f"{self._sampler_name} a batch_size",
            otherwise="",
        )

        def read() -> Choice | None:
            choice = choice_after(trials_of(study), plan, stage - 1)
            if choice is not None:
                return choice
            batch = [t for t in trials_of(study) if start <= t.number < slot.number]
            if all(ended(t) or slot.is_asked_by_this_thread(t) for t in batch):
                return settle(study, plan, stage - 1)
            return None

        waiting = Waiting(study, "for the answer to the previous batch", below=slot.number)
        choice = poll(read, waiting.pause)
        if choice.finished:
            slot.storage.set_trial_system_attr(slot.trial_id, GATE_KEY, True)
            slot.stop_loop()
            raise optuna.TrialPruned(
                "It is not a candidate, because the study's choice has already been made."
            )
        slot.storage.set_trial_system_attr(slot.trial_id, WAITS_KEY, False)

    def joint_draw(self, slot: Slot, settings: UtilitySettings, space: Space) -> JointDraw:
        """Returns the proposer's candidate for a slot."""
        stage = settings.stage_of(slot.number)
        visible = known_to_proposer(slot.study, slot.plan, stage)
        position = slot.number - settings.first(stage)
        proposal = self._proposer.ask(
            [StudyDirection.MAXIMIZE], visible, len(visible) + position, space
        )
        remember(slot.study, slot.trial_id, proposal)
        return dict(proposal.params), {}


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
