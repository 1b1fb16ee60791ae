"""Refusals for what runs did beyond what they may, as far as their trials show it."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from optuna.study import Study
from optuna.trial import FrozenTrial, TrialState

from optuna_dp.errors import InvalidArgumentError, ReleaseRefusedError
from optuna_dp.evidence.preparation import person_of
from optuna_dp.protocol.entries import stored_trial
from optuna_dp.protocol.records import trial_at
from optuna_dp.training.judgement import NOT_CHECKED, WORDS, RunJudgement, has_output, judge
from optuna_dp.training.prepared import AS_GIVEN
from optuna_dp.training.run_endings import settle

if TYPE_CHECKING:
    from optuna_dp.training.fidelity import Fidelity

_SPENT = (
    "The study is intact, and the run counts: what it spent is spent. Mend the objective and "
    "start a new study. The cost of this run is added to that of the new study."
)
_WAYS_OUT = (
    f"{_SPENT} If you know that the guarantee still "
    "holds, continue this study instead and say why at its release: "
    "release(study, vouched='...')."
)
VOUCH = (
    "If you know that the guarantee still holds, say why: release(study, vouched='...'). The "
    "statement prints your words."
)
# What a warning of a run is about: one of them is said, however many runs there are.
CONDUCT = "conduct"
UNSHOWN = "what nothing shows"
_NOT_COMPARED = (
    "Nothing shows that a run of this study kept to its plan: {reason} release() will refuse the "
    "study unless you vouch for it, release(study, vouched='...')."
)
STATED_ONLY = (
    "The sampler was given no plan of a run (run=RunPlan(...)), so release() will ask how you "
    "know what a run costs: release(study, vouched='...'). The statement prints your words."
)


def checked_vouched(vouched: Any) -> None:
    """Refuses what is no reason in words; None is allowed."""
    if vouched is not None and (not isinstance(vouched, str) or not vouched.strip()):
        raise InvalidArgumentError("vouched", vouched, "it must be a text that says why")


class ConductWatch:
    """What one sampler has seen of its runs, to warn of what a release would refuse.

    A sampler warns and goes on, because the curator may still vouch for a run. A callback refuses
    (:func:`check_at_once`). So what a run shows beyond its plan is looked at when the next trial
    starts: after the callback, and before more is spent.
    """

    def __init__(self) -> None:
        # Studies and numbers of runs to be looked at again, until one is warned of.
        self._doubted: list[tuple[str, int]] = []

    def at_end(
        self,
        study: Study,
        trial: FrozenTrial,
        state: TrialState,
        values: Any,
        run: Fidelity | None,
    ) -> str:
        """Returns a warning if nothing shows that a run kept to its plan; else an empty text.

        Settles the run first. For samplers, when a trial ends and its result is not stored yet.

        Args:
            study: The study.
            trial: The trial.
            state: As it will be stored.
            values: As they will be stored; None if there are none.
            run: What the trial was granted; None if its study has no plan of runs.

        Raises:
            PlanError: If its training was not what its run may do (:func:`settle`).
        """
        settle(study, trial)
        if run is None:
            return ""
        ended_trial = copy.copy(stored_trial(study, trial))
        ended_trial.state, ended_trial.values = state, values
        if not has_output(ended_trial):
            return ""
        judgement = judge(ended_trial, run)
        if judgement.refusal or judgement.excess:
            self._doubted.append((study.study_name, trial.number))
        is_complete = state == TrialState.COMPLETE
        if not is_complete or judgement.not_compared is None:
            return ""
        return _NOT_COMPARED.format(reason=judgement.not_compared)

    def at_start(
        self,
        study: Study,
        run_of: Callable[[int], Fidelity],
        output_attributes: tuple[str, ...],
    ) -> str:
        """Returns a warning of a run that a release would refuse; empty if there is none.

        For samplers, when a trial starts. Says it of one run only: how often it is said may tell
        how many runs there were, where that is secret. So the text has no number of a trial.

        Args:
            study: The study.
            run_of: Returns what the trial of a number was granted.
            output_attributes: User attributes that are part of what the plan charges for.
        """
        numbers = [n for name, n in self._doubted if name == study.study_name]
        if not numbers:
            return ""
        self._doubted = [entry for entry in self._doubted if entry[0] != study.study_name]
        for number in numbers:
            trial = trial_at(study, number)
            reason, fix = _against(judge(trial, run_of(number), output_attributes))
            if reason is not None:
                return f"release() will refuse this study as it is. In a run, {reason} {fix}"
        return ""


def _against(judgement: RunJudgement) -> tuple[str | None, str]:
    """Returns why a release would refuse a run, None if it would not; and what to do about it."""
    fix = _WAYS_OUT if judgement.refusal is None else _SPENT
    return judgement.refusal or judgement.excess, fix


def check_at_once(trial: FrozenTrial, run: Fidelity, output_attributes: tuple[str, ...]) -> None:
    """Refuses, as soon as a run has ended, what a release would refuse.

    What is only not compared is no reason yet: the curator may vouch for it at the release.
    """
    if not has_output(trial):
        return
    reason, fix = _against(judge(trial, run, output_attributes))
    if reason is not None:
        raise ReleaseRefusedError(reason, trial_number=trial.number, fix=fix)


def conduct_of_all(
    runs: Sequence[FrozenTrial],
    fidelity: Fidelity,
    output_attributes: tuple[str, ...],
    vouched: str | None,
    fix: str,
) -> dict[str, Any]:
    """Returns what is known of runs that are all alike, as JSON; refuses what nobody vouches for.

    Their number may be secret, so no run is counted: all have to be known alike, or are taken for
    not checked, and the curator has to vouch for them.

    Args:
        runs: The runs, ended.
        fidelity: What each of them was granted.
        output_attributes: User attributes that are part of what the plan charges for.
        vouched: The curator's reason; None if none was given.
        fix: What to do where nobody can vouch, a sentence.
    """
    checked_vouched(vouched)
    judgements, is_vouched = [], False
    for trial in runs:
        if not has_output(trial):
            continue
        judgement = judge(trial, fidelity, output_attributes)
        if judgement.refusal is not None:
            raise ReleaseRefusedError(judgement.refusal, trial_number=trial.number, fix=fix)
        if judgement.doubt is not None and vouched is None:
            raise ReleaseRefusedError(
                judgement.doubt, trial_number=trial.number, fix=f"{VOUCH} Otherwise: {fix}"
            )
        is_vouched = is_vouched or judgement.doubt is not None
        judgements.append(judgement)
    words: dict[str, Any] = {}
    for name in ("training", "score"):
        kinds = {getattr(judgement, name) for judgement in judgements} - {None}
        if len(kinds) > 1 and vouched is None:
            raise ReleaseRefusedError(
                f"the {name} of its runs is {' in some and '.join(w for w in WORDS if w in kinds)}"
                " in others. Which one it was in a run may tell how many runs there were.",
                fix=f"{VOUCH} Otherwise: {fix}",
            )
        is_vouched = is_vouched or len(kinds) > 1
        if kinds:
            words[name] = kinds.pop() if len(kinds) == 1 else NOT_CHECKED
    if judgements:
        prepared = [judgement.prepared for judgement in judgements]
        kinds = {notes["word"] for notes in prepared}
        words["preparation"] = kinds.pop() if len(kinds) == 1 else AS_GIVEN
        words |= person_of(prepared)
    # Words of an objective may differ from run to run, so they may tell which runs there were.
    if is_vouched or any(judgement.vouched for judgement in judgements):
        if vouched is None:
            raise ReleaseRefusedError(
                "a run vouched for its own score (run.score(..., vouched=...)).",
                fix=f"{VOUCH} Otherwise: {fix}",
            )
        words["vouched"] = vouched
    return words
