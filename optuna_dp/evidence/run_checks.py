"""Refusals for what runs did beyond what they may, as far as their trials show it."""

from __future__ import annotations

from collections.abc import Sequence

from optuna.trial import FrozenTrial, TrialState

from optuna_dp.core.value_types import JsonValue
from optuna_dp.errors import InvalidArgumentError, ReleaseRefusedError
from optuna_dp.evidence.ended_runs import EndedRun
from optuna_dp.evidence.preparation import person_of
from optuna_dp.runs.judgement import NOT_CHECKED, WORDS, RunJudgement
from optuna_dp.runs.scripts import of_all_runs
from optuna_dp.training.prepared import AS_GIVEN

_SPENT = (
    "The study is intact, and the run counts: what it spent is spent. Mend the objective and "
    "start a new study. The cost of this run is added to that of the new study."
)
_WAYS_OUT = (
    f"{_SPENT} If you know that the guarantee still holds, continue this study instead and say "
    "why at its release: release(study, vouched='...')."
)
VOUCH = (
    "If you know that the guarantee still holds, say why: release(study, vouched='...'). The "
    "statement prints your words."
)
# What a warning of a run is about: one of them is said, however many runs there are.
_EXCESS = "what a run shows beyond its plan"
_UNSHOWN = "what nothing shows of a run"
_NOT_COMPARED = (
    "Nothing shows that a run of this study kept to its plan: {reason} release() will refuse the "
    "study unless you vouch for it, release(study, vouched='...')."
)
STATED_ONLY = (
    "The sampler was given no plan of a run (run=RunPlan(...)), so release() will ask how you "
    "know what a run costs: release(study, vouched='...'). The statement prints your words."
)


def checked_vouched(vouched: object) -> None:
    """Refuses what is no reason in words; None is allowed."""
    if vouched is not None and (not isinstance(vouched, str) or not vouched.strip()):
        raise InvalidArgumentError("vouched", vouched, allowed="it must be a text that says why")


def warning_of(judgement: RunJudgement, state: TrialState) -> tuple[str, str] | None:
    """Returns what to warn of when a run ends, and what it is about; None if of nothing.

    For samplers. It is said of one run only: how often it is said may tell how many runs there
    were, where that is secret. So the text has no number of a trial.

    Args:
        judgement: What is known of the run.
        state: How it ended.
    """
    reason, fix = _against(judgement)
    if reason is not None:
        return f"release() will refuse this study as it is. In a run, {reason} {fix}", _EXCESS
    if state != TrialState.COMPLETE or judgement.not_compared is None:
        return None
    return _NOT_COMPARED.format(reason=judgement.not_compared), _UNSHOWN


def check_at_once(trial: FrozenTrial, judgement: RunJudgement) -> None:
    """Refuses, as soon as a run has ended, what a release would refuse.

    What is only not compared is no reason yet: the curator may vouch for it at the release.
    """
    reason, fix = _against(judgement)
    if reason is not None:
        raise ReleaseRefusedError(reason, trial_number=trial.number, fix=fix)


def _against(judgement: RunJudgement) -> tuple[str | None, str]:
    """Returns why a release would refuse a run, None if it would not; and what to do about it."""
    fix = _WAYS_OUT if judgement.refused is None else _SPENT
    return judgement.refused or judgement.excess, fix


def conduct_of_all(
    runs: Sequence[EndedRun], vouched: str | None, fix: str
) -> dict[str, JsonValue]:
    """Returns what is known of runs that are all alike, as JSON; refuses what nobody vouches for.

    Their number may be secret, so no run is counted: all have to be known alike, or are taken for
    not checked, and the curator has to vouch for them.

    Args:
        runs: The runs, ended.
        vouched: The curator's reason; None if none was given.
        fix: What to do where nobody can vouch, a sentence.
    """
    checked_vouched(vouched)
    judgements, is_vouched = [], False
    for run in runs:
        judgement, number = run.judgement, run.trial.number
        if judgement is None:
            continue  # It shows nothing.
        if judgement.refused is not None:
            raise ReleaseRefusedError(judgement.refused, trial_number=number, fix=fix)
        if judgement.doubt is not None and vouched is None:
            raise ReleaseRefusedError(
                judgement.doubt, trial_number=number, fix=f"{VOUCH} Otherwise: {fix}"
            )
        is_vouched = is_vouched or judgement.doubt is not None
        judgements.append(judgement)
    words: dict[str, JsonValue] = {}
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
        words |= person_of(prepared) if words["preparation"] != AS_GIVEN else {}
        script = of_all_runs([judgement.script for judgement in judgements])
        words |= {"script": script} if script else {}
    # Words of an objective may differ from run to run, so they may tell which runs there were.
    if is_vouched or any(judgement.vouched for judgement in judgements):
        if vouched is None:
            raise ReleaseRefusedError(
                "a run vouched for its own score (run.score(..., vouched=...)).",
                fix=f"{VOUCH} Otherwise: {fix}",
            )
        words["vouched"] = vouched
    return words
