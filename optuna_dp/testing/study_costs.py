"""The event or plan that a script gives to its study, beside the one that a check is given.

Only names are looked up: in ``PrivacyCallback(EVENT)`` or ``BudgetSampler(PLAN)`` the argument has
to be a name, or an attribute of one, that the file defines at its top.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Any

from dp_accounting import dp_event

from optuna_dp.budget.plan import BudgetPlan
from optuna_dp.testing.finding import Finding
from optuna_dp.testing.source_syntax import called
from optuna_dp.training.run_plan import RunPlan


def study_costs(module: Any, source: str) -> dict[str, Any]:
    """Returns the events and plans that samplers and callbacks of a script are given, by name.

    Args:
        module: The script, imported.
        source: Its text.
    """
    arguments = (
        argument
        for call in ast.walk(ast.parse(source))
        if isinstance(call, ast.Call)
        and (called(call) == "PrivacyCallback" or called(call).endswith("Sampler"))
        for argument in (*call.args, *(keyword.value for keyword in call.keywords))
    )
    return {name: cost for argument in arguments for name, cost in _cost(module, argument)}


def _cost(module: Any, argument: ast.expr) -> Iterator[tuple[str, Any]]:
    names = ast.unparse(argument).split(".")
    value = module
    for name in names:
        if name == "event" and isinstance(value, RunPlan):
            value = value.event
            continue
        if not name.isidentifier() or name not in getattr(value, "__dict__", {}):
            return  # an attribute that is computed is not asked for
        value = value.__dict__[name]
    if isinstance(value, dp_event.DpEvent | BudgetPlan):
        yield ".".join(names), value
    elif isinstance(value, RunPlan):
        yield ".".join([*names, "event"]), value.event


def of_another_cost(costs: dict[str, Any], checked: Any, flag: str) -> Iterator[Finding]:
    """Yields a hint if a study is given something else than what was checked.

    Args:
        costs: What the script gives to its study, by name.
        checked: The event or plan that was checked.
        flag: By which it was given, such as "--event".
    """
    if checked is None or not costs:
        return
    if not any(cost is checked or cost == checked for cost in costs.values()):
        name = next(iter(costs))
        yield Finding(
            "another cost",
            f"The file gives {name} to its study, and {flag} is something else. What was checked "
            "is not what the study is charged for.",
            "Check what the study is given, or give the study what was checked.",
            certain=False,
        )


def words(costs: dict[str, Any]) -> str:
    """Returns how to give a check what the study is given; "" if that is not known."""
    names = [
        f"{'--plan' if isinstance(cost, BudgetPlan) else '--event'} {name}"
        for name, cost in costs.items()
        if "." not in name
    ]
    return f"what a run costs, which the file gives to its study: {names[0]}." if names else ""
