"""The planner's table as a figure."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from optuna_dp.errors import InvalidArgumentError
from optuna_dp.numbers_shown import rounded_up
from optuna_dp.planning.selection_plan import SelectionPlan
from optuna_dp.planning.selection_plan_rows import PlanRow
from optuna_dp.visualization import theme

if TYPE_CHECKING:
    import plotly.graph_objects as go

_SOLVED = {
    "noise_multiplier": "noise multiplier that is needed",
    "mean": "mean number of runs that is affordable",
    "density_bounds": "C/c that is affordable",
}
_NAIVE = "publishing that many runs (naive composition)"


def plot_plan(plan: SelectionPlan) -> go.Figure:
    """Plots what searches cost by the mean number of runs, or what was solved for.

    One line per law of T and way to learn (density bounds, pilots); bars reach down to the
    strongest known attack. The dotted line is what publishing that many runs would cost.

    A plan with one mean has a bar for each row instead: what the selection costs by itself and, on
    top, what density bounds or pilots add to it. Rows without a finite epsilon are left out.

    **Public**: a plan is made before any data are touched.

    Args:
        plan: What :func:`optuna_dp.selection_plan` returned.

    Raises:
        InvalidArgumentError: If it is anything else.
        MissingExtraError: If plotly is not installed.

    Example:
        >>> import optuna_dp as odp
        >>> plan = odp.selection_plan(odp.gaussian(4.0), laws=["geometric"], means=[5, 20])
        >>> figure = odp.visualization.plot_plan(plan)
    """
    if not isinstance(plan, SelectionPlan):
        raise InvalidArgumentError(
            "plan", type(plan).__name__, "it must be what optuna_dp.selection_plan returned"
        )
    if plan.solved_for in ("mean", "density_bounds"):
        return _solved(plan, plan.solved_for)
    white_box = plan.solved_for == "noise_multiplier"
    means = sorted({row.mean for row in plan.rows if row.mean is not None})
    if len(means) == 1 and not white_box:
        return _side_by_side(plan, means[0])
    title = (
        f"Noise for epsilon {plan.target_epsilon:g}" if white_box else "What a search costs in all"
    )
    figure = theme.figure(
        title,
        x="mean number of runs",
        y=_SOLVED["noise_multiplier"] if white_box else f"epsilon at delta {plan.delta:g}",
    )
    figure.update_xaxes(type="log", tickvals=means, ticktext=[f"{mean:g}" for mean in means])
    for i, (name, rows) in enumerate(_series(plan).items()):
        y = [row.noise_multiplier if white_box else row.epsilon for row in rows]
        theme.line(
            figure,
            zip([row.mean for row in rows], y, strict=True),
            name,
            theme.SERIES[i % len(theme.SERIES)],
            dash="dash" if rows[0].adaptive else "solid",
            markers=True,
            error_y=None if white_box else _down_to_the_attack(rows),
        )
    naive = {row.mean: row.naive for row in plan.rows if row.mean and row.naive is not None}
    if naive and not white_box:
        at, alone = sorted(naive.items()), len(naive) == 1
        theme.line(figure, at, _NAIVE, theme.OTHER, dash="dot", markers=alone)
    figure.update_yaxes(rangemode="tozero")
    return figure


def _series(plan: SelectionPlan) -> dict[str, list[PlanRow]]:
    """Rows that have a result, by law and way to learn."""
    found: dict[str, list[PlanRow]] = {}
    for row in plan.rows:
        if row.trials is None or row.epsilon == float("inf") or row.mean is None:
            continue
        found.setdefault(row.name, []).append(row)
    return {name: sorted(rows, key=lambda row: row.mean or 0.0) for name, rows in found.items()}


def _down_to_the_attack(rows: list[PlanRow]) -> dict[str, Any] | None:
    if any(row.attack is None for row in rows):
        return None
    down = [row.epsilon - min(row.attack or 0.0, row.epsilon) for row in rows]
    return {"type": "data", "symmetric": False, "array": [0.0] * len(rows), "arrayminus": down}


def _solved(plan: SelectionPlan, unknown: str) -> go.Figure:
    """Bars: one for each law that reaches the target."""
    figure = theme.figure(f"What epsilon {plan.target_epsilon:g} allows", x="", y=_SOLVED[unknown])
    names, heights = [], []
    for row in plan.rows:
        if row.trials is None or row.density_bounds is None or row.mean is None:
            continue
        c, big_c = row.density_bounds
        names.append(row.name if unknown == "mean" else f"{row.law}, mean {row.mean:g}")
        heights.append(row.mean if unknown == "mean" else big_c / c)
    bar = theme.graph_objects().Bar(x=names, y=heights, marker={"color": theme.GUARANTEE})
    figure.add_trace(bar)
    return figure


def _side_by_side(plan: SelectionPlan, mean: float) -> go.Figure:
    """Bars: one for each way to search at the one mean that the plan has."""
    shown = [row for row in plan.rows if math.isfinite(row.epsilon)]
    figure = theme.figure(
        f"What a search of {mean:g} runs on average costs",
        x=f"epsilon at delta {plan.delta:g}",
        y="",
    )
    alone = {row.name: row.epsilon - (row.price or 0.0) for row in shown}
    theme.bars(figure, alone, alone.values(), theme.GUARANTEE, name="the selection by itself")
    learning = {row.name: row.price for row in shown if row.price is not None}
    if learning:
        theme.bars(
            figure,
            learning,
            learning.values(),
            theme.NAIVE,
            name="added by density bounds or pilots",
            text=[f"+{rounded_up(price)}" for price in learning.values()],
            textposition="outside",
            cliponaxis=False,
        )
    attacks = [(row.attack, row.name) for row in shown if row.attack is not None]
    if attacks:
        theme.points(
            figure, attacks, "strongest known attack", theme.ATTACK, symbol="line-ns-open"
        )
    naive = [row.naive for row in shown if row.naive is not None and math.isfinite(row.naive)]
    if naive:
        theme.bars(figure, [_NAIVE], naive[:1], theme.OTHER, name=_NAIVE)
    figure.update_layout(barmode="stack", height=220 + 28 * (len(shown) + bool(naive)))
    return figure
