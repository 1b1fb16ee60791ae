"""The planner's table as a figure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from optuna_dp.accounting.pilot_plan import PilotRow
from optuna_dp.accounting.plan_rows import PlanRow
from optuna_dp.accounting.planner import Plan
from optuna_dp.errors import InvalidArgumentError
from optuna_dp.visualization import theme

if TYPE_CHECKING:
    import plotly.graph_objects as go

_SOLVED = {
    "noise_multiplier": "noise multiplier that is needed",
    "mean": "mean number of runs that is affordable",
    "density_bounds": "C/c that is affordable",
}


def plot_plan(plan: Plan | Sequence[PilotRow]) -> go.Figure:
    """Plots what searches cost by the mean number of runs, or what was solved for.

    One line per law of T and way to learn (density bounds, pilots); bars reach down to the
    strongest known attack. The dotted line is what publishing that many runs would cost.

    Rows of pilots are bars: what the selection costs by itself and, on top, what pilots or
    density bounds add to it.

    **Public**: a plan is made before any data are touched.

    Args:
        plan: What :func:`optuna_dp.selection_plan` returned, or the rows that
            :func:`optuna_dp.accounting.pilot_plan.pilot_rows` did.

    Example:
        >>> import optuna_dp as odp
        >>> plan = odp.selection_plan(odp.gaussian(4.0), laws=["geometric"], means=[5, 20])
        >>> figure = odp.visualization.plot_plan(plan)
    """
    if not isinstance(plan, Plan):
        ways = list(plan) if isinstance(plan, Sequence) else []
        if ways and all(isinstance(row, PilotRow) for row in ways):
            return _adaptive(ways)
        raise InvalidArgumentError(
            "plan",
            type(plan).__name__,
            "it must be what optuna_dp.selection_plan or pilot_rows returned",
        )
    if plan.solved_for in ("mean", "density_bounds"):
        return _solved(plan, plan.solved_for)
    white_box = plan.solved_for == "noise_multiplier"
    title = (
        f"Noise for epsilon {plan.target_epsilon:g}" if white_box else "What a search costs in all"
    )
    figure = theme.figure(
        title,
        x="mean number of runs",
        y=_SOLVED["noise_multiplier"] if white_box else f"epsilon at delta {plan.delta:g}",
    )
    means = sorted({row.mean for row in plan.rows if row.mean is not None})
    figure.update_xaxes(type="log", tickvals=means, ticktext=[f"{mean:g}" for mean in means])
    for i, (name, rows) in enumerate(_series(plan).items()):
        y = [row.noise_multiplier if white_box else row.epsilon for row in rows]
        theme.line(
            figure,
            zip([row.mean for row in rows], y, strict=True),
            name,
            colour=theme.SERIES[i % len(theme.SERIES)],
            dash="dash" if rows[0].learns else "solid",
            markers=True,
            error_y=None if white_box else _down_to_the_attack(rows),
        )
    if not white_box:
        _add_naive(figure, plan)
    figure.update_yaxes(rangemode="tozero")
    return figure


def _series(plan: Plan) -> dict[str, list[PlanRow]]:
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


def _add_naive(figure: go.Figure, plan: Plan) -> None:
    naive = {row.mean: row.naive for row in plan.rows if row.mean and row.naive is not None}
    if not naive:
        return
    theme.line(
        figure,
        sorted(naive.items()),
        "publishing that many runs (naive composition)",
        colour=theme.OTHER,
        dash="dot",
        markers=len(naive) == 1,
    )


def _solved(plan: Plan, unknown: str) -> go.Figure:
    """Bars: one for each law that reaches the target."""
    figure = theme.figure(f"What epsilon {plan.target_epsilon:g} allows", x="", y=_SOLVED[unknown])
    go = theme.graph_objects()
    names, heights = [], []
    for row in plan.rows:
        if row.trials is None or row.density_bounds is None or row.mean is None:
            continue
        if unknown == "mean":
            names.append(row.name)
            heights.append(row.mean)
        else:
            names.append(f"{row.law}, mean {row.mean:g}")
            heights.append(row.density_bounds[1] / row.density_bounds[0])
    figure.add_trace(go.Bar(x=names, y=heights, marker={"color": theme.GUARANTEE}))
    return figure


def _adaptive(rows: Sequence[PilotRow]) -> go.Figure:
    """Bars: one for each way to be adaptive; rows without a finite epsilon are left out."""
    shown = [row for row in rows if math.isfinite(row.epsilon)]
    # The plan's delta is not among the rows: whoever made them knows it.
    figure = theme.figure("What adaptivity adds", x="epsilon", y="")
    go = theme.graph_objects()
    names = [_way(row) for row in shown]
    for name, lengths, colour, labels in (
        ("the selection by itself", [r.epsilon - r.price for r in shown], theme.GUARANTEE, None),
        (
            "added by pilots or density bounds",
            [row.price for row in shown],
            theme.NAIVE,
            [f"+{theme.rounded_up(row.price)}" for row in shown],
        ),
    ):
        figure.add_trace(
            go.Bar(
                x=lengths,
                y=names,
                orientation="h",
                name=name,
                marker={"color": colour},
                text=labels,
                textposition="outside",
                cliponaxis=False,
            )
        )
    figure.update_yaxes(autorange="reversed", type="category")
    figure.update_layout(barmode="stack", height=190 + 28 * len(shown))
    return figure


def _way(row: PilotRow) -> str:
    if row.noise_ratio is None:
        c, big_c = row.density_bounds
        return f"density within [{c:g}, {big_c:g}]"
    pilots = "1 pilot" if row.pilots == 1 else f"{row.pilots} pilots"
    return f"{pilots}, {row.noise_ratio:g} times the noise"
