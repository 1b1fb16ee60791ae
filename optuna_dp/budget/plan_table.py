"""The runs of a budget plan as the rows of a table, for terminals and notebooks."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from optuna_dp.budget.plan import BudgetPlan

BUDGET_HEADS = ("runs", "noise", "steps", "score noise", "SGD", "Adam")


def budget_rows(plan: BudgetPlan) -> list[tuple[str, ...]]:
    """Returns what the runs of a plan spend, under :data:`BUDGET_HEADS`, as text."""
    runs = [(f"{n} pilots", r) for n, r in zip(plan.rung_sizes, plan.rungs, strict=True)]
    runs.append(("1 last run", plan.final))
    runs += [(f"{plan.spare_runs} spare", plan.final)] if plan.spare_runs else []
    return [
        (
            words,
            f"{run.noise_multiplier:.4g}",
            f"{run.steps}",
            "none" if run.score_noise_multiplier is None else f"{run.score_noise_multiplier:.4g}",
            *(
                "unknown" if run.batch_size is None else f"{run.learning_rate(name):.3g}"
                for name in ("sgd", "adam")
            ),
        )
        for words, run in runs
    ]
