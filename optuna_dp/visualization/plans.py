"""The planner's table as a figure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

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


def plot_plan(plan: Plan) -> go.Figure:
    """Plots what searches cost by the mean number of runs, or what was solved for.

    One line per law of T and pair of density bounds; bars reach down to the strongest known
    attack. The dashed line is what publishing that many runs would cost.

    **Public**: a plan is made before any data are touched.

    Args:
        plan: What :func:`optuna_dp.selection_plan` returned.

    Example:
        >>> import optuna_dp as odp
        >>> plan = odp.selection_plan(odp.gaussian(4.0), laws=["geometric"], means=[5, 20])
        >>> figure = odp.visualization.plot_plan(plan)
    """
    if not isinstance(plan, Plan):
        raise InvalidArgumentError(
            "plan", type(plan).__name__, "it must be what optuna_dp.selection_plan returned"
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
    go = theme.graph_objects()
    means = sorted({row.mean for row in plan.rows if row.mean is not None})
    figure.update_xaxes(type="log", tickvals=means, ticktext=[f"{mean:g}" for mean in means])
    for i, (name, rows) in enumerate(_series(plan).items()):
        y = [row.noise_multiplier if white_box else row.epsilon for row in rows]
        figure.add_trace(
            go.Scatter(
                x=[row.mean for row in rows],
                y=y,
                mode="lines+markers",
                name=name,
                line={
                    "color": theme.SERIES[i % len(theme.SERIES)],
                    "dash": "dash" if rows[0].adaptive else "solid",
                },
                error_y=None if white_box else _down_to_the_attack(rows),
            )
        )
    if not white_box:
        _add_naive(figure, plan)
    figure.update_yaxes(rangemode="tozero")
    return figure


def _series(plan: Plan) -> dict[str, list[PlanRow]]:
    """Rows that have a result, by law and density bounds."""
    found: dict[str, list[PlanRow]] = {}
    for row in plan.rows:
        if row.trials is None or row.epsilon == float("inf") or row.mean is None:
            continue
        found.setdefault(_name(row), []).append(row)
    return {name: sorted(rows, key=lambda row: row.mean or 0.0) for name, rows in found.items()}


def _name(row: PlanRow) -> str:
    if row.density_bounds is None or not row.adaptive:
        return row.law
    c, big_c = row.density_bounds
    return f"{row.law}, adaptive within [{c:g}, {big_c:g}]"


def _down_to_the_attack(rows: list[PlanRow]) -> dict[str, Any] | None:
    if any(row.attack is None for row in rows):
        return None
    down = [row.epsilon - min(row.attack or 0.0, row.epsilon) for row in rows]
    return {"type": "data", "symmetric": False, "array": [0.0] * len(rows), "arrayminus": down}


def _add_naive(figure: go.Figure, plan: Plan) -> None:
    naive = {row.mean: row.naive for row in plan.rows if row.mean and row.naive is not None}
    if not naive:
        return
    go = theme.graph_objects()
    figure.add_trace(
        go.Scatter(
            x=sorted(naive),
            y=[naive[mean] for mean in sorted(naive)],
            mode="lines",
            name="publishing that many runs (naive composition)",
            line={"color": theme.OTHER, "dash": "dot"},
        )
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
            names.append(_name(row))
            heights.append(row.mean)
        else:
            names.append(f"{row.law}, mean {row.mean:g}")
            heights.append(row.density_bounds[1] / row.density_bounds[0])
    figure.add_trace(go.Bar(x=names, y=heights, marker={"color": theme.GUARANTEE}))
    return figure
