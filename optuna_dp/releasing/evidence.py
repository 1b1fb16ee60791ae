"""Reads a study's runs and refuses whatever the guarantee could not vouch for.

Nothing is written here: a refusal leaves the study as it was. What waiting cannot mend is refused
before it is said that runs are still open.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from optuna.distributions import BaseDistribution, distribution_to_json, json_to_distribution
from optuna.study import Study
from optuna.trial import FrozenTrial, TrialState

from optuna_dp.errors import PlanError, ReleaseRefusedError, UnfinishedStudyError
from optuna_dp.protocol.plan import StudyPlan
from optuna_dp.protocol.records import (
    DRAW_KEY,
    INDEPENDENT_KEY,
    NOT_DRAWN_KEY,
    SlotRecord,
    checked_study,
    draw_alone,
    ended,
    holds_new_plan,
    read_plan,
    vouched_unstarted,
    was_enqueued,
)
from optuna_dp.pruners import PRUNED_KEY
from optuna_dp.releasing.procedures import procedure_of
from optuna_dp.releasing.runs import Evidence, Run
from optuna_dp.releasing.slot_records import (
    GO_ON,
    NEW_STUDY,
    check_direction,
    check_waited,
    slot_record,
)

# A logarithm or an exponential may differ in the last bits from machine to machine.
_ROUNDING = 1e-12


def read_evidence(study: Study) -> Evidence:
    """Returns the study's runs.

    Raises:
        ReleaseRefusedError: If the study's runs are not what its plan promises.
        UnfinishedStudyError: If runs are still open.
    """
    opened = open_plan(checked_study(study))
    if opened is not None:
        return procedure_of(opened.design).read(study, opened)
    if study._is_multi_objective():
        raise ReleaseRefusedError("It has several objectives; optuna-dp selects by one score.")
    trials = sorted(
        study._storage.get_all_trials(study._study_id, deepcopy=False), key=lambda t: t.number
    )
    if not trials:
        raise UnfinishedStudyError("It has no runs yet.", fix="Run study.optimize first.")
    check_not_enqueued(trials[:1])
    plan = _plan(study)
    if plan.design.seeded:
        raise ReleaseRefusedError(
            "Its sampler was given a seed: whoever knows the seed knows the number of runs and "
            "every draw.",
            fix=f"{NEW_STUDY} Leave out seed=.",
        )
    check_direction(study, plan)
    # What stands beyond the last slot cannot win, whoever made it: nothing depends on it.
    slots = [trial for trial in trials if trial.number < plan.slots]
    check_not_enqueued(slots)
    vouched = vouched_unstarted(study._storage, study._study_id, plan.nonce)
    records = [slot_record(trial, plan, vouched) for trial in slots]
    _check_one_successor(slots)
    planned = _planned_space(plan)
    for trial, record in zip(slots, records, strict=True):
        _check_run(trial, record, planned)
        _check_startup(trial, plan)
    check_distributions(slots)
    missing = plan.slots - len(slots) + sum(not ended(trial) for trial in slots)
    if missing:
        raise UnfinishedStudyError(
            "Some of its runs have not ended.",  # How many is a way to learn T.
            fix=GO_ON,
        )
    runs = tuple(
        # A slot without a record failed, so it cannot win, whatever its tie-break.
        Run(trial, 0 if record is None else record.tie_break)
        for trial, record in zip(slots, records, strict=True)
    )
    return Evidence(plan, runs, study)


def check_not_enqueued(trials: Sequence[FrozenTrial]) -> None:
    """Refuses a study for runs whose parameters were given by hand."""
    for trial in trials:
        if was_enqueued(trial):
            raise ReleaseRefusedError(
                "it was enqueued, so its parameters were not drawn from the sampler's density.",
                trial_number=trial.number,
                fix=f"{NEW_STUDY} Do not enqueue trials or retry failed ones.",
            )


def open_plan(study: Study) -> StudyPlan | None:
    """Returns the plan of a study in the open, all of whose runs are paid for; None for others."""
    try:
        plan, _ = read_plan(study._storage, study._study_id)
    except PlanError:
        return None
    return plan if plan is not None and procedure_of(plan.design).in_the_open else None


def check_trial(trial: FrozenTrial, plan: StudyPlan) -> None:
    """Refuses a study for what one trial shows, as :func:`read_evidence` would in the end."""
    if trial.number < plan.slots and not procedure_of(plan.design).in_the_open:
        _check_run(trial, slot_record(trial, plan), _planned_space(plan))
        _check_startup(trial, plan)


def _plan(study: Study) -> StudyPlan:
    try:
        plan, _ = read_plan(study._storage, study._study_id)
        if plan is not None:
            plan = replace(plan, slots=procedure_of(plan.design).slots(study, plan))
    except PlanError as error:
        raise ReleaseRefusedError(str(error), trial_number=0) from error
    if plan is None:
        raise ReleaseRefusedError(
            "It has no plan: it was made by a sampler that is not optuna-dp's, or its first trial "
            "was added by hand.",
            fix="Use optuna_dp.RandTuneSampler or optuna_dp.DPHyPOSampler from the first trial.",
        )
    return plan


def _check_one_successor(slots: Sequence[FrozenTrial]) -> None:
    """Refuses slots lost for certain, to plans that came too late to hold.

    The trial whose plan holds is passed over. Others among the slots fail for certain, so the best
    of fewer than T runs would be released, which may cost more than the best of T.
    """
    late = [trial for trial in slots if trial.number > 0 and holds_new_plan(trial)][1:]
    if late:
        raise ReleaseRefusedError(
            "it holds a second plan in place of trial 0's, made at the same moment as the first, "
            "and so takes the place of a run.",
            trial_number=late[0].number,
            fix=NEW_STUDY,
        )


def _check_run(
    trial: FrozenTrial, record: SlotRecord | None, planned: dict[str, BaseDistribution]
) -> None:
    check_waited(trial)
    _check_draw(trial, record, planned)
    _check_pruning(trial)


def _check_startup(trial: FrozenTrial, plan: StudyPlan) -> None:
    if plan.design.settings.get("startup_runs") is not None:
        # Only where there are density bounds: nothing else rests on it.
        from optuna_dp.releasing.startup_evidence import check_startup

        check_startup(trial, plan)


def _planned_space(plan: StudyPlan) -> dict[str, BaseDistribution]:
    """The distributions that the plan fixes; empty for define-by-run."""
    space = plan.design.settings.get("search_space") or {}
    try:
        return {name: json_to_distribution(json.dumps(d)) for name, d in space.items()}
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise ReleaseRefusedError("The search space in its plan is corrupted.") from error


def _check_draw(
    trial: FrozenTrial, record: SlotRecord | None, planned: dict[str, BaseDistribution]
) -> None:
    """Every parameter that was used is one that the sampler drew, from that distribution.

    What was drawn jointly, or from a prior that is not uniform, has a record of its own. The rest
    is drawn again from the slot's record, and must not be noted as somebody else's: with few
    values to choose from, another sampler may have chosen the same.
    """
    draw = trial.system_attrs.get(DRAW_KEY, {"space": {}, "internal": {}})
    try:
        space = {name: json_to_distribution(text) for name, text in draw["space"].items()}
        internal = {name: float(value) for name, value in draw["internal"].items()}
        for name in trial.params.keys() - space.keys():
            alone = trial.system_attrs.get(INDEPENDENT_KEY + name)
            if alone is not None:
                space[name] = json_to_distribution(alone["distribution"])
                internal[name] = float(alone["internal"])
                continue
            used = _as_stored(trial.distributions[name])
            if (
                record is None
                or used.single()
                or name in trial.system_attrs.get(NOT_DRAWN_KEY, ())
            ):
                continue
            law = planned.get(name, used)
            value = trial.distributions[name].to_internal_repr(trial.params[name])
            expected = law.to_internal_repr(draw_alone(record.draws, name, law))
            if used != law or math.isclose(value, expected, rel_tol=_ROUNDING):
                space[name], internal[name] = law, value
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise ReleaseRefusedError(
            "the record of its draw is corrupted.", trial_number=trial.number
        ) from error
    for name, given in trial.params.items():
        used = _as_stored(trial.distributions[name])
        if used.single():
            continue  # Optuna does not ask the sampler for what can have one value only.
        if name not in space:
            raise ReleaseRefusedError(
                f"its parameter {name!r} was not drawn by the study's sampler.",
                trial_number=trial.number,
                fix=f"{NEW_STUDY} Do not wrap or replace the sampler.",
            )
        value = trial.distributions[name].to_internal_repr(given)
        if used != space[name] or value != internal.get(name):
            raise ReleaseRefusedError(
                f"the objective asked for {name!r} with {used}, but it was drawn from "
                f"{space[name]}, so its density is not bounded as planned.",
                trial_number=trial.number,
                fix=f"{NEW_STUDY} Use the distributions of search_space in the objective.",
            )


def _as_stored(distribution: BaseDistribution) -> BaseDistribution:
    """Returns a distribution as a database gives it back: choices that are tuples are lists.

    The records here are JSON as well, and a storage in memory keeps the tuples.
    """
    return json_to_distribution(distribution_to_json(distribution))


def _check_pruning(trial: FrozenTrial) -> None:
    """A run that was pruned was pruned by its own values.

    Every pruner that compares trials needs reported values, so a run that reported none ended by
    the objective's own decision.
    """
    if (
        trial.state == TrialState.PRUNED
        and trial.intermediate_values
        and PRUNED_KEY not in trial.system_attrs
    ):
        raise ReleaseRefusedError(
            "it was pruned, and not by a pruner that looks at one trial only.",
            trial_number=trial.number,
            fix=f"{NEW_STUDY} Use optuna_dp.WithinTrialPruner and leave study.pruner alone while "
            "the study runs; an objective that ends a run by a rule of its own returns NaN.",
        )


def check_distributions(slots: Sequence[FrozenTrial]) -> None:
    """Each name stands for one distribution, so that the prior is one law."""
    seen: dict[str, tuple[str, Any]] = {}
    for trial in slots:
        for name, distribution in trial.distributions.items():
            text = distribution_to_json(distribution)
            first = seen.setdefault(name, (text, distribution))
            if first[0] != text:
                raise ReleaseRefusedError(
                    f"parameter {name!r} has {distribution} here and {first[1]} in an earlier "
                    "run, so the runs were not drawn from one prior.",
                    trial_number=trial.number,
                    fix=f"{NEW_STUDY} Give each range a name of its own; where a range depends "
                    "on another parameter, draw a share of it from [0, 1] and scale that.",
                )
