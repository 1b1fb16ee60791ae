"""Checks studies whose hyperparameters have to be drawn by their own sampler.

A private selection and a choice among utilities charge for the law of the draws. So each run must
have been drawn by the study's sampler from the stated ranges, and by nobody else.
"""

from __future__ import annotations

import functools
import json
import math
from abc import abstractmethod
from collections.abc import Sequence

from optuna.distributions import BaseDistribution, distribution_to_json, json_to_distribution
from optuna.trial import FrozenTrial, TrialState

from optuna_dp.errors import InvalidArgumentError, ReleaseRefusedError
from optuna_dp.evidence.ended_runs import Evidence
from optuna_dp.evidence.procedure import Outcome, Procedure, ReleaseRequest
from optuna_dp.evidence.slot_entries import NEW_STUDY
from optuna_dp.study.drawn_slots import draw_alone, may_agree
from optuna_dp.study.entries import DRAW, PRUNED_BY, SINGLE_DRAWS
from optuna_dp.study.snapshot import StudySnapshot
from optuna_dp.study.trials import (
    SlotEntry,
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

    def check_plan(self, snapshot: StudySnapshot) -> None:
        """See :class:`Procedure`."""
        if len(snapshot.directions) > 1:
            raise ReleaseRefusedError(
                "It has several objectives, and this sampler selects by one score.",
                fix="Start a new study with BudgetSampler(plan_budget(...)), or one objective.",
            )
        if self.design.seeded:
            raise ReleaseRefusedError(
                "Its sampler has a seed: who knows the seed knows the number of runs and every "
                "draw.",
                fix=f"{NEW_STUDY} Leave out seed=. A study with BudgetSampler may have a seed.",
            )

    def check_origin(self, runs: Sequence[FrozenTrial]) -> None:
        """See :class:`Procedure`."""
        for trial in runs:
            if was_enqueued(trial):
                raise ReleaseRefusedError(
                    "it was enqueued, so the sampler did not draw its parameters.",
                    trial_number=trial.number,
                    fix=f"{NEW_STUDY} Do not enqueue or retry trials. To enqueue some, use "
                    "BudgetSampler(plan_budget(...)).",
                )

    def check_run(self, trial: FrozenTrial, entry: SlotEntry | None) -> None:
        """See :class:`Procedure`."""
        _check_draw(trial, entry, self._planned_space)
        _check_pruning(trial)

    def check_beside(self, trial: FrozenTrial, runs: Sequence[FrozenTrial]) -> None:
        """Refuses ranges that moved: each name's are compared with those of one run before.

        Not with all of them, which takes longer the more there are; release compares them all.
        """
        is_run = bool(runs) and trial.number <= runs[-1].number
        names = set(trial.distributions) if is_run else set()
        for run in runs:
            common_names = (
                names & run.distributions.keys() if run.number != trial.number else set()
            )
            if any(run.distributions[n] != trial.distributions[n] for n in common_names):
                check_distributions(sorted((run, trial), key=lambda t: t.number))
            names -= common_names
            if not names:
                return

    def check_together(self, runs: Sequence[FrozenTrial]) -> None:
        """See :class:`Procedure`."""
        check_distributions(runs)

    def outcome(self, evidence: Evidence, request: ReleaseRequest) -> Outcome:
        """See :class:`Procedure`; one trial, or none, and nothing besides."""
        winner = self.winner(evidence)
        return Outcome(
            winner,
            score(winner) if winner is not None and self.runs_are_private else None,
            {} if winner is None else dict(winner.distributions),
            self.design,
        )

    def refuse_needless(self, request: ReleaseRequest, *names: str) -> None:
        """Refuses arguments of a release that say nothing of such a study."""
        for name in names:
            if (value := getattr(request, name)) not in (None, False):
                reason = (
                    "it is for studies whose plan says what runs are, and this is one of "
                    f"{self.design.sampler} without"
                )
                raise InvalidArgumentError(name, value, problem=reason, fix="Leave it out.")

    @abstractmethod
    def winner(self, evidence: Evidence) -> FrozenTrial | None:
        """Returns the trial whose output is released, or None."""


def _check_draw(
    trial: FrozenTrial, entry: SlotEntry | None, planned_ranges: dict[str, BaseDistribution]
) -> None:
    """Every parameter that was used is one that the sampler drew, from that distribution.

    What was drawn jointly, or from a prior that is not uniform, or has a few values only, has an
    entry of its own. The rest is drawn again from the slot's entry: a real number that another
    sampler has chosen is another one.
    """
    draw = DRAW.of(trial, {"space": {}, "internal": {}})
    try:
        space = {name: json_to_distribution(text) for name, text in draw["space"].items()}
        internal = {name: float(value) for name, value in draw["internal"].items()}
        for name in trial.params.keys() - space.keys():
            entry_of_draw = SINGLE_DRAWS.named(name).of(trial)
            if entry_of_draw is not None:
                space[name] = json_to_distribution(entry_of_draw["distribution"])
                internal[name] = float(entry_of_draw["internal"])
                continue
            domain = _as_stored(trial.distributions[name])
            law = planned_ranges.get(name, domain)
            if entry is None or may_agree(law):
                continue
            value = trial.distributions[name].to_internal_repr(trial.params[name])
            redrawn = law.to_internal_repr(draw_alone(entry.draws, name, law))
            if domain != law or math.isclose(value, redrawn, rel_tol=_ROUNDING):
                space[name], internal[name] = law, value
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise ReleaseRefusedError(
            "the entry of its draw is corrupted.", trial_number=trial.number, fix=NEW_STUDY
        ) from error
    for name, external in trial.params.items():
        domain = _as_stored(trial.distributions[name])
        if domain.single():
            continue  # Optuna does not ask the sampler for what can have one value only.
        if name not in space:
            raise ReleaseRefusedError(
                f"its parameter {name!r} was not drawn by the study's sampler.",
                trial_number=trial.number,
                fix=f"{NEW_STUDY} Do not wrap or replace the sampler.",
            )
        value = trial.distributions[name].to_internal_repr(external)
        if domain != space[name] or value != internal.get(name):
            raise ReleaseRefusedError(
                f"the objective asked for {name!r} in {domain}, but the sampler drew it from "
                f"{space[name]}.",
                trial_number=trial.number,
                fix=f"{NEW_STUDY} Use the ranges of search_space in the objective.",
            )


def _as_stored(distribution: BaseDistribution) -> BaseDistribution:
    """Returns a distribution as a database gives it back: choices that are tuples are lists.

    The entries here are JSON as well, and a storage in memory keeps the tuples.
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
        and not PRUNED_BY.is_in(trial)
    ):
        raise ReleaseRefusedError(
            "it was pruned, but not by a pruner that looks at one trial only.",
            trial_number=trial.number,
            fix=f"{NEW_STUDY} Use optuna_dp.WithinTrialPruner, and do not change study.pruner "
            "while the study runs. To end a run by the objective's own rule, return NaN.",
        )


def check_distributions(slots: Sequence[FrozenTrial]) -> None:
    """Each name stands for one distribution, so that the prior is one law."""
    ranges: dict[str, tuple[str, BaseDistribution]] = {}
    for trial in slots:
        for name, distribution in trial.distributions.items():
            text = distribution_to_json(distribution)
            reference = ranges.setdefault(name, (text, distribution))
            if reference[0] != text:
                raise ReleaseRefusedError(
                    f"parameter {name!r} has the range {distribution} here and {reference[1]} in "
                    "an earlier run. One name must keep one range.",
                    trial_number=trial.number,
                    fix=f"{NEW_STUDY} Give each range its own name. If a range depends on another "
                    "parameter, draw a share from [0, 1] and scale it.",
                )
