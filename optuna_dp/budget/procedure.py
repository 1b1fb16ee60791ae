"""A budget: pilots and the last run, whose outputs are all charged for by composition.

Hyperparameters may come from anywhere: any function of private outputs, and any person who saw no
more, may propose, climb, prune and choose (docs/explanation/budget.md). So nothing is asked here
of how they were drawn, nor whether the sampler had a seed. Only runs that began can have touched
the data: other trials are no part of a release, and no run that began has seen them.
"""

from __future__ import annotations

import functools
import itertools
import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import optuna
from optuna.distributions import BaseDistribution, json_to_distribution
from optuna.study import Study
from optuna.trial import FrozenTrial, TrialState

from optuna_dp.budget.last_runs import end_of
from optuna_dp.budget.settings import BudgetSettings
from optuna_dp.errors import InvalidArgumentError, ReleaseRefusedError
from optuna_dp.evidence.procedure import Procedure
from optuna_dp.evidence.run_record import RunRecord
from optuna_dp.protocol.plan import StudyPlan
from optuna_dp.protocol.records import (
    DRAW_KEY,
    GATE_KEY,
    began,
    ended,
    output,
    trials_of,
    was_enqueued,
)

if TYPE_CHECKING:
    from optuna_dp.accounting.guarantee import Guarantee
    from optuna_dp.evidence.runs import Evidence

FAILED = (
    "it failed, so there is no model and no score; the hyperparameters are those it was to be run "
    "with"
)
BY_HAND = "its hyperparameters were given by hand"
OTHERS = (
    "the storage has trials that are no runs of the plan (made by another sampler, added "
    "by hand, or beyond the last run). They are not released. Nothing that they show is covered"
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

    def own_record(self) -> RunRecord | None:
        plan = self.settings.plan
        return RunRecord.checked(plan.event, plan.delta, plan.neighboring_relation, ())

    def run(self, run: Any) -> Any:
        """See :class:`Procedure`; the event follows from the plan."""
        if run is not None:
            raise InvalidArgumentError(
                "run", run, "what runs cost is in the study's plan", "Leave it out."
            )
        return self.settings.plan.event

    def guarantee(self, record: RunRecord) -> Guarantee:
        plan = self.settings.plan
        if record.neighboring_relation != plan.neighboring_relation:
            raise ReleaseRefusedError(
                f"Its budget was planned for the relation {plan.neighboring_relation!r}, not for "
                f"{record.neighboring_relation!r}.",
                fix="Leave out neighboring_relation.",
            )
        return plan.guarantee

    def each_run(self, record: RunRecord, number: int) -> Any:
        return self.settings.plan.fidelity(min(number, self.settings.pilots)).event

    # What its studies have to show.

    def slots(self, study: Study, plan: StudyPlan) -> int:
        """See :class:`Procedure`; beyond what there is, as long as a last run is to come."""
        trials = trials_of(study)
        end = end_of(trials, self.settings.pilots, self.settings.paid)
        return max(len(trials) + 1, plan.slots) if end is None else end

    def runs_among(self, trials: Sequence[FrozenTrial], plan: StudyPlan) -> list[FrozenTrial]:
        return [trial for trial in trials if began(trial)]

    def check_beside(self, trial: FrozenTrial, runs: Sequence[FrozenTrial]) -> None:
        """Refuses a trial that another sampler made, as soon as it has ended."""
        if began(trial) or not shows_a_run(trial):
            return
        if GATE_KEY in trial.system_attrs:
            why, fix = "the study's last run had begun already", "Stop the workers."
        else:
            why = f"it was not begun by the study's {self.design.sampler}"
            fix = (
                "Without sampler=, optuna.load_study uses one of Optuna's own: give the study's "
                "sampler to each worker."
            )
        raise ReleaseRefusedError(
            f"{why}, so no run is charged for it. It is no part of the study.",
            trial_number=trial.number,
            fix=f"Show nothing of this trial. {fix}",
        )

    def check_together(self, runs: Sequence[FrozenTrial], plan: StudyPlan) -> None:
        """Refuses more last runs than are charged for, and one after one with an output."""
        last = [trial for trial in runs if trial.number >= self.settings.pilots]
        beyond = last[self.settings.paid :]
        beyond += [later for one, later in itertools.pairwise(last) if output(one) is not None]
        if beyond:
            raise ReleaseRefusedError(
                "it is a last run beyond those that are charged for.",
                trial_number=beyond[0].number,
                fix="Report this: optuna-dp begins no such run. What it showed composes "
                "(Guarantee.compose).",
            )

    def unfinished(self, trials: Sequence[FrozenTrial], plan: StudyPlan) -> str:
        first, paid = self.settings.pilots, self.settings.paid
        pilots = [trial for trial in trials if trial.number < first]
        last = [trial for trial in trials if trial.number >= first and began(trial)]
        if len(pilots) < first or not all(map(ended, pilots)):
            return "Some of its pilots have not ended."
        if not last or not all(map(ended, last)):
            return "Its last run has not ended."
        if end_of(trials, first, paid) is None:
            return "Its last run has failed, and one more is charged for."
        return ""

    def progress(self, runs: Sequence[FrozenTrial]) -> str:
        """See :class:`Procedure`; nothing about the runs is secret."""
        done, pilots = sum(map(ended, runs)), self.settings.pilots
        return f"pilot {done} of {pilots}" if done <= pilots else "the last run"

    # What is released.

    def winner(self, evidence: Evidence) -> FrozenTrial | None:
        """See :class:`Procedure`; the last run, whether it has an output or not."""
        last = evidence.runs[-1].trial
        assert last.number >= self.settings.pilots  # The evidence is that a last run has ended.
        return last if output(last) is not None else _as_it_was_to_be(last)

    def value(self, evidence: Evidence, winner: FrozenTrial | None) -> float | None:
        """See :class:`Procedure`; None if the last run failed or its score is not charged for."""
        values = self._scores(evidence)
        return values[0] if values is not None and len(values) == 1 else None

    def attributes(self, evidence: Evidence) -> dict[str, Any]:
        """See :class:`Procedure`; the pilots, and what is to be said of the last run."""
        settings = self.settings
        pilots = [r.trial for r in evidence.runs if r.trial.number < settings.pilots]
        last = evidence.runs[-1].trial
        said = [FAILED] if output(last) is None else []
        said += [BY_HAND] if was_enqueued(last) else []
        values = self._scores(evidence)
        others = any(shows_a_run(t) and not began(t) for t in trials_of(evidence.study))
        if others:
            _logger.warning("Trials beside a release: %s.", OTHERS)
        return {
            "pilots": [_shown(trial, settings) for trial in pilots],
            **({"not covered": OTHERS} if others else {}),
            **({"last run": "; ".join(said)} if said else {}),
            **({"values": list(values)} if values is not None and len(values) > 1 else {}),
        }

    def distributions(
        self, evidence: Evidence, winner: FrozenTrial | None
    ) -> dict[str, BaseDistribution]:
        """See :class:`Procedure`; the pilots' too, the last run's where they differ."""
        found: dict[str, BaseDistribution] = {}
        for run in evidence.runs:
            found.update(run.trial.distributions)
        return found | super().distributions(evidence, winner)

    def _scores(self, evidence: Evidence) -> tuple[float, ...] | None:
        return output(evidence.runs[-1].trial) if self.settings.scores_last_run else None


def shows_a_run(trial: FrozenTrial) -> bool:
    """Returns whether a trial shows what an objective may have made of the data."""
    return bool(trial.params or trial.values or trial.intermediate_values or trial.user_attrs)


def _shown(trial: FrozenTrial, settings: BudgetSettings) -> dict[str, Any]:
    """What is charged for of a pilot."""
    values = output(trial)
    one = {} if values is not None and len(values) > 1 else {"value": values and values[0]}
    return {
        "rung": settings.rung_of(trial.number),
        "params": dict(trial.params),
        **one,
        "values": None if values is None else list(values),
        "state": trial.state.name,
    }


def _as_it_was_to_be(trial: FrozenTrial) -> FrozenTrial:
    """A last run that failed, with the hyperparameters it was to be run with, nothing else."""
    draw = trial.system_attrs.get(DRAW_KEY, {"space": {}, "internal": {}})
    distributions = {name: json_to_distribution(text) for name, text in draw["space"].items()}
    params = {n: d.to_external_repr(draw["internal"][n]) for n, d in distributions.items()}
    return optuna.trial.create_trial(
        state=TrialState.FAIL,
        params={**params, **trial.params},
        distributions={**distributions, **trial.distributions},
    )
