"""The private choice of a study with averaged utilities: made once, by any worker.

Optuna's storages cannot compare and set an attribute. What every storage does in one step is to
create a trial together with its attributes and its final state, under the next number. So an
answer is recorded as a finished trial of its own: nobody can change it, and of several everybody
takes the one with the lowest number. An answer that was drawn and not recorded, or recorded
second, has been seen by nobody and cost nothing.

Consequences:

* *Two workers choose at the same time.* Both take the answer with the lowest number.
* *A worker dies while it chooses.* The next one (or ``release``) chooses; nothing had been seen.
* *A second release.* Reads the record of the first.
* *A candidate's trial fails after it began.* Dropping it could tell a record, so it blocks the
  choice until it has been evaluated again (:mod:`optuna_dp.utilities.second_evaluations`).
* *A worker dies before the objective is called, or while it waits for an answer.* Its candidate is
  missing from the choice. No data had been touched, so its absence says nothing about them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import numpy.typing as npt
import optuna
from optuna.study import Study
from optuna.trial import FrozenTrial, TrialState

from optuna_dp.errors import PlanError, ReleaseRefusedError, UnfinishedStudyError
from optuna_dp.json_records import Record
from optuna_dp.optuna_internals import storage_of, study_id_of
from optuna_dp.protocol.plan import StudyPlan
from optuna_dp.protocol.records import (
    UNSTARTED_KEY,
    ended,
    read_plan,
    trials_of,
)
from optuna_dp.utilities.above_threshold import above_threshold
from optuna_dp.utilities.doubling import DoublingPlan, LoopState
from optuna_dp.utilities.report_noisy_max import NoisyMaxPlan, noisy_max
from optuna_dp.utilities.second_evaluations import (
    START_AGAIN,
    UTILITIES_KEY,
    never_began,
    with_utilities,
)
from optuna_dp.utilities.settings import UtilitySettings
from optuna_dp.utilities.utility_values import Utilities

CHOICE_KEY = "optuna_dp:choice"


@dataclass(frozen=True)
class Choice(Record):
    """What the private mechanism has answered so far. For the curator until it is released.

    Attributes:
        nonce: The plan's nonce.
        stage: The stage after which this was recorded.
        answers: One per iteration: the index of the accepted candidate within those tested, or
            None.
        chosen: Number of the trial of the candidate accepted last, or None.
        finished: Whether there will be no further answer.
    """

    described_as: ClassVar[str] = "The record of the private choice"

    nonce: str
    stage: int
    answers: tuple[int | None, ...]
    chosen: int | None
    finished: bool

    def __post_init__(self) -> None:
        if any(n is not None and n < 0 for n in (self.stage, self.chosen, *self.answers)):
            raise ValueError("it holds a negative number")


def choices(trials: Sequence[FrozenTrial], plan: StudyPlan) -> dict[int, Choice]:
    """Returns what has been recorded among all trials of a study, by stage."""
    choice_of_stage: dict[int, Choice] = {}
    for trial in trials:
        if CHOICE_KEY in trial.system_attrs:
            choice = Choice.from_json(trial.system_attrs[CHOICE_KEY])
            if choice.nonce == plan.nonce:
                choice_of_stage.setdefault(choice.stage, choice)
    return choice_of_stage


def final_choice(trials: Sequence[FrozenTrial], plan: StudyPlan) -> Choice | None:
    """Returns the finished choice, or None."""
    return next((c for c in choices(trials, plan).values() if c.finished), None)


def choice_after(trials: Sequence[FrozenTrial], plan: StudyPlan, stage: int) -> Choice | None:
    """Returns what has been recorded after a stage, or the finished choice; None if neither."""
    choice_of_stage = choices(trials, plan)
    return next((c for c in choice_of_stage.values() if c.finished), choice_of_stage.get(stage))


def end_of(trials: Sequence[FrozenTrial], plan: StudyPlan) -> int:
    """Returns the number of trials that hold candidates or answers; smaller if it ended early."""
    final = final_choice(trials, plan)
    if final is None:
        return plan.slots
    return UtilitySettings.from_json(plan.design.settings).first(final.stage + 1)


def settle(study: Study, plan: StudyPlan, stage: int) -> Choice:
    """Returns the choice after ``stage``, whose trials have ended; makes it if none is recorded.

    Raises:
        ReleaseRefusedError: If the utilities of a trial cannot be vouched for.
    """
    stored_choice = choice_after(trials_of(study), plan, stage)
    if stored_choice is not None:
        return stored_choice
    previous_choice = settle(study, plan, stage - 1) if stage > 0 else None
    if previous_choice is not None and previous_choice.finished:
        return previous_choice
    choice = _next_choice(study, plan, stage, previous_choice)
    storage_of(study).create_new_trial(
        study_id_of(study),
        template_trial=optuna.trial.create_trial(
            state=TrialState.FAIL, system_attrs={CHOICE_KEY: choice.to_json(), UNSTARTED_KEY: True}
        ),
    )
    # Read after it was written: of two workers that chose, both take the choice recorded first.
    return choices(trials_of(study), plan)[stage]


def candidates_among(
    trials: Sequence[FrozenTrial], settings: UtilitySettings, stage: int
) -> list[FrozenTrial]:
    """Returns the trials of a stage that hold candidates, by number."""
    numbers = range(settings.first(stage), settings.first(stage + 1))
    return [t for t in trials if t.number in numbers and not never_began(t)]


def read_trace(study: Study) -> tuple[LoopState, ...]:
    """Returns where a study's doubling loop stood after each iteration. For the curator only.

    Raises:
        PlanError: If the study has no plan with a doubling loop.
    """
    plan = read_plan(storage_of(study), study_id_of(study))
    settings = None if plan is None else UtilitySettings.from_json(plan.design.settings)
    if plan is None or settings is None or not isinstance(settings.plan, DoublingPlan):
        raise PlanError("This study has no doubling loop.")
    choice_of_stage = choices(trials_of(study), plan)
    return tuple(
        settings.plan.states(
            choice_of_stage[max(choice_of_stage)].answers if choice_of_stage else ()
        )[1:]
    )


# Means of round numbers (accuracies of small partitions) have few binary digits in any precision.
_FEW_DIGITS = 1 << 12


def _looks_single(means: npt.NDArray[np.float64]) -> bool:
    """Whether every mean has at most the digits of single precision, and one uses many of them.

    A storage keeps a number and not its type, so this is all that is left to be seen. Of means in
    double precision that are no round numbers, one in 2^29 looks so.
    """
    single = means == means.astype(np.float32).astype(np.float64)
    rounded = means * _FEW_DIGITS == np.rint(means * _FEW_DIGITS)
    return bool(np.all(single) and not np.all(rounded))


def utilities_of(
    trials: Sequence[FrozenTrial], settings: UtilitySettings, direction: str
) -> Utilities:
    """Returns the utilities of candidates whose trials have ended.

    Raises:
        UnfinishedStudyError: If a trial is open.
        ReleaseRefusedError: If a candidate has no utility, or one outside [0, 1].
    """
    scores = [_scores(trial, settings.n_partitions, direction) for trial in trials]
    with_scores = [row for row in scores if row is not None]
    if len(with_scores) not in (0, len(trials)):
        number = next(t.number for t, row in zip(trials, scores, strict=True) if row is None)
        raise ReleaseRefusedError(
            "it returned a mean, but other candidates used report_utilities.",
            trial_number=number,
            fix="Use report_utilities for every candidate.",
        )
    if with_scores:
        utilities = Utilities.from_scores(with_scores)
    else:
        means = np.array([trial.value for trial in trials], dtype=np.float64)
        if _looks_single(means):
            raise ReleaseRefusedError(
                "All means have single precision, and the guarantee does not cover its rounding.",
                fix="Average in double precision, or use report_utilities.",
            )
        utilities = Utilities.from_means(means, settings.n_partitions)
    if direction == "maximize":
        return utilities
    # A cost in [0, 1]. The complement is taken in whole numbers, so that it moves as far.
    totals = utilities.unit - utilities.totals
    return Utilities(totals, utilities.n_partitions, utilities.sensitivity)


def _scores(trial: FrozenTrial, k: int, direction: str) -> list[float] | None:
    """The k utilities of a candidate, or None if it gave their mean; refuses anything else."""
    if not ended(trial):
        raise UnfinishedStudyError("Its candidates have not all been evaluated.")
    value = trial.value if trial.state == TrialState.COMPLETE else None
    if value is None:
        raise ReleaseRefusedError(
            f"it has no utility (its state is {trial.state.name}). If one record made it fail, "
            "that record moved its utility by more than 1/k.",
            trial_number=trial.number,
            fix="Evaluate its candidate again, with None for each partition whose training "
            f"fails: report_utilities(study.trials[{trial.number}], utilities, study=study). "
            f"{START_AGAIN}",
        )
    reported = trial.system_attrs.get(UTILITIES_KEY)
    values = [value] if reported is None else reported
    outlier = next((v for v in values if v is not None and not 0.0 <= v <= 1.0), None)
    if outlier is not None:
        raise ReleaseRefusedError(
            "its utility does not lie in [0, 1].",  # Which it is, is not private.
            trial_number=trial.number,
            fix=f"Scale it by bounds that do not depend on the data. {START_AGAIN}",
        )
    if reported is None:
        return None
    if len(values) != k:
        raise ReleaseRefusedError(
            f"it reported {len(values)} utilities, and there are {k} partitions.",
            trial_number=trial.number,
            fix=START_AGAIN,
        )
    return [worst(direction) if v is None else v for v in values]


def worst(direction: str) -> float:
    """The utility of a partition whose training failed."""
    return 0.0 if direction == "maximize" else 1.0


def _next_choice(
    study: Study, plan: StudyPlan, stage: int, previous_choice: Choice | None
) -> Choice:
    settings = UtilitySettings.from_json(plan.design.settings)
    trials = candidates_among(trials_of(study), settings, stage)
    answers = [] if previous_choice is None else list(previous_choice.answers)
    number = None if previous_choice is None else previous_choice.chosen
    is_over = stage + 1 >= settings.stages
    if trials:
        candidates = with_utilities(study, plan, trials)
        utilities = utilities_of(candidates, settings, plan.design.direction)
        if isinstance(settings.plan, NoisyMaxPlan):
            answers.append(noisy_max(utilities, settings.plan.epsilon, settings.plan.noise))
            number = trials[answers[-1] or 0].number
        else:
            state = settings.plan.states(answers)[-1]
            while not state.finished:
                answer = above_threshold(utilities, state.threshold, settings.plan.epsilon)
                answers.append(answer)
                number = number if answer is None else trials[answer].number
                state = state.after(answer)
                if settings.kind == "proposed":
                    break
            is_over = is_over or state.finished
    return Choice(plan.nonce, stage, tuple(answers), number, is_over)
