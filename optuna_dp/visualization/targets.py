"""The guarantee, the plan and the runs behind a figure's target."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import optuna
from optuna.trial import FrozenTrial

from optuna_dp.accounting.guarantee import Guarantee
from optuna_dp.accounting.kinds.approximate import pure_dp
from optuna_dp.core import validation
from optuna_dp.errors import InvalidArgumentError, PlanError
from optuna_dp.evidence.procedures import releases_all_runs
from optuna_dp.evidence.reading import OpenedStudy, open_study, with_cost
from optuna_dp.releasing.release import Release
from optuna_dp.samplers.budget.plan import BudgetPlan
from optuna_dp.samplers.budget.settings import BudgetSettings
from optuna_dp.selection.event import PrivateSelectionDpEvent
from optuna_dp.study.entries import study_attributes
from optuna_dp.study.plan import Design
from optuna_dp.study.trials import ended, trials_of

if TYPE_CHECKING:
    from dp_accounting import dp_event

_LARGEST_RUNS = 200


def opened(study: object) -> OpenedStudy:
    """Returns the plan and the procedure of a study; for the curator only."""
    if not isinstance(study, optuna.Study):
        raise InvalidArgumentError("study", study, allowed="it must be an Optuna study")
    opened_study = open_study(study)
    if opened_study is None:
        raise PlanError(
            "This study has no plan: it has no trials, or another sampler made them. Make the "
            "study with sampler=BudgetSampler(plan_budget(...))."
        )
    return opened_study


def design_of(target: object) -> Design | None:
    """Returns the public design of a release or a study; None for anything else."""
    if isinstance(target, Release):
        return target.design
    return opened(target).plan.design if isinstance(target, optuna.Study) else None


def budget_of(target: object) -> BudgetPlan | None:
    """Returns the budget plan that a target is or was run under; None if there is none."""
    if isinstance(target, BudgetPlan):
        return target
    design = design_of(target)
    return BudgetSettings.of(design).plan if design and releases_all_runs(design) else None


@dataclass(frozen=True)
class Part:
    """One event of a composition, and how many of it there are."""

    name: str
    event: dp_event.DpEvent
    count: int


@dataclass(frozen=True)
class Composition:
    """What can be published one by one.

    Attributes:
        unit: What is counted, in the plural.
        parts: In their order.
        level: What the guarantee covers, in words.
    """

    unit: str
    parts: tuple[Part, ...]
    level: str


def composition_of(target: object, guarantee: Guarantee) -> Composition | None:
    """Returns the runs or iterations behind a guarantee; None if it is about neither."""
    event, budget, design = guarantee.event, budget_of(target), design_of(target)
    if budget is not None:
        rungs = enumerate(zip(budget.rungs, budget.rung_sizes, strict=True), start=1)
        pilots = [Part(f"one pilot of rung {i}", run.event, count) for i, (run, count) in rungs]
        last_part = Part("the last run by itself", budget.final.event, 1 + budget.spare_runs)
        return Composition("runs", (*pilots, last_part), "all runs, the pilots first")
    if isinstance(event, PrivateSelectionDpEvent):
        # Hardly ever are there more runs than this.
        run_count = int(min(max(event.trials.quantile(0.95), 10), _LARGEST_RUNS))
        runs = Part("one run by itself", event.run, run_count)
        return Composition("runs", (runs,), "the release, whatever the number of runs")
    if design is not None and design.procedure == "propose_test":
        # Lazy: only designs of that part have iterations.
        from optuna_dp.mechanisms.doubling import DoublingPlan
        from optuna_dp.samplers.choice.settings import UtilitySettings

        plan = UtilitySettings.from_json(design.settings).plan
        assert isinstance(plan, DoublingPlan)
        iteration = Part("one iteration by itself", pure_dp(plan.epsilon), plan.iteration_bound)
        return Composition(
            "iterations", (iteration,), "the choice, whatever the number of iterations"
        )
    return None


def target_of(target: object, delta: float | None = None) -> tuple[Guarantee, float]:
    """Returns what a target guarantees, and the delta to show it at.

    Nothing but the public design of a study is read.
    """
    if isinstance(target, Guarantee):
        guarantee, default_delta = target, 1e-5
    elif isinstance(target, Release | BudgetPlan):
        guarantee, default_delta = target.guarantee, target.delta
    elif isinstance(target, optuna.Study):
        procedure = with_cost(opened(target).procedure, study_attributes(target))
        guarantee, default_delta = procedure.guarantee(), procedure.delta
    else:
        raise InvalidArgumentError(
            "target",
            target,
            allowed="it must be a Guarantee, a BudgetPlan, a Release or a study",
        )
    return guarantee, validation.open_unit("delta", default_delta if delta is None else delta)


def runs_of(study: optuna.Study) -> list[FrozenTrial]:
    """Returns the trials that hold runs or candidates and have ended, by number.

    Left out are trials beyond the last run, and those that hold a private answer.
    """
    opened_study = opened(study)
    runs = [
        t
        for t in opened_study.procedure.runs_among(trials_of(study), opened_study.plan)
        if ended(t)
    ]
    if opened_study.procedure.runs_are_private:
        return runs
    # Lazy: only choices over partitions have runs that are not private.
    from optuna_dp.samplers.choice.reported import never_began

    return [trial for trial in runs if not never_began(trial)]
