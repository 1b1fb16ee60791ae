"""Pilots in the open and one last run: the composition of all runs that are paid for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import optuna
from optuna.distributions import BaseDistribution, json_to_distribution
from optuna.study import Study
from optuna.trial import FrozenTrial, TrialState

from optuna_dp.accounting.guarantee import Guarantee
from optuna_dp.errors import InvalidArgumentError, ReleaseRefusedError
from optuna_dp.protocol.open_runs import end_of, output
from optuna_dp.protocol.plan import Design, StudyPlan
from optuna_dp.protocol.records import DRAW_KEY, was_enqueued
from optuna_dp.releasing.open_evidence import read_open_evidence
from optuna_dp.releasing.procedures.base import Procedure
from optuna_dp.releasing.run_record import RunRecord
from optuna_dp.samplers.budget_settings import BudgetSettings

if TYPE_CHECKING:
    from optuna_dp.releasing.runs import Evidence

FAILED = (
    "it failed, so there is no model and no score; the hyperparameters are those it was to be run "
    "with"
)
BY_HAND = "its hyperparameters were given by hand"


class BudgetedRuns(Procedure):
    """See the module's docstring; docs/explanation/budget.md has the proof."""

    in_the_open = True

    def own_record(self, design: Design) -> RunRecord | None:
        plan = BudgetSettings.of(design).plan
        return RunRecord.checked(plan.event, plan.delta, plan.neighboring_relation, ())

    def run(self, design: Design, run: Any) -> Any:
        """See :class:`Procedure`; the event follows from the plan."""
        if run is not None:
            raise InvalidArgumentError(
                "run", run, "what runs cost is in the study's plan", "Leave it out."
            )
        return BudgetSettings.of(design).plan.event

    def guarantee(self, design: Design, record: RunRecord) -> Guarantee:
        plan = BudgetSettings.of(design).plan
        if record.neighboring_relation != plan.neighboring_relation:
            raise ReleaseRefusedError(
                f"Its budget was planned for the relation {plan.neighboring_relation!r}, not for "
                f"{record.neighboring_relation!r}.",
                fix="Leave out neighboring_relation.",
            )
        return plan.guarantee

    def each_run(self, design: Design, record: RunRecord, number: int) -> Any:
        settings = BudgetSettings.of(design)
        return settings.plan.fidelity(min(number, settings.pilots)).event

    def slots(self, study: Study, plan: StudyPlan) -> int:
        """See :class:`Procedure`; beyond what there is, as long as a last run is to come."""
        settings = BudgetSettings.of(plan.design)
        trials = study._storage.get_all_trials(study._study_id, deepcopy=False)
        end = end_of(trials, settings.pilots, settings.paid)
        return max(len(trials) + 1, plan.slots) if end is None else end

    def read(self, study: Study, plan: StudyPlan) -> Evidence:
        return read_open_evidence(study, plan)

    def winner(self, evidence: Evidence) -> FrozenTrial | None:
        """See :class:`Procedure`; the last run, whether it has an output or not."""
        pilots = BudgetSettings.of(evidence.plan.design).pilots
        last = evidence.runs[-1].trial
        assert last.number >= pilots  # The evidence is that a last run has ended.
        return last if output(last) is not None else _as_it_was_to_be(last)

    def value(self, evidence: Evidence, winner: FrozenTrial | None) -> float | None:
        """See :class:`Procedure`; None if the last run failed or its score is not paid for."""
        values = self._scores(evidence)
        return values[0] if values is not None and len(values) == 1 else None

    def attributes(self, evidence: Evidence) -> dict[str, Any]:
        """See :class:`Procedure`; the pilots, and what is to be said of the last run."""
        settings = BudgetSettings.of(evidence.plan.design)
        pilots = [run.trial for run in evidence.runs[: settings.pilots]]
        last = evidence.runs[-1].trial
        said = [FAILED] if output(last) is None else []
        said += [BY_HAND] if was_enqueued(last) else []
        values = self._scores(evidence)
        return {
            "pilots": [_shown(trial, settings) for trial in pilots],
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
        settings = BudgetSettings.of(evidence.plan.design)
        return output(evidence.runs[-1].trial) if settings.scores_last_run else None


def _shown(trial: FrozenTrial, settings: BudgetSettings) -> dict[str, Any]:
    """What is paid for of a pilot."""
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
