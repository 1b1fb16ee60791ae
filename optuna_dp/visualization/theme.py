"""Colours, layout and lines of all figures, and plotly loaded when it is first needed."""

from __future__ import annotations

import importlib
from collections.abc import Iterable
from types import ModuleType
from typing import TYPE_CHECKING

from optuna_dp.errors import MissingExtraError

if TYPE_CHECKING:
    import plotly.graph_objects as go

# Figures have no background and grey words, so that they can be read on white and on black.
WORDS = "#7a7a7a"
GRID = "rgba(128, 128, 128, 0.25)"
GUARANTEE = "#4a6ee0"
ATTACK = "#d1495b"
OTHER = "#8a8f9c"
OTHER_PALE = "rgba(138, 143, 156, 0.6)"
NAIVE = "#e08e1b"
SERIES = (GUARANTEE, NAIVE, "#2a9d6f", ATTACK, "#7b4bb7", "#1b9aaa", OTHER)
PARTS = (OTHER, "#7b4bb7", "#1b9aaa", "#2a9d6f")
FILL = "rgba(74, 110, 224, 0.15)"
CURATOR = "For the curator only"
AXIS = {"gridcolor": GRID, "linecolor": WORDS, "zeroline": False, "automargin": True}


def graph_objects() -> ModuleType:
    """Returns ``plotly.graph_objects``; says which extra brings it if it is missing."""
    try:
        return importlib.import_module("plotly.graph_objects")
    except ModuleNotFoundError as error:
        raise MissingExtraError("plotly", "visualization") from error


def small(text: str, colour: str = WORDS) -> str:
    """Returns a part of a title in smaller letters."""
    return f'<span style="font-size:0.75em;color:{colour}">{text}</span>'


def figure(title: str, *, x: str, y: str, curator: str = "") -> go.Figure:
    """Returns an empty figure.

    Args:
        title: Its title.
        x: Title of the horizontal axis.
        y: Title of the vertical axis.
        curator: Why it is for the curator only, which the title then says; empty if it is not.
    """
    if curator:
        title += f"<br>{small(f'{CURATOR}: {curator}', ATTACK)}"
    empty_figure: go.Figure = graph_objects().Figure()
    empty_figure.update_layout(
        title={"text": title, "x": 0.02, "xanchor": "left"},
        template="plotly_white",
        paper_bgcolor="rgba(0, 0, 0, 0)",
        plot_bgcolor="rgba(0, 0, 0, 0)",
        font={"color": WORDS},
        height=450,  # pixels
        showlegend=True,  # plotly leaves it out where there is one line: what then is it?
        # Beneath the axis titles, whatever the height: a fixed number of pixels from the bottom.
        legend={"orientation": "h", "yref": "container", "yanchor": "bottom", "y": 0.01, "x": 0.0},
        margin={"l": 70, "r": 30, "t": 70, "b": 110},
        # In the margin at the right: above, it would lie over the title of a narrow figure.
        modebar={"orientation": "v", "bgcolor": "rgba(0, 0, 0, 0)", "color": OTHER},
        hovermode="closest",
    )
    empty_figure.update_xaxes(title={"text": x, "standoff": 8}, **AXIS)
    empty_figure.update_yaxes(title={"text": y, "standoff": 8}, **AXIS)
    return empty_figure


def line(
    figure: go.Figure,
    at: Iterable[tuple[object, object]],
    name: str,
    colour: str,
    *,
    width: float = 2,
    dash: str = "solid",
    markers: bool = False,
    **properties: object,
) -> None:
    """Adds a line through pairs (x, y).

    For ``dash`` see plotly, for ``properties`` :func:`scatter`.
    """
    stroke = {"color": colour, "width": width, "dash": dash}
    mode = "lines+markers" if markers else "lines"
    scatter(figure, at, name=name, mode=mode, line=stroke, **properties)


def points(
    figure: go.Figure,
    at: Iterable[tuple[object, object]],
    name: str,
    colour: str,
    *,
    size: float = 8,
    symbol: str = "circle",
    **properties: object,
) -> None:
    """Adds points (x, y). For ``symbol`` see plotly, for ``properties`` :func:`scatter`."""
    # An open symbol is all outline; a filled one needs none.
    outline = {"color": colour, "width": 2 if "open" in symbol else 0}
    marker = {"color": colour, "size": size, "symbol": symbol, "line": outline}
    scatter(figure, at, **{"name": name, "mode": "markers", "marker": marker, **properties})


def scatter(figure: go.Figure, at: Iterable[tuple[object, object]], **properties: object) -> None:
    """Adds what ``plotly.graph_objects.Scatter`` makes of pairs (x, y)."""
    pairs = list(at)
    x, y = [x for x, _ in pairs], [y for _, y in pairs]
    figure.add_trace(graph_objects().Scatter(x=x, y=y, **properties))
