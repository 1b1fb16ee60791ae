"""One panel per parameter: a density over a search space."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from optuna.distributions import BaseDistribution, CategoricalDistribution
from optuna.trial import FrozenTrial

from optuna_dp.visualization import theme

if TYPE_CHECKING:
    import plotly.graph_objects as go

    from optuna_dp.arrays import FloatArray
    from optuna_dp.models.prior import Candidates

_CELLS = 24
_COLUMNS = 3
_LONGEST_NAME = {1: 90, 2: 44, 3: 28}
_LONGEST_CHOICE = 16
_MOST_TICKS = {1: 24, 2: 12, 3: 8}
_PANEL, _AROUND = 300, 150  # pixels


@dataclass(frozen=True)
class Marks:
    """Runs that are marked at the bottom of every panel."""

    name: str
    colour: str
    trials: tuple[FrozenTrial, ...]


@dataclass(frozen=True)
class Law:
    """A density to be shown.

    Attributes:
        candidates: N points of the search space.
        ratios: The density relative to a prior at each, shape (N,).
        weights: The prior's share of each, shape (N,); they sum to 1.
        levels: Lines across, by height; they are the ticks of a linear axis.
        band: Heights between which all ratios lie; None: the vertical axis is logarithmic.
    """

    title: str
    axis: str
    candidates: Candidates
    ratios: FloatArray
    weights: FloatArray
    levels: dict[float, str]
    band: tuple[float, float] | None
    marks: tuple[Marks, ...]


def panels(params: Sequence[str], law: Law) -> go.Figure:
    """Returns a figure with one panel for each parameter."""
    theme.graph_objects()
    from plotly.subplots import make_subplots  # an extra, which may be missing

    columns = min(len(params), _COLUMNS)
    rows = -(-len(params) // columns)
    gaps = {"horizontal_spacing": 0.03, "vertical_spacing": 0.3 / rows}
    figure = make_subplots(rows, columns, shared_yaxes=True, **gaps)
    low, high = law.band or _decades(law.ratios)
    for i, name in enumerate(params):
        where = {"row": i // columns + 1, "col": i % columns + 1}
        _panel(figure, law, name, first=i == 0, where=where)
        _axis(figure, law.candidates.space[name], name, columns, where)
    theme.style(figure, law.title, curator=True, height=_AROUND + _PANEL * rows)
    if law.band is None:
        figure.update_yaxes(
            type="log", range=[math.log10(low) - 0.25, math.log10(high) + 0.1], dtick=1
        )
    else:
        room = (high - low) or 1.0
        figure.update_yaxes(
            range=[low - 0.15 * room, high + 0.05 * room],
            tickvals=list(law.levels),
            ticktext=list(law.levels.values()),
        )
    figure.update_yaxes(zeroline=False, automargin=True)
    figure.update_yaxes(title_text=law.axis, col=1)
    return figure


def _panel(figure: go.Figure, law: Law, name: str, *, first: bool, where: dict[str, Any]) -> None:
    space, values = law.candidates.space[name], law.candidates.columns[name]
    choices = getattr(space, "choices", ())
    categorical = bool(choices)
    # Spread out, or all candidates of a choice would be one dot.
    rng = np.random.default_rng(0)
    x = values + rng.uniform(-0.25, 0.25, len(values)) if categorical else values
    line, points = (
        functools.partial(draw, figure, showlegend=first, where=where)
        for draw in (theme.line, theme.points)
    )
    dots = zip(x, law.ratios, strict=True)
    points(dots, "candidate", theme.rgba(theme.GUARANTEE, 0.3), size=4, hoverinfo="skip")
    marginal = _marginal(values, law.ratios, law.weights, categorical)
    mean = "mean along the parameter", theme.NAIVE
    if categorical:
        text = [str(choices[int(v)]) for v, _ in marginal]
        points(marginal, *mean, size=26, symbol="line-ew-open", text=text)
    else:
        line(marginal, *mean, width=3)
    low, high = law.band or _decades(law.ratios)
    for i, marks in enumerate(law.marks):
        used = [trial.params[name] for trial in marks.trials if name in trial.params]
        at = [space.to_internal_repr(value) for value in used] if categorical else used
        beneath = low - 0.08 * ((high - low) or 1.0)
        below = low / 10 ** (0.12 * (i + 1)) if law.band is None else beneath
        ticks = [(value, below) for value in at]
        points(ticks, marks.name, marks.colour, size=9, symbol="line-ns-open")
    if law.band is not None:
        band: dict[str, Any] = {"fillcolor": theme.FILL, "line_width": 0, "layer": "below"}
        figure.add_hrect(y0=low, y1=high, **band, **where)
    for level in law.levels:
        colour, dash = (theme.OTHER, "dash") if level == 1.0 else (theme.GUARANTEE, "solid")
        figure.add_hline(y=level, line={"color": colour, "width": 1, "dash": dash}, **where)


def _axis(
    figure: go.Figure, space: BaseDistribution, name: str, columns: int, where: dict[str, Any]
) -> None:
    """The horizontal axis of a parameter: its whole range, in its own scale."""
    short = theme.clipped(name, _LONGEST_NAME[columns])
    figure.update_xaxes(title={"text": short, "standoff": 6}, zeroline=False, **where)
    if isinstance(space, CategoricalDistribution):
        choices = [theme.clipped(str(choice), _LONGEST_CHOICE) for choice in space.choices]
        step = -(-len(choices) // _MOST_TICKS[columns])
        figure.update_xaxes(
            range=[-0.6, len(choices) - 0.4],
            tickvals=list(range(0, len(choices), step)),
            ticktext=choices[::step],
            **where,
        )
        return
    low, high = float(space.low), float(space.high)  # type: ignore[attr-defined]
    if getattr(space, "log", False):
        ends = [math.log10(low), math.log10(high)]
        decades = ends[1] - ends[0]
        figure.update_xaxes(type="log", exponentformat="power", **where)
        if decades >= 2:
            figure.update_xaxes(dtick=max(1, round(decades / 6)), **where)
    else:
        ends = [low, high]
    room = 0.03 * ((ends[1] - ends[0]) or 1.0)
    figure.update_xaxes(range=[ends[0] - room, ends[1] + room], nticks=6, **where)


def _decades(ratios: FloatArray) -> tuple[float, float]:
    """Ends of a logarithmic axis; what is zero is beneath it."""
    seen = ratios[ratios > 0.0]
    return max(float(seen.min()), 1e-3), max(float(seen.max()), 1.0)


def _marginal(
    values: FloatArray, ratios: FloatArray, weights: FloatArray, categorical: bool
) -> list[tuple[float, float]]:
    """The mean ratio along one parameter: per value if there are few, else per cell.

    Cells hold equal shares of the candidates, so that each level is a mean of as many.
    """
    distinct = np.unique(values)
    if categorical or len(distinct) <= _CELLS:
        groups = [values == value for value in distinct]
        at = [float(value) for value in distinct]
    else:
        order = np.array_split(np.argsort(values, kind="stable"), _CELLS)
        groups = [np.isin(np.arange(len(values)), cell) for cell in order]
        at = [float(np.median(values[cell])) for cell in order]
    levels = [float(np.average(ratios[g], weights=weights[g])) for g in groups]
    return list(zip(at, levels, strict=True))
