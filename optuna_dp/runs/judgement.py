"""What is known of a run from its trial: enforced, compared, or not checked.

==============  =================================================================================
*enforced*      this package did it: :func:`optuna_dp.train` drew the batches, clipped, added the
                noise and took the steps, and computed the score record by record
*compared*      code that this package does not own did it, and handed in what a library's
                accountant recorded, which was compared with the plan; or handed in one value for
                each record as a score, to which this package added the noise
*not checked*   nothing was handed in, or an event that the objective wrote; the curator has to
                vouch for it
==============  =================================================================================

A run is judged once, when its trial ends, by the study's sampler
(:func:`judge_at_end`). The judgement is stored beside the trial, and whoever wants to know of the
run reads it: :func:`judgement_of`.
"""

from __future__ import annotations

import contextlib
import copy
import hashlib
import json
import numbers
import re
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

from optuna.study import Study
from optuna.trial import FrozenTrial, TrialState

from optuna_dp.core.json_entries import Entry, stored
from optuna_dp.core.value_types import JsonObject
from optuna_dp.errors import PlanError
from optuna_dp.runs.run_endings import finalise
from optuna_dp.runs.spending import costs_no_more, took_fewer_steps
from optuna_dp.runs.trial_notes import BY_ENGINE, claims, noted
from optuna_dp.study.entries import (
    ASKED,
    INVALID,
    JUDGEMENT,
    SCORES,
    SPENT,
    TRAININGS,
    stored_trial,
)
from optuna_dp.study.trials import output
from optuna_dp.training.prepared import AS_GIVEN

if TYPE_CHECKING:
    from optuna_dp.runs.run import Run

ENFORCED, COMPARED, NOT_CHECKED = "enforced", "compared", "not checked"
WORDS = (ENFORCED, COMPARED, NOT_CHECKED)
# A number that is no part of a name, in a text.
_NUMBER = re.compile(r"(?<![\w-])[+-]?\d+(\.\d+)?(?![\w-])")


@dataclass(frozen=True)
class RunJudgement(Entry):
    """What is known of one run.

    Attributes:
        training: One of the three words, for sampling, clipping, noise and steps.
        score: One of the three words; None if the run has no score, or none is charged for.
        asked: Whether the objective asked what the run may spend.
        refused: Why the run's output cannot be released, whatever anybody says; None if it can.
        excess: What the run shows beyond what is charged for; None if nothing. The curator may
            vouch for it.
        not_compared: What of the run nothing shows; None if nothing. The curator may vouch for it.
        fewer_steps: Whether the training took fewer steps than it may.
        vouched: What the objective itself vouched for, in its words.
        scored_records: The public number of disjoint private records that the score is computed
            on; None if it is computed on others, was not recorded, or is vouched for because it
            is not the number of the values.
        step: How :func:`optuna_dp.train` made a step: generator, clipping norm, units of the
            grid, physical batch, optimizer and where its rate came from. None if other code
            trained.
        prepared: How the records became tensors, with one of the three words on it.
        measure: What :func:`optuna_dp.train` computed as the score: "accuracy", "closeness" or
            "function". None if other code did, or there is none.
        script: The SHA-256 of the source files that asked for the run, by name; empty if they are
            not known.
    """

    described_as: ClassVar[str] = "The judgement of a run"

    training: str
    score: str | None
    asked: bool
    refused: str | None
    excess: str | None
    not_compared: str | None
    fewer_steps: bool
    vouched: tuple[str, ...]
    scored_records: int | None
    step: dict[str, Any] | None
    prepared: dict[str, Any]
    script: dict[str, Any]
    measure: str | None = field(default=None, metadata=stored(optional=True))

    @property
    def doubt(self) -> str | None:
        """What the curator has to vouch for; None if there is nothing."""
        return self.excess or self.not_compared


def judgement_of(
    trial: FrozenTrial, run: Run, output_attributes: tuple[str, ...] = ()
) -> RunJudgement:
    """Returns the judgement that was stored when a run ended.

    If the study's sampler did not see the end, there is none, or that of another end: the worker
    died, or a study without the sampler told the result. The run is judged here then, by what its
    trial holds. So is one whose stored judgement is damaged.

    Args:
        trial: The trial; only one that shows something (:func:`has_output`) has a judgement.
        run: What it was given.
        output_attributes: User attributes that are part of what the plan charges for.
    """
    entry = JUDGEMENT.of(trial)
    if isinstance(entry, Mapping) and entry.get("of") == _digest(trial):
        with contextlib.suppress(PlanError):
            return RunJudgement.from_json(entry.get("judgement"))
    return judge(trial, run, output_attributes)


def judge_at_end(
    study: Study,
    trial: FrozenTrial,
    state: TrialState,
    values: Sequence[float] | None,
    run: Run | None,
    output_attributes: tuple[str, ...],
) -> RunJudgement | None:
    """Settles a run and judges it, while its result is not stored yet; stores the judgement.

    A worker that dies in between leaves an open trial, and the judgement of an end that never was.

    Args:
        study: The study.
        trial: The trial that ends.
        state: As it will be stored.
        values: As they will be stored; None if there are none.
        run: What the trial was given; None if its study has no plan of runs.
        output_attributes: User attributes that are part of what the plan charges for.

    Returns:
        The judgement; None if the run shows nothing, or there is no plan to judge it by.

    Raises:
        PlanError: If its training was not what its run may do (:func:`finalise`). The judgement is
            stored nevertheless, because Optuna stores the result.
    """
    judgement = None
    try:
        finalise(study, trial)
    finally:
        if run is not None:
            judgement = _judged(study, trial, state, values, run, output_attributes)
    return judgement


def _judged(
    study: Study,
    trial: FrozenTrial,
    state: TrialState,
    values: Sequence[float] | None,
    run: Run,
    output_attributes: tuple[str, ...],
) -> RunJudgement | None:
    """Judges a run that ends and stores the judgement; see :func:`judge_at_end`."""
    ended_trial = copy.copy(stored_trial(study, trial))
    ended_trial.state = state
    ended_trial.values = None if values is None else list(values)
    if not has_output(ended_trial):
        return None
    judgement = judge(ended_trial, run, output_attributes)
    entry = {"of": _digest(ended_trial), "judgement": judgement.to_json()}
    JUDGEMENT.write(study, ended_trial, entry)
    return judgement


def _digest(trial: FrozenTrial) -> str:
    """Returns a digest of all that a judgement depends on besides the plan.

    So the judgement of one end is not taken for that of another: of a copied trial, or where a
    worker died between judging and ending, and somebody else told another result.
    """
    judged = {
        "number": trial.number,
        "state": trial.state.name,
        "values": trial.values,
        "reports": sorted(trial.intermediate_values.items()),
        "attributes": sorted(
            (str(name), _what_is_judged(value)) for name, value in trial.user_attrs.items()
        ),
        "notes": [entry.of(trial) for entry in (ASKED, SPENT, INVALID, TRAININGS, SCORES)],
    }
    text = json.dumps(judged, sort_keys=True, default=repr)
    return hashlib.sha256(text.encode()).hexdigest()


def _what_is_judged(value: object) -> str:
    """Returns what a judgement depends on in the value of a user attribute, which may be any.

    In memory it is an object of the script, large perhaps, and its ``repr`` may fail.
    """
    return float(value).hex() if isinstance(value, float) else str(_holds_numbers(value))


def judge(trial: FrozenTrial, run: Run, output_attributes: tuple[str, ...] = ()) -> RunJudgement:
    """Returns what a trial that has ended shows of its run.

    Args:
        trial: The trial; only one that shows something (:func:`has_output`) is worth asking for.
        run: What it was given.
        output_attributes: User attributes that are part of what the plan charges for.
    """
    spending, trainings = noted(trial, SPENT), claims(trial, TRAININGS)
    training = _training_word(spending, trainings)
    score_claim = _own_score(trial)
    vouched = () if score_claim is None else (score_claim.get("vouched"),)
    score = None if output(trial) is None else _score_word(run, score_claim)
    return RunJudgement(
        training=training,
        score=score,
        asked=noted(trial, ASKED) is not None,
        refused=_refusal(trial, run, spending, trainings) or _refusal_of_score(score_claim, run),
        excess=_excess(trial, run, output_attributes),
        not_compared=_not_compared(training, score, score_claim, spending)
        or _not_paid_for(trial, run, output_attributes),
        fewer_steps=_took_fewer_steps(spending, run),
        vouched=tuple(text for text in vouched if text),
        scored_records=_scored_records(score_claim),
        step=_step(trainings),
        prepared=_prepared(trainings),
        script=dict((noted(trial, ASKED) or {}).get("script") or {}),
        measure=None if score is None else (score_claim or {}).get("measure"),
    )


def _step(trainings: Mapping[str, JsonObject]) -> dict[str, str | float | bool] | None:
    for training in trainings.values():
        if training.get("by") == BY_ENGINE and "units" in training:
            return {name: training[name] for name in _OF_A_STEP}
    return None


def _prepared(trainings: Mapping[str, JsonObject]) -> dict[str, object]:
    for training in trainings.values():
        if training.get("by") == BY_ENGINE and isinstance(training.get("prepared"), Mapping):
            return dict(training["prepared"])
    return {"word": AS_GIVEN}


def has_output(trial: FrozenTrial) -> bool:
    """Returns whether a run shows anything but that it failed.

    A run that was pruned before it asked what it may spend, by a rule on its hyperparameters say,
    shows as much as one that failed.
    """
    outputs = trial.values or trial.intermediate_values or trial.user_attrs
    if outputs or trial.state not in (TrialState.FAIL, TrialState.PRUNED):
        return True
    return trial.state == TrialState.PRUNED and noted(trial, ASKED) is not None


def _training_word(spending: JsonObject | None, trainings: Mapping[str, JsonObject]) -> str:
    if any(training.get("by") == BY_ENGINE for training in trainings.values()):
        return ENFORCED
    # Without the second reading nobody knows whether the training went on. An event that the
    # objective wrote shows nothing of what it did.
    is_recorded = spending is not None and spending.get("final") and not spending.get("stated")
    return COMPARED if is_recorded else NOT_CHECKED


def _own_score(trial: FrozenTrial) -> JsonObject | None:
    """Returns the claim of the score that is the run's output; None if it is another number."""
    for entry in claims(trial, SCORES).values():
        if output(trial) == (entry.get("value"),):
            return entry
    return None


def _scored_records(score_claim: JsonObject | None) -> int | None:
    if score_claim is None or score_claim.get("vouched"):
        return None
    size: int | None = score_claim.get("size")
    return size


def _score_word(run: Run, score_claim: JsonObject | None) -> str | None:
    if run.score_noise_multiplier is None:
        return None
    if score_claim is None:
        return NOT_CHECKED
    if score_claim.get("by") == BY_ENGINE:
        return ENFORCED
    return NOT_CHECKED if score_claim.get("vouched") else COMPARED


_OF_A_STEP = (
    "generator",
    "clipping_norm",
    "units",
    "physical_batch",
    "ranks",
    "reproducible",
    "optimizer",
    "rate",
)
# What odp.train notes of the run that it was given.
_GRANTED = ("noise_multiplier", "sample_rate", "steps")


def _refusal(
    trial: FrozenTrial,
    run: Run,
    spending: JsonObject | None,
    trainings: Mapping[str, JsonObject],
) -> str | None:
    """Returns why nobody can vouch for a run; None if somebody can."""
    invalid = noted(trial, INVALID)
    if invalid is not None:
        return str(invalid.get("why"))
    if len(trainings) > 1:
        return "it trained more than once, and the plan charges for one training in each trial."
    if any(not training.get("finished") for training in trainings.values()):
        return (
            "its training was begun and did not come to its end, so what it spent is not known. "
            "An objective must not return a score after an error in its training."
        )
    own_training = next(iter(trainings.values()), {})
    if own_training.get("by") == BY_ENGINE:
        if spending is not None:
            return "it trained by odp.train and by a loop of its own. The plan charges for one."
        if any(own_training.get(name) != getattr(run, name) for name in _GRANTED):
            return (
                "odp.train got other numbers than those that the trial was given. Give it what "
                "odp.start_run(trial) returns, as it is."
            )
    if spending is None:
        return None
    # Start-up time: samplers hold plans; dp-accounting is slow.
    from optuna_dp.accounting.event_json import event_from_json
    from optuna_dp.accounting.event_words import in_words

    event = event_from_json(spending.get("event"))
    if costs_no_more(event, run.training, run.neighboring_relation):
        return None
    return (
        "its training spent more than the plan allows. Spent, by its own accountant: "
        f"{in_words(event)}. Allowed: {in_words(run.training)}."
    )


def _refusal_of_score(score_claim: JsonObject | None, run: Run) -> str | None:
    """Returns why nobody can vouch for a run's score; None if somebody can."""
    noise_multiplier = (score_claim or {}).get("noise_multiplier")
    if noise_multiplier in (None, run.score_noise_multiplier):
        return None
    return (
        f"its score has other noise than the trial was given: {noise_multiplier}, not "
        f"{run.score_noise_multiplier}. Score with what odp.start_run(trial) returns, as it is."
    )


def _excess(trial: FrozenTrial, run: Run, output_attributes: tuple[str, ...]) -> str | None:
    """Returns what a run shows beyond what is charged for; None if nothing."""
    if noted(trial, ASKED) is None:
        return (
            "its objective never called odp.start_run(trial), so nothing shows that the "
            "training kept to the plan. Call run = odp.start_run(trial) in the objective, and "
            "train by odp.train(run, ...), or by a loop of your own that ends with "
            "run.spent(accountant)."
        )
    score = _paid_score(trial)
    if (
        trial.intermediate_values
        and run.scored_on != "public"
        and run.records is not None
        and not _reports_only(trial, score, run.steps)
    ):
        way_out = (
            "give the sampler as run=, in place of a RunPlan,"
            if run.is_independent
            else "make the plan with plan_budget(run=...) and"
        )
        return (
            "it reported values to a pruner, and the plan charges for one training and one "
            "score only. Do not call trial.report. Only the score that the objective returns may "
            f"be reported, once, at step 0, 1 or run.steps. Or {way_out} an event that includes "
            "the reported values."
        )
    undeclared_names = _numbers_in_attributes(trial, score) - set(output_attributes)
    if undeclared_names:
        name = min(undeclared_names)
        return (
            f"its user attribute {name!r} holds numbers, and the plan may not charge for "
            "them. If the plan includes their cost, or they are public, name the attribute to "
            f"the sampler: output_attributes=[{name!r}]. Otherwise do not set it."
        )
    return None


def _numbers_in_attributes(trial: FrozenTrial, score: float | None) -> set[str]:
    """Returns the user attributes of a trial that hold other numbers than its score."""
    return {
        name
        for name, value in trial.user_attrs.items()
        if _holds_numbers(value) and not _is_same_number(value, score)
    }


def _paid_score(trial: FrozenTrial) -> float | None:
    """Returns the trial's one output, if it is the score with noise that this package made.

    None for a run that is open, failed or was pruned: its score may be no output.
    """
    values = output(trial)
    if values is None or len(values) != 1 or _own_score(trial) is None:
        return None
    return values[0]


def _reports_only(trial: FrozenTrial, score: float | None, steps: int) -> bool:
    """Returns whether a trial reported its score, once, at a step that tells nothing.

    The value is the output once more. The step would be one more output if it could be any
    number, as the epoch at which a training was best.
    """
    return len(trial.intermediate_values) == 1 and all(
        step in (0, 1, steps) and _is_same_number(value, score)
        for step, value in trial.intermediate_values.items()
    )


def _is_same_number(value: object, score: float | None) -> bool:
    """Returns whether a value is the score, bit by bit: rounding or a sign would tell more."""
    if score is None or not isinstance(value, float):
        return False
    return struct.pack("<d", value) == struct.pack("<d", score)


def _not_compared(
    training: str,
    score: str | None,
    score_claim: JsonObject | None,
    spending: JsonObject | None,
) -> str | None:
    if training == NOT_CHECKED and (spending or {}).get("stated"):
        return (
            "what its training spent is an event that the objective wrote, and no library's "
            "accountant recorded it. Train by odp.train(run, ...), or hand in the accountant: "
            "run.spent(accountant)."
        )
    if training == NOT_CHECKED and spending is not None:
        return (
            "the accountant that it handed in was not read again when its training was over: its "
            "result was told by another process, or without the study's sampler. Tell results "
            "where the training was made, with optuna.load_study(..., sampler=...)."
        )
    if training == NOT_CHECKED:
        return (
            "nothing shows what its training spent. Train by odp.train(run, ...), or hand in what "
            "the training's own accountant recorded: run.spent(accountant)."
        )
    if score == NOT_CHECKED and not (score_claim or {}).get("vouched"):
        return (
            "its score is not what odp.train or run.score returned, so nothing shows that it has "
            "the noise that the plan charges for. Return trained.score, or run.score(...)."
        )
    return None


def _not_paid_for(trial: FrozenTrial, run: Run, output_attributes: tuple[str, ...]) -> str | None:
    """Returns which released attribute a plan of numbers does not charge for; None if none.

    Such a plan charges for one training and one score. Numbers that are public, or computed from
    what these two made, are free. An event of the user's own may charge for more.
    """
    names = _numbers_in_attributes(trial, _paid_score(trial))
    names |= {name for name, value in trial.user_attrs.items() if _writes_numbers(value)}
    names &= set(output_attributes)
    if run.records is None or not names:
        return None
    return (
        f"its user attribute {min(names)!r} is released and holds numbers, and the plan charges "
        "for one training and one score only. Numbers cost nothing if they are public, or "
        "computed from the noisy model, the score and the hyperparameters alone. Nothing shows "
        "that these are."
    )


def _took_fewer_steps(spending: JsonObject | None, run: Run) -> bool:
    if spending is None:
        return False
    # Start-up time: samplers hold plans; dp-accounting is slow.
    from optuna_dp.accounting.event_json import event_from_json

    return took_fewer_steps(event_from_json(spending.get("event")), run.training)


def _writes_numbers(value: object) -> bool:
    """Returns whether a text has numbers of their own in it, as a report has."""
    if isinstance(value, Mapping):
        return any(map(_writes_numbers, value.values()))
    if isinstance(value, list | tuple):
        return any(map(_writes_numbers, value))
    return isinstance(value, str) and _NUMBER.search(value) is not None


def _holds_numbers(value: object) -> bool:
    if isinstance(value, Mapping):
        return any(map(_holds_numbers, value.values()))
    if isinstance(value, list | tuple):
        return any(map(_holds_numbers, value))
    # A storage in memory also holds arrays and numbers of NumPy and PyTorch, as they were set.
    return isinstance(value, numbers.Number) or hasattr(value, "__array__")
