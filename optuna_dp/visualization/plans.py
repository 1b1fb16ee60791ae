"""The planner's table as a figure."""

from __future__ import annotations

import math
from collections import defaultdict
from typing import TYPE_CHECKING

from optuna_dp.errors import InvalidArgumentError
from optuna_dp.planning.selection_plan import SelectionPlan
from optuna_dp.visualization import theme

if TYPE_CHECKING:
    import plotly.graph_objects as go


def plot_plan(plan: SelectionPlan) -> go.Figure:
    """Plots what searches cost by their mean number of runs, or the noise that a target needs.

    One line per law of T and density bounds. The dotted line is what publishing that many runs
    would cost. Where the mean was solved for, a line is a point: how many runs the target allows.
    Rows without a finite result are left out.

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
    noise = plan.solved_for == "noise_multiplier"
    lines: dict[str, list[tuple[float, float]]] = defaultdict(list)
    naive: dict[float, float] = {}
    for row in plan.rows:
        height = row.noise_multiplier if noise else row.epsilon
        if row.mean is None or height is None or not math.isfinite(row.epsilon):
            continue
        lines[row.name].append((row.mean, height))
        if not noise and row.naive is not None:
            naive[row.mean] = row.naive
    target = "" if plan.target_epsilon is None else f" within epsilon {plan.target_epsilon:g}"
    figure = theme.figure(
        f"What searches {'need' if noise else 'cost'}{target}",
        x="mean number of runs",
        y="noise multiplier" if noise else f"epsilon at delta {plan.delta:g}",
    )
    for i, (name, at) in enumerate(lines.items()):
        colour = theme.SERIES[i % len(theme.SERIES)]
        theme.line(figure, sorted(at), name, colour, markers=True)
    if naive:
        words = "publishing that many runs (naive composition)"
        at = sorted(naive.items())
        theme.line(figure, at, words, theme.OTHER, dash="dot", markers=len(at) == 1)
    means = sorted({mean for at in lines.values() for mean, _ in at})
    figure.update_xaxes(type="log", tickvals=means, ticktext=[f"{mean:.3g}" for mean in means])
    figure.update_yaxes(rangemode="tozero")
    return figure
