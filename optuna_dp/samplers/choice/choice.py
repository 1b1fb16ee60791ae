"""The private choice of a study with averaged utilities: made once, by any worker.

Optuna's storages cannot compare and set an attribute. What every storage does in one step is to
create a trial together with its attributes and its final state, under the next number. So the
choice is stored as a finished trial of its own: nobody can change it, and of several everybody
takes the one with the lowest number. A choice that was drawn and not stored, or stored second,
has been seen by nobody and cost nothing.

Consequences:

* *Two workers choose at the same time.* Both take the choice with the lowest number.
* *A worker dies while it chooses.* The next one (or ``release``) chooses; nothing had been seen.
* *A second release.* Reads the entry of the first.
* *A candidate's trial fails after it began.* Dropping it could tell a record, so it blocks the
  choice.
* *A worker dies before the objective is called.* Its candidate is missing from the choice. No data
  had been touched, so its absence says nothing about them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from optuna.study import Study
from optuna.trial import FrozenTrial, TrialState

from optuna_dp.core.json_entries import Entry
from optuna_dp.errors import PlanError
from optuna_dp.mechanisms.doubling import DoublingPlan, LoopState
from optuna_dp.mechanisms.utility_values import Utilities
from optuna_dp.samplers.choice.reported import never_began, utilities_of
from optuna_dp.samplers.choice.settings import UtilitySettings
from optuna_dp.study.entries import CHOICE, UNSTARTED, add_trial, trial_with
from optuna_dp.study.plan import StudyPlan
from optuna_dp.study.trials import read_plan, trials_of


@dataclass(frozen=True)
class Choice(Entry):
    """What the private mechanism has answered. For the curator until it is released.

    Attributes:
        nonce: The plan's nonce.
        answers: One per iteration: the index of the accepted candidate, or None.
        chosen: Number of the trial of the candidate accepted last, or None.
    """

    described_as: ClassVar[str] = "The entry of the private choice"

    nonce: str
    answers: tuple[int | None, ...]
    chosen: int | None

    def __post_init__(self) -> None:
        if any(n is not None and n < 0 for n in (self.chosen, *self.answers)):
            raise ValueError("it holds a negative number")


def recorded_choices(trials: Sequence[FrozenTrial], plan: StudyPlan) -> list[Choice]:
    """Returns what was stored among all trials of a study, by number; the first one counts."""
    entries = [CHOICE.of(trial) for trial in trials if CHOICE.is_in(trial)]
    return [choice for choice in map(Choice.from_json, entries) if choice.nonce == plan.nonce]


def make_choice(study: Study, plan: StudyPlan) -> Choice:
    """Returns the choice of a study; draws and stores it if none is stored.

    For samplers. A release does the same with what it has read (``Procedure.new_choice``).

    Raises:
        UnfinishedStudyError: If a candidate has not been evaluated.
        ReleaseRefusedError: If a candidate has no utility of bounded sensitivity.
    """
    trials = trials_of(study)
    if not recorded_choices(trials, plan):
        add_trial(study, drawn_choice(trials, plan))
        # Read after it was written: of two workers that chose, both take what was stored first.
        trials = trials_of(study)
    return recorded_choices(trials, plan)[0]


def drawn_choice(trials: Sequence[FrozenTrial], plan: StudyPlan) -> FrozenTrial:
    """Draws a choice among the candidates of a study, and returns the trial that stores it.

    Args:
        trials: All trials of the study, by number.
        plan: The study's plan.

    Raises:
        UnfinishedStudyError: If a candidate has not been evaluated.
        ReleaseRefusedError: If a candidate has no utility of bounded sensitivity.
    """
    settings = UtilitySettings.from_json(plan.design.settings)
    candidates = candidates_among(trials, plan)
    answers = settings.plan.answers(candidate_utilities(candidates, plan)) if candidates else ()
    accepted = [answer for answer in answers if answer is not None]
    choice = Choice(plan.nonce, answers, candidates[accepted[-1]].number if accepted else None)
    return trial_with(TrialState.FAIL, {CHOICE: choice.to_json(), UNSTARTED: True})


def candidates_among(trials: Sequence[FrozenTrial], plan: StudyPlan) -> list[FrozenTrial]:
    """Returns the trials that hold candidates, by number."""
    return [t for t in trials if t.number < plan.slots and not never_began(t)]


def candidate_utilities(candidates: Sequence[FrozenTrial], plan: StudyPlan) -> Utilities:
    """Returns the utilities of a study's candidates.

    Raises:
        UnfinishedStudyError: If a candidate has not been evaluated.
        ReleaseRefusedError: If a candidate has no utility of bounded sensitivity.
    """
    settings = UtilitySettings.from_json(plan.design.settings)
    return utilities_of(candidates, settings.n_partitions, plan.design.direction)


def read_trace(study: Study) -> tuple[LoopState, ...]:
    """Returns where a study's doubling loop stood after each iteration. For the curator only.

    Raises:
        PlanError: If the study has no plan with a doubling loop.
    """
    plan = read_plan(study)
    loop = None if plan is None else UtilitySettings.from_json(plan.design.settings).plan
    if plan is None or not isinstance(loop, DoublingPlan):
        raise PlanError("This study has no doubling loop.")
    choices = recorded_choices(trials_of(study), plan)
    return tuple(loop.states(choices[0].answers if choices else ())[1:])
