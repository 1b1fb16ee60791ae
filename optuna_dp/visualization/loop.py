"""The doubling loop of propose-test as a figure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from optuna_dp.errors import InvalidArgumentError
from optuna_dp.propose_test.doubling import LoopResult, TraceStep
from optuna_dp.visualization import theme

if TYPE_CHECKING:
    import plotly.graph_objects as go


def plot_doubling_trace(result: LoopResult[Any] | Sequence[TraceStep]) -> go.Figure:
    """Plots how the threshold climbed: proposals that were reached, and those that were not.

    The step doubles after each proposal that some candidate reached and halves after each that
    none did; the line is the utility accumulated (arXiv 2211.01852, the step-u pictures).

    **Public**: the answers of the loop are private outputs that its event pays for, and the figure
    is a function of nothing else. (Utilities are not shown: they are the curator's.)

    Args:
        result: What :func:`optuna_dp.propose_test.propose_test` returned, or its ``trace``.
    """
    trace = list(result.trace if isinstance(result, LoopResult) else result)
    if not all(isinstance(step, TraceStep) for step in trace):
        raise InvalidArgumentError(
            "result", type(result).__name__, "it must be a LoopResult or its trace"
        )
    figure = theme.figure("The doubling loop", x="iteration", y="utility")
    go = theme.graph_objects()
    figure.add_trace(
        go.Scatter(
            x=[step.iteration for step in trace],
            y=[step.utility for step in trace],
            mode="lines",
            line={"shape": "hv", "color": theme.GUARANTEE, "width": 3},
            name="accumulated",
        )
    )
    for name, colour, symbol, kept in (
        ("reached by a candidate", theme.GOOD, "triangle-up", True),
        ("reached by none", theme.ATTACK, "triangle-down-open", False),
    ):
        steps = [step for step in trace if (step.answer is not None) == kept]
        figure.add_trace(
            go.Scatter(
                x=[step.iteration for step in steps],
                y=[step.threshold for step in steps],
                mode="markers",
                marker={"color": colour, "symbol": symbol, "size": 10},
                name=f"proposed, {name}",
                text=[
                    f"step {step.step}"
                    + ("" if step.answer is None else f", candidate {step.answer}")
                    for step in steps
                ],
            )
        )
    figure.update_xaxes(tickformat="d", rangemode="tozero")
    figure.update_yaxes(rangemode="tozero")
    return figure
