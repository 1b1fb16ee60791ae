"""A budget: pilots and the last run, whose outputs are all charged for by composition.

Hyperparameters may come from anywhere: any function of private outputs, and any person who saw no
more, may propose, climb and choose (docs/explanation/budget.md). So nothing is asked here
of how they were drawn, nor whether the sampler had a seed. Only runs that began can have touched
the data: other trials are no part of a release, and no run that began has seen them.
"""

from __future__ import annotations

import copy
import functools
import itertools
import logging
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import optuna
from optuna.distributions import json_to_distribution
from optuna.trial import FrozenTrial, TrialState

from optuna_dp.errors import ReleaseRefusedError
from optuna_dp.evidence.drawn_ranges import times_drawn
from optuna_dp.evidence.preparation import person_of
from optuna_dp.evidence.procedure import Outcome, Procedure, ReleaseRequest
from optuna_dp.evidence.run_checks import VOUCH, checked_vouched
from optuna_dp.evidence.slot_entries import NEW_STUDY
from optuna_dp.evidence.stated_run import RunCost, StatedRun
from optuna_dp.preparation.range_query import RangeQuery
from optuna_dp.runs.judgement import WORDS
from optuna_dp.runs.scripts import of_all_runs
from optuna_dp.samplers.budget.last_runs import FAILED, GIVEN_UP, end_of
from optuna_dp.samplers.budget.released_ranges import released_ranges
from optuna_dp.samplers.budget.settings import BudgetSettings
from optuna_dp.study.entries import BEYOND, DRAW
from optuna_dp.study.plan import StudyPlan
from optuna_dp.study.trials import (
    began,
    ended,
    from_number,
    output,
    was_enqueued,
)
from optuna_dp.training.prepared import WORDS as PREPARED

if TYPE_CHECKING:
    from optuna_dp.accounting.guarantee import Guarantee
    from optuna_dp.evidence.ended_runs import EndedRun, Evidence
    from optuna_dp.runs.run import Run

BY_HAND = "its hyperparameters were given by hand"
OTHERS = (
    "the storage has trials that are not runs of the plan (made by another sampler, added by "
    "hand, or after the last run). They are not released, and the guarantee does not cover them"
)
_GIVE_UP = (
    "release(study, give_up_last_run=True) releases the pilots and the last run's "
    "hyperparameters, without its score and its model."
)
_logger = logging.getLogger("optuna_dp")


class Budget(Procedure):
    """See the module's docstring; docs/explanation/budget.md has the proof."""

    releases_all_runs = True

    @functools.cached_property
    def settings(self) -> BudgetSettings:
        """What the study's plan records."""
        return BudgetSettings.of(self.design)

    # What it costs.

    def own_cost(self) -> RunCost:
        """See :class:`Procedure`; of all runs together."""
        plan = self.settings.plan
        return RunCost(StatedRun(plan.event, plan.neighboring_relation), self.output_attributes)

    @property
    def output_attributes(self) -> tuple[str, ...]:
        """See :class:`Procedure`."""
        return self.settings.output_attributes

    @property
    def delta(self) -> float:
        """See :class:`Procedure`; the plan's."""
        return self.settings.plan.delta

    @property
    def ranges(self) -> RangeQuery | None:
        """See :class:`Procedure`."""
        return self.settings.plan.ranges

    def guarantee(self) -> Guarantee:
        """See :class:`Procedure`."""
        return self.settings.plan.guarantee

    # What its studies have to show.

    def slots(self, trials: Sequence[FrozenTrial], plan: StudyPlan) -> int:
        """See :class:`Procedure`; beyond what there is, as long as a last run is to come."""
        last_runs = from_number(trials, self.settings.pilots)
        end = end_of(last_runs, self.settings.pilots, self.settings.paid)
        return max(len(trials) + 1, plan.slots) if end is None else end

    def runs_among(self, trials: Sequence[FrozenTrial], plan: StudyPlan) -> list[FrozenTrial]:
        return [trial for trial in trials if began(trial)]

    def check_beside(self, trial: FrozenTrial, runs: Sequence[FrozenTrial]) -> None:
        """Refuses a trial that another sampler made, as soon as it has ended."""
        if began(trial) or not shows_a_run(trial):
            return
        if BEYOND.is_in(trial):
            reason, fix = "the study's last run had begun already", "Stop the workers."
        else:
            reason = f"it was not started by the study's {self.design.sampler}"
            fix = "Give the study's sampler to each worker: optuna.load_study(..., sampler=...)."
        raise ReleaseRefusedError(
            f"{reason}, so it is not a run of the plan, and the guarantee does not cover it.",
            trial_number=trial.number,
            fix=f"Show nothing of this trial. {fix}",
        )

    def check_together(self, runs: Sequence[FrozenTrial]) -> None:
        """Refuses more last runs than are charged for, and one after one with an output."""
        last_runs = [trial for trial in runs if trial.number >= self.settings.pilots]
        surplus_runs = last_runs[self.settings.paid :]
        surplus_runs += [
            next_run for run, next_run in itertools.pairwise(last_runs) if output(run) is not None
        ]
        if surplus_runs:
            raise ReleaseRefusedError(
                "it is a last run, and the plan does not charge for so many.",
                trial_number=surplus_runs[0].number,
                fix="Please report this as a bug. Add the cost of this run (Guarantee.compose).",
            )

    def run_of(self, number: int) -> Run:
        """See :class:`Procedure`."""
        return self.settings.run_of(number)

    def name_of(self, number: int) -> str:
        """See :class:`Procedure`; nothing of a budget is secret."""
        pilots, rungs = self.settings.pilots, len(self.settings.plan.rung_sizes)
        if number >= pilots:
            return "The last run"
        of_rung = f" (rung {self.run_of(number).rung + 1} of {rungs})" if rungs > 1 else ""
        return f"Pilot {number + 1} of {pilots}{of_rung}"

    def _spending(self, runs: Sequence[EndedRun], vouched: str | None) -> dict[str, object]:
        """Returns what is known of what runs did, as JSON; refuses what nobody vouches for."""
        checked_vouched(vouched)
        is_vouched, judgements = False, []
        for run in runs:
            trial, judgement = run.trial, run.judgement
            if judgement is None:
                continue  # It failed and shows no number.
            way_out = _GIVE_UP if run is runs[-1] else NEW_STUDY
            if judgement.refused is not None:
                raise ReleaseRefusedError(
                    judgement.refused, trial_number=trial.number, fix=way_out
                )
            doubt = judgement.excess or self._several_scores(trial) or judgement.not_compared
            if doubt and vouched is None:
                fix = f"{VOUCH} Otherwise: {way_out}"
                raise ReleaseRefusedError(doubt, trial_number=trial.number, fix=fix)
            is_vouched = is_vouched or bool(doubt)
            judgements.append(judgement)
        fewer = sum(judgement.fewer_steps for judgement in judgements)
        # Of a score that was made elsewhere nobody knows on which records.
        sizes = {j.scored_records for j in judgements if j.score is not None}
        measures = {j.measure for j in judgements if j.score is not None}
        script = of_all_runs([judgement.script for judgement in judgements])
        own_words = sorted({text for judgement in judgements for text in judgement.vouched})
        return {
            "runs": len(judgements),
            "asked": sum(judgement.asked for judgement in judgements),
            "training": _counts([judgement.training for judgement in judgements]),
            "score": _counts([judgement.score for judgement in judgements]),
            **({"fewer_steps": fewer} if fewer else {}),
            "preparation": _counts([judgement.prepared["word"] for judgement in judgements]),
            **person_of([judgement.prepared for judgement in judgements]),
            **({"prepared": judgements[-1].prepared} if judgements else {}),
            **({"script": script} if script else {}),
            **({"step": judgements[-1].step} if judgements and judgements[-1].step else {}),
            **({"scored_records": sizes.pop()} if len(sizes - {None}) == len(sizes) == 1 else {}),
            **(
                {"measure": measures.pop()} if len(measures - {None}) == len(measures) == 1 else {}
            ),
            **({"vouched": vouched} if is_vouched else {}),
            **({"vouched_in_runs": own_words} if own_words else {}),
        }

    def _several_scores(self, trial: FrozenTrial) -> str:
        """Says that a run has more scores than are charged for; empty if it has not.

        Only at release: what depends on no data is no score, and the curator can say so there.
        """
        plan, count = self.settings.plan, len(trial.values or ())
        if count < 2 or plan.score is None or plan.final.records is None:
            return ""
        return (
            f"it has {count} values, and the plan charges for one score. The others must depend "
            "on no data, as the size of a model, or be charged for: plan_budget(run=...)."
        )

    def unfinished(self, trials: Sequence[FrozenTrial], plan: StudyPlan) -> str:
        pilot_count, charged_runs = self.settings.pilots, self.settings.paid
        pilots = [trial for trial in trials if trial.number < pilot_count]
        last_runs = [trial for trial in trials if trial.number >= pilot_count and began(trial)]
        if len(pilots) < pilot_count or not all(map(ended, pilots)):
            return f"Some of its pilots have not ended{_named_open(pilots)}."
        if not last_runs:
            return "Its last run has not begun."
        if not all(map(ended, last_runs)):
            return f"Its last run has not ended{_named_open(last_runs)}."
        if end_of(trials, pilot_count, charged_runs) is None:
            return "Its last run has failed, and the plan has a spare run."
        return ""

    # What is released.

    def outcome(self, evidence: Evidence, request: ReleaseRequest) -> Outcome:
        """See :class:`Procedure`; the last run, and all that is charged for of the pilots."""
        settings, judged_runs = self.settings, list(evidence.runs)
        if request.give_up_last_run:  # No run was made in view of the last one's output.
            judged_runs[-1] = _without_output(judged_runs[-1])
        runs = [run.trial for run in judged_runs]
        last_run = runs[-1]
        if last_run.number < settings.pilots:
            raise ReleaseRefusedError("No last run has ended.", fix="Call study.optimize again.")
        spending = self._spending(judged_runs, request.vouched)
        values = output(last_run) if settings.scores_last_run else None
        failure = GIVEN_UP if request.give_up_last_run else FAILED
        remarks = [failure] if output(last_run) is None else []
        remarks += [BY_HAND] if was_enqueued(last_run) else []
        trials = evidence.snapshot.trials
        if times_drawn(trials) > 1:
            raise ReleaseRefusedError(
                "Its ranges were drawn more than once, and the plan pays for one draw.",
                fix=NEW_STUDY,
            )
        has_other_runs = any(shows_a_run(t) and not began(t) for t in trials)
        if has_other_runs:
            _logger.warning("Trials that the release leaves out: %s.", OTHERS)
        winner = last_run if output(last_run) is not None else _as_it_was_to_be(last_run)
        return Outcome(
            winner,
            values[0] if values is not None and len(values) == 1 else None,
            released_ranges((*runs, winner)),
            self.design,
            {
                "pilots": [_shown(t, settings) for t in runs if t.number < settings.pilots],
                **({"not covered": OTHERS} if has_other_runs else {}),
                **({"last run": "; ".join(remarks)} if remarks else {}),
                **({"values": list(values)} if values is not None and len(values) > 1 else {}),
            },
            spending=spending,
        )


def _without_output(run: EndedRun) -> EndedRun:
    """Returns a run as if it had failed before it showed anything."""
    bare = copy.copy(run.trial)
    bare.state, bare.values = TrialState.FAIL, None
    bare.intermediate_values, bare.user_attrs = {}, {}
    return replace(run, trial=bare, judgement=None)


def _named_open(runs: Sequence[FrozenTrial]) -> str:
    """Returns which runs are open, for a sentence; nothing of a budget is secret."""
    numbers = [str(trial.number) for trial in runs if not ended(trial)]
    return f" (open: trial {', '.join(numbers)})" if numbers else ""


def _counts(words: Sequence[str | None]) -> dict[str, int]:
    """Returns how many runs each word is true of; without those that have none."""
    return {word: words.count(word) for word in (*WORDS, *PREPARED) if word in words}


def shows_a_run(trial: FrozenTrial) -> bool:
    """Returns whether a trial shows what an objective may have made of the data."""
    return bool(trial.params or trial.values or trial.intermediate_values or trial.user_attrs)


def _shown(trial: FrozenTrial, settings: BudgetSettings) -> dict[str, object]:
    """What is charged for of a pilot."""
    values = output(trial)
    score = {} if values is not None and len(values) > 1 else {"value": values and values[0]}
    return {
        "rung": settings.run_of(trial.number).rung,
        "params": dict(trial.params),
        **score,
        "values": None if values is None else list(values),
        "state": trial.state.name,
    }


def _as_it_was_to_be(trial: FrozenTrial) -> FrozenTrial:
    """A last run that failed, with the hyperparameters it was to be run with, nothing else."""
    draw = DRAW.of(trial, {"space": {}, "internal": {}})
    distributions = {name: json_to_distribution(text) for name, text in draw["space"].items()}
    params = {n: d.to_external_repr(draw["internal"][n]) for n, d in distributions.items()}
    return optuna.trial.create_trial(
        state=TrialState.FAIL,
        params={**params, **trial.params},
        distributions={**distributions, **trial.distributions},
    )
