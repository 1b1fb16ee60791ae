"""The cost for a person with several records, beside that for one record."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from optuna_dp.core.numbers_shown import rounded_up
from optuna_dp.core.value_types import JsonObject
from optuna_dp.evidence.procedures import procedure_of
from optuna_dp.study.trials import read_plan

if TYPE_CHECKING:
    from optuna.study import Study

    from optuna_dp.accounting.guarantee import Guarantee


def person_epsilon(guarantee: Guarantee, delta: float, most: int | None) -> float | None:
    """Returns an epsilon for a person with up to so many records, by the bound for groups.

    Args:
        guarantee: What holds for one record.
        delta: In (0, 1).
        most: How many records one person has at most; None if that is not known.

    Returns:
        The epsilon; None if ``most`` is None, or the guarantee is for clients as a whole.
    """
    if most is None or guarantee.unit != "record":
        return None
    # Start-up time: dp-accounting is slow.
    from optuna_dp.accounting.groups import group_epsilon

    return group_epsilon(guarantee, delta, most)


def in_words(epsilon: float) -> str:
    """Returns an epsilon as logs show it, rounded up."""
    return "no finite epsilon" if math.isinf(epsilon) else f"epsilon {rounded_up(epsilon, 3)}"


def remark_on_persons(study: Study, schema: JsonObject) -> str:
    """Returns what to know if a budget was planned for fewer records of a person than are kept.

    Only the study's plan and the schema decide it, which are public.

    Args:
        study: A study in which a run has begun.
        schema: The schema of its records, as JSON.

    Returns:
        A remark with both epsilons; empty if there is nothing to say.
    """
    plan, unit, most = read_plan(study), schema["unit"], schema["most"]
    if plan is None or most is None:
        return ""
    planned_most = plan.design.settings.get("plan", {}).get("most") or 1
    procedure = procedure_of(plan.design)
    if not procedure.releases_all_runs or planned_most >= most:
        return ""
    guarantee, delta = procedure.guarantee(), procedure.delta
    costs = [person_epsilon(guarantee, delta, count) or 0.0 for count in (planned_most, most)]
    planned_for = "one record" if planned_most == 1 else f"{planned_most} records"
    return (
        f"The schema keeps up to {most} records of each {unit}, and the plan was made for "
        f"{planned_for}: {in_words(costs[0])} at delta {delta:g}. For one {unit} with {most} "
        f"records the whole study has {in_words(costs[1])}. To plan for each {unit}, write "
        "plan_budget(..., schema=schema), and start a new study."
    )
