"""Small studies with a budget."""

from __future__ import annotations

from typing import Any

import optuna
from optuna.distributions import FloatDistribution
from support import asking, objective, study_of

import optuna_dp as odp
from optuna_dp.samplers.budget.plan import BudgetPlan, PaidRuns
from optuna_dp.samplers.budget.settings import BudgetSettings
from optuna_dp.study.trials import began, read_plan

X: dict[str, Any] = {"x": FloatDistribution(-1.0, 1.0)}


def budget(
    *sizes: int,
    spare_runs: int = 0,
    score: str | None = "training",
    score_final: bool = True,
    relation: str = "add_or_remove_one",
) -> BudgetPlan:
    """A plan of Gaussian runs, made without a search for its noise."""
    noises = [32.0 / 2**i for i in range(len(sizes))]
    pilot_score = None if score is None else 8.0
    runs = [
        PaidRuns(n, s, 10, pilot_score, odp.gaussian(s))
        for n, s in zip(sizes, noises, strict=True)
    ]
    last_score = 4.0 if score_final and score is not None else None
    last = PaidRuns(1 + spare_runs, 2.0, 10, last_score, odp.gaussian(2.0))
    return BudgetPlan(
        epsilon=8.0,
        delta=1e-5,
        neighboring_relation=relation,
        sample_rate=None,
        batch_size=None,
        score=score,
        paid_pilots=tuple(runs),
        paid_last=last,
    )


def sampler(plan: BudgetPlan | None = None, **kwargs: Any) -> odp.BudgetSampler:
    return odp.BudgetSampler(budget(4, 2) if plan is None else plan, **kwargs)


def finished(
    plan: BudgetPlan | None = None, function: Any = objective, **kwargs: Any
) -> optuna.Study:
    study = study_of(sampler(plan, **kwargs))
    study.optimize(asking(function), catch=(RuntimeError,))
    return study


def rungs_of(study: optuna.Study) -> list[str]:
    """What began, by number: "pilot", "last", or "" for what did not begin."""
    plan = read_plan(study)
    assert plan is not None
    pilots = BudgetSettings.of(plan.design).pilots
    return [
        "" if not began(t) else ("pilot" if t.number < pilots else "last") for t in study.trials
    ]
