"""What a study whose hyperparameters have to be drawn by its own sampler has to show.

A private selection and a choice among utilities charge for the law of the draws. So each run must
have been drawn by the study's sampler from the stated ranges, and by nobody else.
"""

from __future__ import annotations

import functools
import json
import math
from abc import abstractmethod
from collections.abc import Sequence
from typing import Any

from optuna.distributions import BaseDistribution, distribution_to_json, json_to_distribution
from optuna.study import Study
from optuna.trial import FrozenTrial, TrialState

from optuna_dp.errors import InvalidArgumentError, ReleaseRefusedError
from optuna_dp.evidence.procedure import Asked, Outcome, Procedure
from optuna_dp.evidence.run_record import RunRecord
from optuna_dp.evidence.runs import Evidence
from optuna_dp.evidence.slot_records import NEW_STUDY
from optuna_dp.protocol.drawn_slots import draw_alone
from optuna_dp.protocol.plan import StudyPlan
from optuna_dp.protocol.pruners import PRUNED_KEY
from optuna_dp.protocol.records import (
    DRAW_KEY,
    INDEPENDENT_KEY,
    NOT_DRAWN_KEY,
    SlotRecord,
    holds_new_plan,
    score,
    was_enqueued,
)

# A logarithm or an exponential may differ in the last bits from machine to machine.
_ROUNDING = 1e-12


class DrawnRuns(Procedure):
    """Base of the procedures whose runs are drawn by the study's sampler."""

    @functools.cached_property
    def _planned_space(self) -> dict[str, BaseDistribution]:
        """The distributions that the plan fixes; empty for define-by-run."""
        space = self.design.settings.get("search_space") or {}
        try:
            return {name: json_to_distribution(json.dumps(d)) for name, d in space.items()}
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise ReleaseRefusedError("The search space in its plan is corrupted.") from error

    def check_plan(self, study: Study) -> None:
        """See :class:`Procedure`."""
        if study._is_multi_objective():
            raise ReleaseRefusedError("It has several objectives; optuna-dp selects by one score.")
        if self.design.seeded:
            raise ReleaseRefusedError(
                "Its sampler was given a seed: whoever knows the seed knows the number of runs "
                "and every draw.",
                fix=f"{NEW_STUDY} Leave out seed=.",
            )

    def check_origin(self, runs: Sequence[FrozenTrial]) -> None:
        """See :class:`Procedure`."""
        for trial in runs:
            if was_enqueued(trial):
                raise ReleaseRefusedError(
                    "it was enqueued, so its parameters were not drawn from the sampler's "
                    "density.",
                    trial_number=trial.number,
                    fix=f"{NEW_STUDY} Do not enqueue trials or retry failed ones.",
                )

    def check_run(self, trial: FrozenTrial, record: SlotRecord | None, plan: StudyPlan) -> None:
        """See :class:`Procedure`."""
        _check_draw(trial, record, self._planned_space)
        _check_pruning(trial)

    def check_beside(self, trial: FrozenTrial, runs: Sequence[FrozenTrial]) -> None:
        """Refuses ranges that moved: each name's are compared with those of one run before.

        Not with all of them, which takes longer the more there are; release compares them all.
        """
        mine = any(run.number == trial.number for run in runs)
        names = set(trial.distributions) if mine else set()
        for other in runs:
            shared = names & other.distributions.keys() if other.number != trial.number else set()
            if any(other.distributions[n] != trial.distributions[n] for n in shared):
                check_distributions(sorted((other, trial), key=lambda t: t.number))
            names -= shared
            if not names:
                return

    def check_together(self, runs: Sequence[FrozenTrial], plan: StudyPlan) -> None:
        """See :class:`Procedure`."""
        _check_one_successor(runs)
        check_distributions(runs)

    def outcome(self, evidence: Evidence, record: RunRecord, asked: Asked) -> Outcome:
        """See :class:`Procedure`; one trial, or none, and nothing besides."""
        for name in ("vouched", "give_up_last_run"):
            if (value := getattr(asked, name)) not in (None, False):
                why = f"it is for studies with a budget, and this is one of {self.design.sampler}"
                raise InvalidArgumentError(name, value, why, "Leave it out.")
        self.refuse_lost(asked)
        winner = self.winner(evidence)
        return Outcome(
            winner,
            score(winner) if winner is not None and self.runs_are_private else None,
            {} if winner is None else dict(winner.distributions),
            self.design,
        )

    @abstractmethod
    def winner(self, evidence: Evidence) -> FrozenTrial | None:
        """Returns the trial whose output is released, or None."""


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
