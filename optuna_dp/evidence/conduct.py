"""Refusals for what runs did beyond what they may, as far as their trials show it."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from optuna.study import Study
from optuna.trial import FrozenTrial, TrialState

from optuna_dp.errors import InvalidArgumentError, ReleaseRefusedError
from optuna_dp.optuna_internals import storage_of, trial_id_of
from optuna_dp.training.judgement import NOT_CHECKED, WORDS, has_output, judge
from optuna_dp.training.run_endings import settle

if TYPE_CHECKING:
    from optuna_dp.training.fidelity import Fidelity

VOUCH = (
    "If you know that the guarantee still holds, say why: release(study, vouched='...'). The "
    "statement prints your words."
)
NOT_COMPARED = (
    "Nothing shows that a run of this study kept to its plan, so release() will refuse it unless "
    "you vouch for it: release(study, vouched='...'). Train by odp.train(run, ...) and return "
    "trained.score. Or hand in what the training's own accountant recorded, "
    "run.spent(accountant), and return run.score(...)."
)
STATED_ONLY = (
    "The sampler was not told what a run is (run=), so release() will ask how you know what a run "
    "costs: release(study, vouched='...'). The statement prints your words."
)


def checked_vouched(vouched: Any) -> None:
    """Refuses what is no reason in words; None is allowed."""
    if vouched is not None and (not isinstance(vouched, str) or not vouched.strip()):
        raise InvalidArgumentError("vouched", vouched, "it must be a text that says why")


def is_not_compared_at_end(
    study: Study, trial: FrozenTrial, state: TrialState, values: Any, run: Fidelity | None
) -> bool:
    """Returns whether nothing shows that a run kept to its plan; settles it first.

    For samplers, when a trial ends and its result is not stored yet.

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
    if run is None or state != TrialState.COMPLETE:
        return False
    ended = copy.copy(storage_of(study).get_trial(trial_id_of(trial)))
    ended.state, ended.values = state, values
    return judge(ended, run).not_compared is not None


def check_at_once(trial: FrozenTrial, run: Fidelity, output_attributes: tuple[str, ...]) -> None:
    """Refuses, as soon as a run has ended, what a release would refuse.

    What is only not compared is no reason yet: the curator may vouch for it at the release.
    """
    if not has_output(trial):
        return
    judgement = judge(trial, run, output_attributes)
    reason = judgement.refusal or judgement.excess
    if reason is not None:
        fix = "Mend the objective and start a new study."
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
    if any(judgement.is_stated for judgement in judgements):
        words["stated"] = True
    # Words of an objective may differ from run to run, so they may tell which runs there were.
    if is_vouched or any(judgement.vouched for judgement in judgements):
        if vouched is None:
            raise ReleaseRefusedError(
                "a run vouched for its own score (run.score(..., vouched=...)).",
                fix=f"{VOUCH} Otherwise: {fix}",
            )
        words["vouched"] = vouched
    return words
